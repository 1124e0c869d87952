"""The command line prints the paper's table, and the library's errors as one line."""

import re

import pytest
from click.testing import CliRunner

import fedavot
from fedavot import errors
from fedavot.cli import main
from fedavot.experiments import alignment

ROWS = [
    ["regression, text", "33", "54.9%", "49.7", "34.0%", "49.4%", "37.2%"],
    ["regression, code", "29", "45.8%", "19.7", "25.1%", "41.9%", "29.6%"],
    ["MNIST, text", "16", "79.8%", "4.76", "50.6%", "67.0%", "51.9%"],
    ["MNIST, code", "20", "67.0%", "2.44", "32.2%", "53.3%", "35.5%"],
]
"""THEORY.md, section 9, whose L1 distances are twice the gaps."""


def run(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments)


@pytest.fixture(scope="module")
def reproduced():
    return run("reproduce", "alignment")


def cells(output):
    """Return the table's rows as lists of what is separated by two spaces or more."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    return [row for row in rows if row[0] in {row[0] for row in ROWS}]


def test_reproduce_alignment_prints_the_published_table(reproduced):
    assert reproduced.exit_code == 0
    assert cells(reproduced.output) == ROWS
    assert "…" not in reproduced.output
    assert {"importance", "normalised", "FedAVOT"} <= set(reproduced.output.split())


def test_the_first_sentence_of_every_study_fits_into_the_list():
    listed = run("reproduce", "--help").output.partition("Commands:")[2]
    assert len(listed.splitlines()) > 3
    assert "..." not in listed


def test_reproduce_alignment_says_what_was_verified(reproduced):
    text = " ".join(reproduced.output.split())
    assert "4 of 4 certificates verified" in text
    assert "4 settings infeasible" in text
    assert "Largest residual to the nearest attainable importance" in text


def test_a_certificate_that_does_not_verify_is_an_exit_status(monkeypatch):
    monkeypatch.setattr(fedavot.Certificate, "verify", lambda *_: False)
    result = run("reproduce", "alignment")
    assert result.exit_code == 1
    assert "0 of 4 certificates verified" in " ".join(result.output.split())


def test_an_error_of_the_library_is_one_line_and_exit_status_2(monkeypatch):
    def fail(importance, law):
        raise errors.LawError(f"no cohorts for {importance.size} clients; give some")

    monkeypatch.setattr(alignment, "measure", fail)
    result = run("reproduce", "alignment")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == "Error: no cohorts for 100 clients; give some"
    assert "Traceback" not in result.output


def test_any_other_error_is_not_hidden(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(alignment, "measure", fail)
    assert isinstance(run("reproduce", "alignment").exception, ZeroDivisionError)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", [(), ("reproduce",), ("reproduce", "alignment")])
def test_every_command_explains_itself(command, flag):
    result = run(*command, flag)
    assert result.exit_code == 0
    assert result.output.startswith("Usage:")


def test_the_version_is_that_of_the_library():
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"fedavot, version {fedavot.__version__}"


def test_an_unknown_command_is_a_usage_error():
    result = run("reproduce", "everything")
    assert result.exit_code == 2
    assert "No such command 'everything'" in result.output
