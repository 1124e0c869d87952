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


def test_a_process_that_ran_out_of_time_has_no_status(monkeypatch):
    ended = subprocess.CompletedProcess([], -signal.SIGXCPU, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    assert stalls.run("chain", CLIENTS) == {"failure": "stopped after 180 CPU seconds"}


def test_a_process_that_fails_says_how():
    assert "ended with" in stalls.run("chain", -5)["failure"]
