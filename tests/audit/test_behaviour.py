"""When clients are there, how long they stay, and whether they come together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot._incidence import Incidence
from fedavot.audit import Participation
from fedavot.audit.federation import Federation
from fedavot.audit.statistics import behaviour, estimates
from fedavot.audit.statistics.behaviour import behave, dispersion, is_dated
from fedavot.audit.statistics.case import Case
from fedavot.audit.statistics.estimates import resampling, rounds_per_observation
from fedavot.audit.statistics.window import whole

ROUNDING = 1e-9
"""Sums of a few thousand small integers in another order."""
MONDAY = 1_704_672_000.0
"""2024-01-08T00:00:00Z."""
ABSENT, PRESENT, UNKNOWN = 0, 1, 2


def compressed(mask):
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    return Incidence(np.nonzero(mask)[1].astype(np.int32), offsets, mask.shape[1])


def federation_of(states, *, times=None, available=None, complete=True, groups=(), group_of=None):
    """Build a federation from the state of every client in every round."""
    cohorts, n_clients = compressed(states == PRESENT), states.shape[1]
    log = Participation(
        clients=tuple(f"c{i}" for i in range(n_clients)),
        offsets=cohorts.offsets,
        members=cohorts.members,
        times=None if times is None else np.asarray(times, dtype=np.float64),
        available=None if available is None else compressed(available),
        unknown=compressed(states == UNKNOWN) if (states == UNKNOWN).any() else None,
        all_available=complete,
    )
    return Federation(log, np.full(n_clients, 1 / n_clients), groups, group_of)


def described(federation, block=None):
    window = whole(federation)
    block = np.zeros(window.n_rounds, dtype=np.int64) if block is None else block
    rng, look = np.random.default_rng(0), rounds_per_observation(window, block)
    return behave(Case(federation, window, resampling(block, rng), 1, look, rng))


def behaviour_of(states, **options):
    return described(federation_of(np.asarray(states), **options))


def look_of(states, block):
    return rounds_per_observation(whole(federation_of(np.asarray(states))), np.asarray(block))


def looped_look(states, block):
    """The definition, cell by cell."""
    found = expected = 0.0
    for client in states.T:
        known = client != UNKNOWN
        if not known.any():
            continue
        share = (client == PRESENT).sum() / known.sum()
        lengths = []
        for b in set(block.tolist()):
            inside = known & (block == b)
            lengths.append(inside.sum())
            found += ((client[inside] == PRESENT).sum() - share * inside.sum()) ** 2
        free = known.sum() - np.square(lengths).sum() / known.sum()
        expected += share * (1 - share) * free
    return max(1.0, found / expected) if expected > ROUNDING else 1.0


def looped_dispersion(states):
    """The definition, round by round."""
    known = states != UNKNOWN
    share = (states == PRESENT).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    found = expected = 0.0
    for row, seen in zip(states, known, strict=True):
        found += ((row[seen] == PRESENT).sum() - share[seen].sum()) ** 2
        expected += (share * (1 - share))[seen].sum()
    return found / expected if expected > ROUNDING else 1.0


@st.composite
def logs(draw):
    """States of up to 7 clients in up to 30 rounds, with somebody in each, and blocks."""
    n_rounds, n_clients = draw(st.integers(1, 30)), draw(st.integers(1, 7))
    worst = draw(st.sampled_from([PRESENT, UNKNOWN]))
    cells = st.integers(ABSENT, worst)
    row = st.lists(cells, min_size=n_clients, max_size=n_clients).filter(lambda row: PRESENT in row)
    states = np.array(draw(st.lists(row, min_size=n_rounds, max_size=n_rounds)))
    steps = draw(st.lists(st.booleans(), min_size=n_rounds - 1, max_size=n_rounds - 1))
    return states, np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)


@given(logs(), st.sampled_from([1, 5, 1 << 21]))
def test_look_is_that_of_its_definition_however_the_log_is_cut(log, slab):
    states, block = log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimates, "SLAB", slab)
        assert look_of(states, block) == pytest.approx(looped_look(states, block), rel=ROUNDING)


@given(logs(), st.sampled_from([1, 5, 1 << 21]))
def test_dispersion_is_that_of_its_definition_however_the_log_is_cut(log, slab):
    states, _ = log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(behaviour, "SLAB", slab)
        found = behaviour_of(states).dispersion
    assert found == pytest.approx(looped_dispersion(states), rel=ROUNDING, abs=ROUNDING)


def test_with_equal_blocks_look_is_the_design_effect_with_its_correction():
    states = np.random.default_rng(1).integers(0, 2, size=(60, 4))
    states[:, 0] |= ~states.any(axis=1)
    counts, share = states.reshape(6, 10, 4).sum(axis=1), states.mean(axis=0)
    effect = ((counts - 10 * share) ** 2).sum() / (60 * share * (1 - share)).sum()
    expected = max(1.0, effect * 6 / 5)
    assert look_of(states, np.arange(60) // 10) == pytest.approx(expected, rel=ROUNDING)


def test_rounds_that_come_four_times_over_are_one_look_in_four():
    rng = np.random.default_rng(2)
    once = rng.random((2000, 30)) < 0.3
    # 60,000 looks, in blocks of ten: the ratio scatters by about 1 %.
    assert look_of(np.repeat(once, 4, axis=0), np.arange(8000) // 40) == pytest.approx(4, rel=0.06)


def test_independent_rounds_are_one_look_each():
    states = np.random.default_rng(3).random((4000, 30)) < 0.3
    assert look_of(states, np.arange(4000) // 50) == pytest.approx(1, abs=0.06)


def test_clients_observed_briefly_still_show_that_presence_lasts():
    rng = np.random.default_rng(4)
    states = np.repeat(rng.random((1000, 300)) < 0.3, 4, axis=0).astype(int)
    # Everybody is known in two or three of a hundred blocks; a last client is always there.
    for client, start in enumerate(rng.integers(0, 3920, size=300)):
        states[:start, client] = states[start + 80 :, client] = UNKNOWN
    states = np.column_stack([states, np.ones(4000, dtype=int)])
    # Some 800 counts scatter by √(2/800), 5 %.
    assert look_of(states, np.arange(4000) // 40) == pytest.approx(4, rel=0.15)


def test_alternating_clients_tell_no_more_than_a_look_a_round():
    assert look_of([[1, 0], [0, 1]] * 20, np.arange(40) // 4) == 1.0


@pytest.mark.parametrize(
    ("states", "block"),
    [
        ([[1, 0], [0, 1], [1, 1]], [0, 0, 0]),
        ([[1, 0]], [0]),
        ([[1, 0], [1, 0]], [0, 1]),
        ([[1, 2], [1, 2]], [0, 1]),
        # The second client is known in the first block alone.
        ([[1, 1], [1, 0], [1, 2], [1, 2]], [0, 0, 1, 1]),
    ],
    ids=["one block", "one round", "always the same", "never known", "known in one block"],
)
def test_look_is_one_where_nothing_can_be_told(states, block):
    assert look_of(states, block) == 1.0


@pytest.mark.parametrize("states", [[[1, 0]], [[1, 0], [1, 0]], [[1, 2], [1, 2]]])
def test_dispersion_is_one_where_nothing_can_be_told(states):
    assert behaviour_of(states).dispersion == 1.0


def test_independent_clients_have_dispersion_one():
    states = np.random.default_rng(5).random((4000, 30)) < np.linspace(0.1, 0.9, 30)
    # The variance of 4,000 counts scatters by √(2/4000), some 2 %.
    assert behaviour_of(states).dispersion == pytest.approx(1, abs=0.1)


def test_clients_that_come_all_together_have_their_number_as_dispersion():
    states = np.repeat([[1], [0], [1], [0]], 7, axis=1)
    assert behaviour_of(states).dispersion == pytest.approx(7, rel=ROUNDING)


def test_cohorts_of_one_size_have_no_dispersion():
    assert behaviour_of([[1, 0, 1], [0, 1, 1], [1, 1, 0]]).dispersion == pytest.approx(0, abs=1e-12)


def test_dispersion_is_that_of_numpy_where_all_is_known():
    states = np.random.default_rng(6).integers(0, 2, size=(40, 5))
    share = states.mean(axis=0)
    expected = states.sum(axis=1).var() / (share * (1 - share)).sum()
    present = compressed(states == PRESENT)
    assert dispersion(present, None) == pytest.approx(expected, rel=ROUNDING)


def test_a_log_without_times_has_no_hours():
    found = behaviour_of([[1, 0], [0, 1]], groups=("all",), group_of=np.array([0, 0]))
    assert found.by_hour is None
    assert found.by_weekday is None
    assert found.groups_by_hour is None
    assert not found.dated


def test_an_hour_has_the_mean_of_its_rounds_the_empty_ones_included():
    states = [[1, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 0]]
    found = behaviour_of(states, times=[7200, 9000, 7200 + 86_400, 0])
    expected = np.full(24, np.nan)
    expected[[0, 2]] = [2, 4 / 3]
    np.testing.assert_allclose(found.by_hour, expected, rtol=ROUNDING)


def test_the_hours_of_a_clock_of_its_own_start_at_its_zero_and_have_no_weekdays():
    found = behaviour_of([[1], [1]], times=[-1, 3600 * 49])
    assert np.flatnonzero(np.isfinite(found.by_hour)).tolist() == [1, 23]
    assert found.by_weekday is None
    assert not found.dated


def test_a_log_of_less_than_a_day_has_no_number_for_the_other_hours():
    found = behaviour_of([[1]] * 10, times=MONDAY + np.arange(10) * 1800)
    assert np.flatnonzero(np.isfinite(found.by_hour)).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(np.isfinite(found.by_weekday)).tolist() == [0]


def test_weekdays_run_from_monday_to_sunday():
    states = np.tri(7, dtype=int)  # one client on the first day, seven on the last
    found = behaviour_of(states, times=MONDAY + 86_400 * np.arange(7) + 3600 * 13)
    assert found.dated
    np.testing.assert_allclose(found.by_weekday, np.arange(1, 8), rtol=ROUNDING)
    assert found.by_hour[13] == pytest.approx(4, rel=ROUNDING)


def test_who_was_asked_is_not_taken_for_all_who_were_available():
    asked = np.ones((2, 3), dtype=bool)
    found = behaviour_of([[1, 0, 0], [0, 1, 0]], times=[0, 0], available=asked, complete=False)
    assert not found.of_available
    assert found.by_hour[0] == 1.0


def test_counts_are_of_those_available_where_the_log_tells():
    available = np.ones((2, 3), dtype=bool)
    found = behaviour_of([[1, 0, 0], [0, 1, 0]], times=[0, 0], available=available)
    assert found.of_available
    assert found.by_hour[0] == pytest.approx(3, rel=ROUNDING)


def test_counts_are_of_those_who_took_part_where_it_does_not():
    found = behaviour_of([[1, 0, 0], [0, 1, 0]], times=[0, 0])
    assert not found.of_available
    assert found.by_hour[0] == pytest.approx(1, rel=ROUNDING)


def test_a_client_that_is_not_known_is_taken_to_be_there_like_the_others():
    # Of seven known client-rounds four are present; nine client-rounds are three rounds of three.
    states = [[1, 2, 1], [0, 1, 2], [1, 0, 0]]
    found = behaviour_of(states, times=[0, 0, 0])
    assert found.by_hour[0] == pytest.approx(3 * 4 / 7, rel=ROUNDING)


def test_an_hour_in_which_nobody_is_known_has_no_number():
    found = behaviour_of(
        [[1, 0], [2, 2]], times=[0, 3600], groups=("a", "b"), group_of=np.array([0, 1])
    )
    assert np.isnan(found.by_hour[1])
    assert np.isnan(found.groups_by_hour[:, 1]).all()


@given(logs(), st.data())
def test_groups_by_hour_are_the_means_of_their_clients_alone(log, data):
    states, _ = log
    n_rounds, n_clients = states.shape
    hours = data.draw(st.lists(st.integers(0, 60), min_size=n_rounds, max_size=n_rounds))
    group_of = np.arange(n_clients) % 2
    times, groups = 3600.0 * np.array(hours), ("even", "odd", "nobody")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(behaviour, "SLAB", 3)
        found = behaviour_of(states, times=times, groups=groups, group_of=group_of)
    for group in range(2):
        mine = states[:, group_of == group]
        for hour in range(24):
            cells = mine[np.array(hours) % 24 == hour]
            known = (cells != UNKNOWN).sum()
            expected = mine.shape[1] * (cells == PRESENT).sum() / known if known else np.nan
            got = found.groups_by_hour[group, hour]
            assert got == pytest.approx(expected, rel=ROUNDING, nan_ok=True)
    assert np.isnan(found.groups_by_hour[2]).all()


def test_without_groups_there_are_none_by_hour():
    assert behaviour_of([[1]], times=[0]).groups_by_hour is None


def test_look_is_that_of_the_blocks_given():
    states = np.repeat(np.random.default_rng(7).random((25, 6)) < 0.5, 4, axis=0)
    states[~states.any(axis=1), 0] = True
    federation = federation_of(states.astype(int))
    for length in (10, 20):
        block = np.arange(100) // length
        expected = looped_look(states.astype(int), block)
        assert described(federation, block).rounds_per_observation == pytest.approx(
            expected, rel=ROUNDING
        )


def test_look_leaves_empty_rounds_out_and_dispersion_does_not():
    states = np.array([[1, 0], [0, 0], [0, 1], [0, 0]])
    found = described(federation_of(states), np.array([0, 1]))
    assert found.dispersion == pytest.approx(looped_dispersion(states), rel=ROUNDING)
    assert found.rounds_per_observation == looped_look(states[[0, 2]], np.array([0, 1]))


def test_each_half_of_the_log_has_its_own_shares():
    found = behaviour_of([[1, 0], [1, 1], [0, 1], [0, 1]])
    np.testing.assert_allclose(found.implied_first_half, [0.75, 0.25], rtol=ROUNDING)
    np.testing.assert_allclose(found.implied_last_half, [0.0, 1.0], rtol=ROUNDING)
    assert found.drift.value == pytest.approx(0.75, rel=ROUNDING)


@pytest.mark.parametrize(
    ("times", "dated"),
    [
        ([MONDAY, MONDAY + 60], True),
        ([0.0, 60.0], False),
        ([0.0, MONDAY], False),
        ([1000 * MONDAY], False),
        ([], False),
    ],
    ids=["seconds since 1970", "own clock", "one of them 1970", "milliseconds", "no rounds"],
)
def test_dates_are_told_from_other_clocks_by_their_size(times, dated):
    assert is_dated(np.array(times)) is dated
