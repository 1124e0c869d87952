"""Online weights of a log: what observing its rounds gives."""

import numpy as np
import pytest

from fedavot._incidence import Incidence
from fedavot.audit.statistics import rules as replay
from fedavot.audit.statistics.window import Window
from fedavot.online import OnlineAligner


def window(cohorts, importance):
    """Return rounds of these cohorts."""
    keys = np.concatenate([t * len(importance) + np.sort(c) for t, c in enumerate(cohorts)])
    incidence = Incidence.of_keys(keys, len(cohorts), len(importance))
    return Window(incidence, np.arange(len(cohorts)), np.asarray(importance), None)


def runs(rng, n_clients, n_runs, longest):
    """Return cohorts that stay for a while each."""
    drawn = [
        [np.sort(rng.permutation(n_clients)[: rng.integers(1, n_clients + 1)])]
        * int(rng.integers(1, longest + 1))
        for _ in range(n_runs)
    ]
    return [cohort for run in drawn for cohort in run]


def one_by_one(cohorts, importance):
    """Return the weights of every round, each observed."""
    aligner = OnlineAligner(importance, softness=0)
    return np.concatenate([aligner.observe(np.sort(cohort)) for cohort in cohorts])


@pytest.mark.parametrize(
    "importance",
    [[1 / 3] * 3, [0.5, 0.3, 0.1, 0.1], [0.9, 0.1, 0.0], [0.99, 0.005, 0.005], [1.0]],
    ids=len,
)
@pytest.mark.parametrize("longest", [1, 40])
def test_replayed_weights_are_those_of_every_round_observed(importance, longest):
    cohorts = runs(np.random.default_rng(longest), len(importance), 12, longest)
    found = replay.learned(window(cohorts, importance))
    np.testing.assert_array_equal(found, one_by_one(cohorts, importance))


def test_only_the_last_rounds_are_replayed_of_a_long_log(monkeypatch):
    monkeypatch.setattr("fedavot.audit.statistics.rules.MOST_REPLAYED", 50)
    rng = np.random.default_rng(0)
    cohorts = [np.sort(rng.permutation(6)[:3]) for _ in range(400)]
    log = window(cohorts, [1 / 6] * 6)
    first = replay.first_replayed(log)
    assert first == 350
    found = replay.learned(log)
    assert found[: 3 * first].tolist() == [1 / 3] * 3 * first
    late = one_by_one(cohorts[first:], [1 / 6] * 6)
    np.testing.assert_array_equal(found[3 * first :], late)
