"""What the attack on logs reads, and what it would find."""

import numpy as np
import pytest
from attacks import log_forms, logs
from attacks.isolation import settled

from fedavot.audit import Participation


def test_an_input_goes_through_the_whole_command_line(tmp_path):
    data = b"round,client\n1,a\n1,b\n2,a\n"
    assert logs.read(tmp_path, data, {}, {"period": 0}, True) == "refused"


@pytest.mark.parametrize("form", [*log_forms.LOGS, log_forms.parquet])
def test_every_form_is_read_as_it_is_made_now_and_then(tmp_path, form):
    def judge(seed, number):
        log, options = form(np.random.default_rng([seed, number]))
        return logs.read(tmp_path, log, {}, options, False)

    n_inputs = 5 if form is log_forms.parquet else 20
    assert "read" in {settled(judge, 3, number) for number in range(n_inputs)}


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
    assert words in logs.read(tmp_path, b"", {}, {}, False)
