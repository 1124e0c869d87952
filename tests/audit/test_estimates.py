"""Intervals hold what is true as often as they say, whatever noise does to the figure itself."""

import numpy as np
import pytest

import fedavot as fa
from fedavot.audit.federation import Federation
from fedavot.audit.statistics.estimates import (
    Weighted,
    blocks_of,
    chance,
    distance,
    resampling,
)
from fedavot.audit.statistics.window import whole
from logs import drawn, log_of, plain_gap

SEEDS = range(100)
LEAST_HELD = 90
"""Of 100 seeds. The intervals are meant to hold 95, and are careful where noise has no sign."""


def plain(federation, times=None):
    window = whole(federation)
    blocks = resampling(blocks_of(times, window.n_rounds), np.random.default_rng(0))
    return Weighted(window, window.plain(), blocks)


def spread(n_clients, sigma, seed=1):
    rates = 5 / n_clients * np.exp(np.random.default_rng(seed).normal(0, sigma, n_clients))
    return fa.IndependentClients(np.clip(rates, 0, 0.9))


LAWS = {
    "aligned": (spread(40, 0.0), 400),
    "mild": (spread(40, 0.3), 400),
    "strong": (spread(40, 1.0), 400),
    "many clients, few rounds": (spread(300, 0.5), 150),
    "day and night": (
        fa.Mixture(
            [
                fa.IndependentClients(np.repeat([0.5, 0.05], 10)),
                fa.IndependentClients(np.repeat([0.1, 0.3], 10)),
            ],
            [0.5, 0.5],
        ),
        300,
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_true_gap_of_the_plain_average_is_in_its_interval(name):
    law, rounds = LAWS[name]
    even = fa.importance.uniform(law.n_clients)
    true = plain_gap(law, even)
    found = [distance(plain(drawn(law, even, rounds, seed))) for seed in SEEDS]
    assert sum(one.low <= true <= one.high for one in found) >= LEAST_HELD
    assert all(one.low <= one.value <= one.high for one in found)


def test_an_interval_tells_a_large_gap_from_none():
    law, rounds = LAWS["strong"]
    even = fa.importance.uniform(law.n_clients)
    true = plain_gap(law, even)
    found = [distance(plain(drawn(law, even, rounds, seed))) for seed in range(20)]
    assert min(one.low for one in found) > 0.6 * true
    assert max(one.high for one in found) < 1.3 * true


def test_noise_alone_is_not_taken_for_a_gap():
    law, rounds = LAWS["many clients, few rounds"]
    # What the plain average optimises is the importance itself: whatever shows is noise.
    importance = law.expected_weights(np.zeros(law.n_clients))
    found = [distance(plain(drawn(law, importance, rounds, seed))) for seed in range(40)]
    assert min(one.value for one in found) > 0.1
    assert sum(one.low == 0.0 for one in found) >= 36


def test_a_longer_log_narrows_the_interval():
    law, _ = LAWS["mild"]
    even = fa.importance.uniform(law.n_clients)
    short, long = (distance(plain(drawn(law, even, rounds, 3))) for rounds in (200, 5000))
    assert long.high - long.low < (short.high - short.low) / 2


def test_rounds_that_repeat_one_another_widen_the_interval():
    law, _ = LAWS["mild"]
    even = fa.importance.uniform(law.n_clients)
    cohorts = law.sample(np.random.default_rng(0), 60)
    sticky = [cohort for cohort in cohorts for _ in range(20)]
    fresh = law.sample(np.random.default_rng(0), 1200)
    wide, narrow = (
        distance(plain(Federation(log_of(rows, law.n_clients), even))) for rows in (sticky, fresh)
    )
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_a_handful_of_rounds_says_nothing_of_the_long_run():
    federation = Federation(log_of([[0], [1], [0]], 2), np.array([0.5, 0.5]))
    found = distance(plain(federation))
    assert found.value == pytest.approx(1 / 6)
    assert (found.low, found.high) == (0.0, 1.0)


def test_blocks_are_days_where_a_log_has_ten_of_them():
    times = np.arange(12 * 24) * 3600.0
    assert np.bincount(blocks_of(times, times.size)).tolist() == [24] * 12
    assert np.bincount(blocks_of(times[:48], 48))[0] == 8
    # Five days a week apart are five days, however far the last is from the first.
    mondays = (times[:120] % 86_400) + np.repeat(np.arange(5), 24) * 7 * 86_400
    assert np.bincount(blocks_of(mondays, 120))[0] == 12


def test_a_client_is_owed_nothing_while_its_state_is_unknown():
    # Client 1 is there in every round it is known in, and known in every second one.
    cohorts = [[0, 1], [0]] * 50
    unknown = [[], [1]] * 50
    federation = Federation(log_of(cohorts, 2, unknown=unknown), np.array([0.5, 0.5]))
    window = whole(federation)
    assert window.owed.tolist() == pytest.approx([0.75, 0.25])
    assert distance(plain(federation)).value == pytest.approx(0.0)
    offline = Federation(log_of(cohorts, 2), np.array([0.5, 0.5]))
    assert distance(plain(offline)).value == pytest.approx(0.25)


def blocks(window):
    return resampling(blocks_of(None, window.n_rounds), np.random.default_rng(0))


def halves(federation):
    window = whole(federation)
    middle = window.n_rounds // 2
    parts = [window.part(np.arange(middle)), window.part(np.arange(middle, window.n_rounds))]
    return [Weighted(part, part.plain(), blocks(part)) for part in parts]


def test_drift_is_held_by_its_interval_and_none_is_not_taken_for_some():
    rates = np.random.default_rng(2).uniform(0.05, 0.5, 20)
    early, late = fa.IndependentClients(rates), fa.IndependentClients(rates[::-1])
    even = fa.importance.uniform(20)
    shares = [law.expected_weights(np.zeros(20)) for law in (early, late)]
    true = float(np.abs(shares[0] - shares[1]).sum() / 2)
    held = none = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        turned = early.sample(rng, 200) + late.sample(rng, 200)
        found = distance(*halves(Federation(log_of(turned, 20), even)))
        held += found.low <= true <= found.high
        none += distance(*halves(drawn(early, even, 400, seed))).low == 0.0
    assert held >= LEAST_HELD
    assert none >= LEAST_HELD


@pytest.mark.parametrize("name", LAWS)
def test_chance_is_the_mean_gap_of_weights_that_have_none_in_the_long_run(name):
    law, rounds = LAWS[name]
    # What the plain average tends to is owed, so that all of its gap is chance.
    owed = law.expected_weights(np.zeros(law.n_clients))
    logs = [plain(drawn(law, owed, rounds, seed)) for seed in range(20)]
    found = np.mean([distance(one).value for one in logs])
    # Twenty gaps scatter by 5 %; clients that a short log never shows have no spread, some 13 %.
    assert np.mean([chance(one) for one in logs]) == pytest.approx(found, rel=0.2)


def test_of_a_few_rounds_chance_is_not_known():
    law = spread(20, 0.3)
    short = plain(drawn(law, fa.importance.uniform(20), 4, 0))
    assert np.isnan(chance(short))
