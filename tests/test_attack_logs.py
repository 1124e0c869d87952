"""A small part of the attack on the reading of logs, and that the attack finds what is wrong."""

import numpy as np
import pytest
from attacks import log_forms, logs

from fedavot.audit import Participation

INPUTS = 300


def test_whatever_a_log_or_a_table_holds_it_is_read_or_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "PARQUET", 0.0)
    monkeypatch.setattr(logs, "COMMAND", 0.0)
    outcomes = [logs.judged(tmp_path, 7, number) for number in range(INPUTS)]
    assert {*outcomes} == {"read", "refused"}
    assert outcomes.count("read") > INPUTS / 10


def test_an_input_goes_through_the_whole_command_line(tmp_path, monkeypatch):
    data = b"round,client\n1,a\n1,b\n2,a\n"
    monkeypatch.setattr(logs, "made", lambda seed, number: (data, {}, {"period": 0}, True))
    assert logs.judged(tmp_path, 0, 0) == "refused"


@pytest.mark.parametrize("form", [*log_forms.LOGS, log_forms.parquet])
def test_every_form_is_read_as_it_is_made_now_and_then(tmp_path, monkeypatch, form):
    def made(seed, number):
        log, options = form(np.random.default_rng([seed, number]))
        return log, {}, options, False

    monkeypatch.setattr(logs, "made", made)
    n_inputs = 5 if form is log_forms.parquet else 20
    assert "read" in {logs.judged(tmp_path, 3, number) for number in range(n_inputs)}


@pytest.mark.parametrize(
    ("clients", "members", "words"),
    [
        (("a", "a"), [0, 1], "distinct"),
        (("a", "b"), [1, 0], "order"),
        (("a", "b"), [0, 7], "order"),
    ],
)
def test_a_log_that_is_not_proper_is_found(tmp_path, monkeypatch, clients, members, words):
    log = Participation(clients, np.array([0, 2]), np.array(members, dtype=np.int32))
    monkeypatch.setattr("fedavot.audit.read_log", lambda *_, **__: log)
    monkeypatch.setattr(logs, "made", lambda seed, number: (b"", {}, {}, False))
    assert words in logs.judged(tmp_path, 0, 0)


def test_an_error_that_is_not_the_librarys_is_found(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("fedavot.audit.read_log", fail)
    assert "ZeroDivisionError" in logs.judged(tmp_path, 0, 0)


def test_a_process_that_ends_is_found(monkeypatch):
    counts, found = logs.attack([0, 1], seed="no seed")
    assert len(found) == 2
    assert counts["found"] == 2
