"""The weights in use, and what is possible, on the command line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from fedavot.cli import main


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Return a log with numbers of examples, and with weights in a column of another name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedavot.audit.report.outputs.PICTURES", ())
    rng = np.random.default_rng(0)
    rows = ["round,client,num_examples,share"]
    for number in range(60):
        cohort = rng.permutation(6)[:3]
        rows += [f"{number},c{i},{10 if i < 3 else 90},{0.2 if i < 3 else 0.4}" for i in cohort]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "log.csv"


def audited(log, *options):
    """Return the findings of an audit by the command."""
    done = CliRunner().invoke(main, ["audit", str(log), "--out", "found", *options])
    assert done.exit_code == 0, done.output
    return json.loads((log.parent / "found" / "findings.json").read_text())


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ([], "by-examples"),
        (["--weights", "examples"], "by-examples"),
        (["--weights", "equal"], "fedavg"),
        (["--weights", "share"], "as-applied"),
    ],
)
def test_the_weights_in_use_are_those_of_the_log_or_those_named(log, options, rule):
    found = audited(log, *options)
    assert found["in_use"] == rule
    assert rule in [one["rule"] for one in found["price"]["standings"]]
    assert rule in [one["rule"] for one in found["replay"]["trained"]]


def test_what_is_not_possible_is_not_recommended(log):
    assert audited(log)["recommendation"]["action"] == "use memory"
    found = audited(log, "--can", "nothing", "--local-steps", "2")
    assert found["recommendation"]["best"]["need"] is None
    assert found["replay"]["local_steps"] == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--can", "memory,magic"], "'magic'"),
        (["--weights", "nowhere"], "'nowhere'"),
        (["--weights", "examples", "--column", "examples="], "--column examples=n_train"),
    ],
)
def test_what_the_log_or_the_library_lacks_is_refused(log, options, named):
    done = CliRunner().invoke(main, ["audit", str(log), *options])
    assert done.exit_code == 2
    assert named in done.output
