"""The attack on the solvers' time: every scenario is a problem, and every fault is found."""

import signal
import subprocess

import pytest
from attacks import stalls
from attacks.stall_scenarios import SCENARIOS

CLIENTS = 30


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_small_scenario_is_solved_and_its_certificate_verifies(name):
    row = stalls.measure(name, CLIENTS)
    assert row["status"] in stalls.SOLVED
    assert row["verified"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_has_clients_enough_and_says_what_it_is(name):
    scenario = SCENARIOS[name]
    importance, law = scenario.problem(CLIENTS)
    # A grid is a square.
    assert importance.size == law.n_clients in (25, CLIENTS)
    assert scenario.meaning.endswith(".")


def test_every_scenario_whose_growth_is_fitted_exists():
    assert set(stalls.GROWING) <= set(SCENARIOS)


def test_one_scenario_runs_in_a_process_of_its_own(capsys):
    assert stalls.main(["chain", "--size", str(CLIENTS)]) == 0
    header, row, count = capsys.readouterr().out.splitlines()
    assert header.startswith("scenario")
    assert row.split()[:2] == ["chain", str(CLIENTS)]
    assert count.startswith("0 of 1")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"align": 11.0}, "CPU seconds"),
        ({"certify": 11.0}, "CPU seconds"),
        ({"memory": 1.5}, "GB"),
        ({"status": "unconverged"}, "not solved"),
        ({"verified": False}, "verify"),
        ({"failure": "stopped"}, "stopped"),
    ],
)
def test_every_fault_is_named_and_ends_the_command_with_one(change, fault, monkeypatch, capsys):
    good = {"align": 1.0, "certify": 1.0, "memory": 0.5, "residual": 1e-12}
    good |= {"status": "exact", "verified": True}
    monkeypatch.setattr(stalls, "run", lambda *_: good | change)
    assert stalls.main(["nested"]) == 1
    assert fault in capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(("power", "found"), [(1.4, 0), (1.6, 1)])
def test_growth_beyond_the_limit_is_found(power, found, monkeypatch, capsys):
    monkeypatch.setattr(
        stalls, "run", lambda _, size, __: {"align": 1e-6 * size**power, "status": "exact"}
    )
    assert stalls.main(["--growth", "nested"]) == found
    assert f"{power:.2f}" in capsys.readouterr().out


def test_a_process_that_ran_out_of_time_has_no_status(monkeypatch):
    ended = subprocess.CompletedProcess([], -signal.SIGXCPU, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    assert stalls.run("chain", CLIENTS) == {"failure": "stopped after 180 CPU seconds"}


def test_a_process_that_fails_says_how():
    assert "ended with" in stalls.run("chain", -5)["failure"]


def test_an_unknown_scenario_is_refused():
    with pytest.raises(SystemExit, match="2"):
        stalls.main(["none such"])


def test_the_list_has_every_scenario(capsys):
    assert stalls.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SCENARIOS)
