"""``fedavot reproduce rivals``: it tunes, resumes, redraws, and runs the parts asked for."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from fedavot import UniformCohorts
from fedavot.cli import main
from fedavot.experiments import rivals, tuning
from fedavot.experiments.phones import COVERAGE, INTERVALS, read
from fedavot.experiments.study import Instance, Setting, common
from fedavot.rules import Known, build
from fedavot.training import Problem, Training, constant
from fedavot.training.sweep import sweep
from fedavot.training.tasks.linear import heterogeneous_regression

N = 6
IMPORTANCE = np.arange(N, 0, -1.0) / np.arange(N, 0, -1.0).sum()
LAW = UniformCohorts(N, 2)
NAMES = ("softmax, sine, uniform p", "softmax, sine, skewed p", "phones, skewed p")
RULES = ("full", "fedavot-steady", "fedavg")


def tiny(seeds, *, quick, data_dir, log_dir):
    """Return three small settings, the last with the phones' log only."""
    task = heterogeneous_regression(n_clients=N, n_features=3, n_examples=8)
    problem = Problem(task, IMPORTANCE, LAW.sample)
    return [
        Setting(
            name,
            (Instance(problem, tuple(seeds)),),
            tuple(build(rule, Known(IMPORTANCE, LAW)) for rule in RULES),
            Training(20, constant(0.02), record_every=5),
            tail=5,
            tuning=(Instance(problem, tuple(rivals.TUNING + seed for seed in seeds)),),
        )
        for name in NAMES[: 2 if log_dir is None else 3]
    ]


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(rivals, "settings", tiny)
    monkeypatch.setattr(tuning, "WAVES", 0)

    def invoke(*options):
        command = ["reproduce", "rivals", "--seeds", "2", "--out", str(tmp_path / "out"), *options]
        return CliRunner(env={"COLUMNS": "80"}).invoke(main, command)

    return invoke


def shown(tmp_path):
    """Return the settings and rules of the results."""
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    return {row["setting"] for row in rows}, {row["rule"] for row in rows}


def test_it_reports_resumes_and_redraws_alike(run, tmp_path, monkeypatch):
    first = run()
    assert first.exit_code == 0, first.output
    assert shown(tmp_path) == ({*NAMES[:2], *map(common, NAMES[:2])}, {*RULES})
    for name in ("rivals.png", "rivals-steady.png", "summary.md", "results.json"):
        assert (tmp_path / "out" / name).exists()
        assert name in first.stdout.replace("\n", "")
    held = (tmp_path / "out" / "summary.md").read_text()
    monkeypatch.setattr(tuning, "sweep", None)
    again, redrawn = run(), run("--redraw")
    assert first.stdout == again.stdout == redrawn.stdout
    assert (tmp_path / "out" / "summary.md").read_text() == held
    assert first.stderr.count(": done") == again.stderr.count(": done") == 6


def test_settings_and_rules_can_be_chosen(run, tmp_path):
    done = run("--quick", "--settings", "SINE, skewed", "--rules", "fedavg, fedavot-steady")
    assert done.exit_code == 0, done.output
    assert shown(tmp_path) == ({NAMES[1], common(NAMES[1])}, {"fedavg", "fedavot-steady"})
    assert "quick" in (tmp_path / "out" / "summary.md").read_text()
    run("--quick", "--settings", NAMES[0], "--settings", "phones", "--phones", str(tmp_path))
    assert shown(tmp_path)[0] == {NAMES[0], NAMES[2], common(NAMES[0]), common(NAMES[2])}


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [("--settings", "cosine", "'cosine'"), ("--rules", "fedavg,fedagv", "'fedagv'")],
)
def test_names_that_do_not_exist_are_refused(run, tmp_path, option, value, told):
    done = run(option, value)
    assert done.exit_code == 2
    assert told in done.output
    assert not (tmp_path / "out").exists()


def test_an_interruption_counts_rules_and_reports_what_is_finished(run, tmp_path, monkeypatch):
    inner, calls = sweep, []

    def stopping(*arguments):
        calls.append(arguments[1].name)
        if calls[-1] == "fedavg":
            raise KeyboardInterrupt
        return inner(*arguments)

    monkeypatch.setattr(tuning, "sweep", stopping)
    done = run()
    assert done.exit_code == 130
    assert "2 of 6 runs" in done.output.replace("\n", " ")
    assert shown(tmp_path)[1] == {"full", "fedavot-steady"}
    monkeypatch.setattr(tuning, "sweep", inner)
    calls.clear()
    assert run().exit_code == 0
    assert shown(tmp_path)[1] == {*RULES}


def test_the_phones_log_is_read_in_its_order(tmp_path):
    (tmp_path / COVERAGE).write_text(
        "client,obs_start_s,last_event_s\nb,0,3000\na,0,2500\n", encoding="utf-8"
    )
    (tmp_path / INTERVALS).write_text(
        "client,state,start_s,end_s\nb,charging,600,1300\na,charging,1200,1300\n"
        "a,idle,0,600\na,charging,2400,2500\n",
        encoding="utf-8",
    )
    log = read(tmp_path)
    # Rounds at 600, 1200, 1800 and 2400 seconds; nobody charges at 1800.
    # Phones are in the order of their names, as in an audit.
    assert log.charging.tolist() == [[False, True], [True, True], [True, False]]
    assert (log.n_rounds, log.n_clients) == (3, 2)
    assert log.skewed.sum() == pytest.approx(1.0)
    cohorts = [cohort.tolist() for cohort in log.sample(np.random.default_rng(0), 4)]
    assert cohorts == [[1], [0, 1], [0], [1]]


def test_a_folder_without_the_phones_log_is_refused(tmp_path):
    done = CliRunner().invoke(main, ["reproduce", "rivals", "--phones", str(tmp_path)])
    assert done.exit_code == 2
    assert INTERVALS in done.output.replace("\n", "")
