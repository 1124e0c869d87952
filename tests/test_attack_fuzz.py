"""A few inputs of every entry that reads outside data, and that what is wrong would be found."""

import multiprocessing
from collections import Counter

import numpy as np
import pytest
from attacks import fuzz, isolation, replies
from attacks.clients import MODEL, N_CLIENTS, Node, app_of, record_of, update
from attacks.isolation import Fault, settled
from attacks.saved_files import MAKERS

from fedavot.errors import FileFormatError
from fedavot.flower import FedAVOT

INPUTS = {"config": 60, "reply": 60, "folder": 60}
OTHERWISE = 150
SEED = 7


@pytest.mark.parametrize("entry", fuzz.ENTRIES)
def test_whatever_an_input_holds_it_is_read_or_refused(entry, tmp_path):
    judge = fuzz.ENTRIES[entry][0](tmp_path)
    outcomes = {n: settled(judge, SEED, n) for n in range(INPUTS.get(entry, OTHERWISE))}
    assert {n: it for n, it in outcomes.items() if isinstance(it, Fault)} == {}
    if entry not in MAKERS:  # neither is everything refused, nor everything read
        assert len(set(outcomes.values())) > 1


def train(make, lie):
    """Train while one client lies; return what the judge asks when it fails, and the error."""
    nodes = {100 + i: Node(app_of(update), {"partition-id": i}) for i in range(N_CLIENTS)}
    grid = replies.LyingGrid(nodes, lie, ("train",))
    try:
        FedAVOT(make(), importance="uniform").start(grid, record_of(MODEL), 1)
    except ZeroDivisionError as error:
        return grid, error
    return grid, None


def unchanged(reply):
    reply.content["arrays"] = record_of(MODEL)
    return reply


def test_a_client_that_returns_the_model_ends_flowers_clipping_and_not_exact_noise():
    grid, error = train(replies._clipped, unchanged)
    assert error is not None
    assert replies.flowers_own(error, replies._clipped, grid)
    assert train(replies._exactly_noisy, unchanged)[1] is None


def test_an_error_that_flower_does_not_make_by_itself_is_a_fault():
    grid, error = train(replies._clipped, unchanged)
    assert not replies.flowers_own(error, replies._exactly_noisy, grid)
    with pytest.raises(ZeroDivisionError, match="division") as elsewhere:
        raise ZeroDivisionError(*error.args)
    assert not replies.flowers_own(elsewhere.value, replies._clipped, grid)


def renamed(content):
    content["arrays"] = record_of({"v": MODEL["w"], "n": MODEL["n"]})


def reshaped(content):
    content["arrays"] = record_of({**MODEL, "w": np.expand_dims(np.asarray(MODEL["w"]), 0)})


def uncounted(content):
    del content["metrics"]["num-examples"]


@pytest.mark.parametrize("change", [renamed, reshaped, uncounted])
def test_a_reply_that_has_to_be_excluded_is_no_excuse(change):
    """Flower, which does not look, divides by zero for each of them."""
    grid, error = train(replies._clipped, unchanged)
    change(grid.trained[replies.LIAR].content)
    assert not replies.flowers_own(error, replies._clipped, grid)


def refuses(seed, number):
    raise FileFormatError("no")


def refuses_silently(seed, number):
    raise FileFormatError("")


def fails(seed, number):
    raise KeyError("importance")


def warns(seed, number):
    import warnings

    warnings.warn("from some library", RuntimeWarning, stacklevel=1)


@pytest.mark.parametrize(
    ("judge", "outcome"),
    [(refuses, "refused"), (refuses_silently, None), (fails, None), (warns, None)],
)
def test_only_an_error_of_the_library_with_a_message_is_a_refusal(judge, outcome):
    found = settled(judge, 0, 0)
    assert isinstance(found, Fault) == (outcome is None)
    assert outcome is None or found == outcome


def ends(folder):
    def judge(seed, number):
        import os

        if number == 1:
            os._exit(3)
        return "read"

    return judge


def allocates(folder):
    return lambda seed, number: str(len(bytearray(1 << 40))) if number == 1 else "read"


@pytest.mark.parametrize("make", [ends, allocates])
def test_an_input_that_ends_or_fills_the_process_is_found_and_the_next_is_read(make):
    counts, found = isolation.attack(make, range(3), seed=0)
    assert len(found) == 1
    assert found[0].startswith("input 1: ")
    assert counts == {"found": 1, "read": 2}


def test_a_process_that_says_nothing_is_found(monkeypatch):
    monkeypatch.setattr(isolation, "PATIENCE", 0.0)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    assert "no answer" in isolation._listen(ours, [0], Counter(), [])
    theirs.close()
    ours.close()


def test_the_command_reads_one_input_by_its_number(capsys):
    assert fuzz.main(["--entry", "alignment", "--only", "3"]) == 0
    *_, row, last = capsys.readouterr().out.splitlines()
    assert row.split()[:3] == ["alignment", "1", "0"]
    assert last.startswith("1 inputs, 0 found")
