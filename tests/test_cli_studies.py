"""Studies from the command line: they run, resume, redraw, and refuse in one line."""

import json

import pytest
from click.testing import CliRunner

from fedavot.cli import main
from fedavot.errors import InterruptedStudyError
from fedavot.experiments import studies
from fedavot.experiments.config import read_config

CONFIG = """
name = "Two rules"
rules = ["full", "fedavg", "fedavot"]
[task]
kind = "heterogeneous-regression"
n_clients = 5
n_features = 2
examples = 6
[importance]
kind = "linear"
[availability]
law = "uniform-cohorts"
cohort_size = 2
[training]
rounds = 30
step = 0.02
seeds = 2
"""


def run(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, [str(one) for one in arguments])


def test_a_name_with_dollars_and_other_letters_is_a_name(config, tmp_path):
    config.write_text(CONFIG.replace("Two rules", "cost $x^$ für ß"))
    done = run("simulate", config, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "cost-x-für-ß.png").exists()


def test_the_example_is_printed_as_a_configuration_that_can_be_read(tmp_path):
    done = run("simulate", "--example")
    assert done.exit_code == 0
    (tmp_path / "study.toml").write_text(done.stdout, encoding="utf-8")
    read = read_config(tmp_path / "study.toml")
    assert [rule["name"] for rule in read.rules][:2] == ["full", "fedavot-steady"]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(CONFIG)
    return path


def test_simulate_prints_a_table_and_says_where_everything_is(config, tmp_path):
    done = run("simulate", config, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for rule in ("full participation", "plain average", "FedAVOT"):
        assert f" {rule} " in done.output
    assert done.stdout.startswith("Two rules\n\nAs configured in `")
    assert "± sample standard deviations" in done.stdout
    for name in ("two-rules.png", "two-rules.pdf", "summary.md", "results.json"):
        assert (tmp_path / "out" / name).exists()
        assert name in done.output
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {row["seeds"] for row in rows} == {2}


def test_simulate_again_takes_what_is_there_and_redraw_runs_nothing(config, tmp_path, monkeypatch):
    first = run("simulate", config, "--out", tmp_path / "out")
    png = (tmp_path / "out" / "two-rules.png").read_bytes()
    monkeypatch.setattr("fedavot.experiments.running.finish", None)
    again = run("simulate", config, "--out", tmp_path / "out")
    redrawn = run("simulate", config, "--out", tmp_path / "out", "--redraw")
    assert first.stdout == again.stdout == redrawn.stdout
    assert "Two rules · FedAVOT: done" in first.stderr
    assert (tmp_path / "out" / "two-rules.png").read_bytes() == png


def test_names_in_brackets_are_shown_as_they_are(config, tmp_path):
    config.write_text(CONFIG.replace("Two rules", "Two [rules] [red]"))
    done = run("simulate", config, "--out", tmp_path / "out[old]")
    assert done.exit_code == 0, done.output
    assert "two-rules-red: Two [rules] [red]" in done.stdout
    assert "Two [rules] [red] · FedAVOT: done" in done.stderr
    assert f"{tmp_path / 'out[old]' / 'summary.md'}" in done.stdout


def test_simulate_takes_seeds_from_the_command_line(config, tmp_path):
    run("simulate", config, "--out", tmp_path / "out", "--seeds", 3)
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {row["seeds"] for row in rows} == {3}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"fedavg"', '"fedagv"', "did you mean 'fedavg'"),
        ("rounds = 30", "rounds = 30.5", "training.rounds"),
        ("rounds = 30", "round = 30", "did you mean 'rounds'"),
        ("cohort_size = 2", "cohort_size = 9", "availability"),
        ('kind = "linear"', 'kind = "file"\nfile = "none.csv"', "none.csv"),
    ],
)
def test_a_mistake_in_a_configuration_is_one_error_and_nothing_is_written(
    config, tmp_path, before, after, told
):
    assert before in CONFIG
    config.write_text(CONFIG.replace(before, after))
    done = run("simulate", config, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert done.output.count("Error:") == 1
    assert told in done.output.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_error(config, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("simulate", config, "--out", tmp_path / "file" / "out")
    assert done.exit_code == 2
    assert "Not a directory" in done.output.replace("\n", " ")


def test_an_interrupted_study_says_so_and_tells_what_is_done(config, tmp_path, monkeypatch):
    def interrupted(settings, folder, *, progress):
        raise InterruptedStudyError([])

    monkeypatch.setattr("fedavot.experiments.running.conduct", interrupted)
    done = run("simulate", config, "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert "0 of 3 runs finished" in done.output
    assert "The same command" in done.output
    assert not (tmp_path / "out" / "results.json").exists()


def test_redraw_without_results_is_refused(tmp_path):
    done = run("reproduce", "regression", "--redraw", "--out", tmp_path)
    assert done.exit_code == 2
    assert "run without --redraw first" in done.output.replace("\n", " ")


def test_a_folder_without_digits_is_refused(tmp_path):
    done = run("reproduce", "mnist", "--quick", "--data-dir", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert str(tmp_path) in done.output.replace("\n", "")
    assert not (tmp_path / "out").exists()


def test_every_study_is_a_command_with_help():
    for name in (*studies.STUDIES, "all"):
        done = run("reproduce", name, "--help")
        assert done.exit_code == 0
        for option in ("--seeds", "--out", "--quick", "--redraw"):
            assert option in done.output
        assert ("--data-dir" in done.output) == (name in ("mnist", "rivals", "all"))


@pytest.mark.slow
def test_a_quick_regression_draws_its_figure_and_tables(tmp_path):
    done = run("reproduce", "regression", "--quick", "--seeds", 2, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "results.json").read_text())
    assert {row["setting"] for row in rows} == {"code", "text", "feasible"}
    assert list(rows[0]) == ["setting", "rule", "group", "metric", "mean", "std", "seeds"]
    assert (tmp_path / "regression.png").read_bytes().startswith(b"\x89PNG")
    assert "loses" in done.output
    assert "quick: not for its numbers" in (tmp_path / "summary.md").read_text()
