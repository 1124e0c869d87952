"""The log that the strategy writes is one that the audit reads, and its weights are judged."""

import numpy as np
import pytest
from grid import everybody, federation, only, record_of

from fedavot.audit import audit, federation_of, read_log, write_audit
from fedavot.flower import FedAVOT, Weighting

MODEL = {"w": np.zeros(3, np.float32)}
N_CLIENTS, ROUNDS = 6, 250
RATES = np.array([0.9, 0.8, 0.7, 0.5, 0.4, 0.3])


def update(arrays, config, node):
    return {"w": arrays["w"] + np.float32(0.5)}, {"num-examples": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Train with clients that reply now and then, with a log."""
    place = tmp_path_factory.mktemp("run")
    there = np.random.default_rng(0).random((ROUNDS, N_CLIENTS)) < RATES
    there[:, 0] |= ~there.any(axis=1)
    cohorts = [np.flatnonzero(row).tolist() for row in there]
    grid = federation(N_CLIENTS, update, fate=only(cohorts, "error"))
    importance = {str(i): 1.0 for i in range(N_CLIENTS)}
    exact = Weighting(softness=0)
    strategy = FedAVOT(everybody(), importance=importance, weighting=exact, folder=place)
    strategy.start(grid, record_of(MODEL), ROUNDS)
    return place


def test_the_weights_in_use_are_judged_beside_the_plain_average(folder):
    found = audit(federation_of(read_log(folder / "participation.jsonl")))
    in_use, plain = (found.price.of(rule) for rule in ("as-applied", "fedavg"))
    assert found.rounds == ROUNDS
    assert plain.gap > 0.1
    assert in_use.gap < plain.gap / 3


@pytest.mark.parametrize(("memory", "rule"), [(None, "as-applied"), (True, "fedavot-steady")])
def test_a_run_with_memory_is_audited_as_one(tmp_path, memory, rule):
    cohorts = [[t % N_CLIENTS, t % 2] for t in range(12)]
    grid = federation(N_CLIENTS, update, fate=only(cohorts, "error"))
    strategy = FedAVOT(everybody(), importance="uniform", memory=memory, folder=tmp_path)
    strategy.start(grid, record_of(MODEL), 12)
    log = read_log(tmp_path / "participation.jsonl")
    assert audit(federation_of(log)).in_use == rule
    assert audit(federation_of(log), weights="applied").in_use == "as-applied"


def test_the_alignment_of_an_audit_goes_back_into_the_strategy(folder, tmp_path):
    found = audit(federation_of(read_log(folder / "participation.jsonl")))
    write_audit(found, tmp_path / "audit")
    weighting = Weighting.load(tmp_path / "audit" / "alignment.json")
    assert list(weighting.clients) == [str(i) for i in range(N_CLIENTS)]
    cohort = [5, 0]
    assert np.array_equal(weighting.alignment.weights(cohort), found.alignment.weights(cohort))
    strategy = FedAVOT(everybody(), weighting=weighting)
    grid = federation(N_CLIENTS, update)
    assert strategy.start(grid, record_of(MODEL), 2) is not None
