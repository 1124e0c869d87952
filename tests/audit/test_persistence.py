"""Whether a round tells about the next one, for groups and for all clients together."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_behaviour import ABSENT, PRESENT, UNKNOWN, compressed, logs

from fedavot.audit import audit, federation_of, read_log
from fedavot.audit.statistics.behaviour import (
    NOTHING_KNOWN,
    group_returns,
    joint_persistence,
)


def returns_of(states, group_of, n_groups):
    states = np.asarray(states)
    unknown = compressed(states == UNKNOWN) if (states == UNKNOWN).any() else None
    return group_returns(compressed(states == PRESENT), unknown, np.asarray(group_of), n_groups)


def joint_of(states):
    states = np.asarray(states)
    unknown = compressed(states == UNKNOWN) if (states == UNKNOWN).any() else None
    return joint_persistence(compressed(states == PRESENT), unknown)


def looped_returns(states, group_of, group):
    """The definition, pair by pair."""
    mine = states[:, group_of == group]
    seen = {True: [], False: []}
    state = [
        PRESENT if (row == PRESENT).any() else UNKNOWN if (row == UNKNOWN).any() else ABSENT
        for row in mine
    ]
    for before, after in pairwise(state):
        if UNKNOWN not in (before, after):
            seen[before == PRESENT].append(after == PRESENT)
    return [np.mean(seen[key]) if seen[key] else np.nan for key in (True, False)]


@given(logs(), st.integers(1, 3))
def test_returns_of_groups_are_those_of_their_definition(log, n_groups):
    states, _ = log
    group_of = np.arange(states.shape[1]) % n_groups
    found = returns_of(states, group_of, n_groups)
    for group in range(n_groups):
        expected = looped_returns(states, group_of, group)
        np.testing.assert_allclose([found[0][group], found[1][group]], expected, rtol=1e-12)


def office_hours(rng, n_rounds=600, length=20):
    """Return clients of which a third is drawn in every other spell, and others between."""
    states = np.zeros((n_rounds, 60), dtype=int)
    for t in range(n_rounds):
        pool = np.arange(20) if t // length % 2 else np.arange(20, 60)
        states[t, rng.choice(pool, 4, replace=False)] = PRESENT
    return states


def test_clients_drawn_anew_from_pools_that_last_persist_together():
    states = office_hours(np.random.default_rng(0))
    found = joint_of(states)
    # One round in twenty is followed by one of the other pool: a correlation of 1 − 2/20.
    assert found.value == pytest.approx(0.9, abs=0.05)
    assert found.low < 0.9 < found.high
    after, without = returns_of(states, np.arange(60) // 20 > 0, 2)
    assert after[0] > 0.9
    assert without[0] < 0.1


@pytest.mark.parametrize("n_clients", [5, 300])
def test_clients_drawn_anew_in_every_round_do_not_persist(n_clients):
    covered = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = joint_of((rng.random((200, n_clients)) < 0.1).astype(int))
        covered.append(found.low <= 0 <= found.high)
    assert np.mean(covered) >= 0.85  # of 20 at 95 %, fewer than 17 in one of 1,000 runs


def test_what_is_unknown_is_taken_for_neither():
    rng = np.random.default_rng(1)
    states = office_hours(rng)
    hidden = np.where(rng.random(states.shape) < 0.3, UNKNOWN, states)
    assert joint_of(hidden).value == pytest.approx(0.8, abs=0.15)


@pytest.mark.parametrize(
    "states", [[[1, 0]], [[1, 0]] * 40, [[1]] * 40, [[1, 2]] * 40, [[1, 0], [0, 1]] * 3]
)
def test_nothing_is_said_of_rounds_that_do_not_vary_or_are_few(states):
    assert joint_of(states) == NOTHING_KNOWN


def test_the_groups_of_the_sample_persist_though_its_clients_do_not(tmp_path):
    rows = [
        f"{t},{client}"
        for t, row in enumerate(office_hours(np.random.default_rng(2), 240))
        for client in np.flatnonzero(row)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["round,client", *rows]))
    groups = "\n".join(["client,group", *(f"{i},{'ab'[i < 20]}" for i in range(60))])
    (tmp_path / "groups.csv").write_text(groups)
    log = read_log(tmp_path / "log.csv")
    found = audit(federation_of(log, groups=tmp_path / "groups.csv")).behaviour
    assert found.joint_persistence.low > 0.5
    assert (found.group_after_presence - found.group_after_absence).min() > 0.5
