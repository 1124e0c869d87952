"""Online weights of a log: what observing every round would give, in fewer steps."""

import numpy as np
import pytest

from fedavot._incidence import Incidence
from fedavot.audit import audit, federation_of, read_log
from fedavot.audit.statistics import online_weights as replay
from fedavot.audit.statistics.window import Window
from fedavot.online import STEP, OnlineAligner

AT_REST = 1e-6
"""Rounds that are filled in move a potential by up to 1e-10 each; they are some thousands."""

DAY = 86_400
YEAR = f"client,start,end\na,0,{365 * DAY}\nb,0,{200 * DAY}\nc,{100 * DAY},{365 * DAY}\n"


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
    start = np.log(np.where(np.asarray(importance) > 0, importance, 1.0))
    aligner = OnlineAligner(importance, step=STEP, potentials=start)
    return np.concatenate([aligner.observe(np.sort(cohort)) for cohort in cohorts])


@pytest.fixture
def observed(monkeypatch):
    """Count the rounds that are observed."""
    cohorts = []
    observe = OnlineAligner.observe

    def counting(self, cohort, given=None):
        cohorts.append(cohort)
        return observe(self, cohort, given)

    monkeypatch.setattr(OnlineAligner, "observe", counting)
    return cohorts


@pytest.mark.parametrize(
    "importance",
    [[1 / 3] * 3, [0.5, 0.3, 0.1, 0.1], [0.9, 0.1, 0.0], [0.99, 0.005, 0.005], [1.0]],
    ids=len,
)
@pytest.mark.parametrize("longest", [1, 7, 40, 800])
def test_replayed_weights_are_those_of_every_round_observed(importance, longest):
    cohorts = runs(np.random.default_rng(longest), len(importance), 12, longest)
    found = replay.learned(window(cohorts, importance))
    assert np.abs(found - one_by_one(cohorts, importance)).max() <= AT_REST


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
def test_a_run_ends_where_the_cohort_changes(monkeypatch, chunk):
    monkeypatch.setattr("fedavot.audit.statistics.window.CHUNK", chunk)
    cohorts = [[0, 1], [0, 1], [0, 2], [2], [2], [2], [0, 1, 2], [1, 2], [1, 2]]
    found = replay._runs(window([np.array(cohort) for cohort in cohorts], [0.4, 0.3, 0.3]))
    assert found.tolist() == [0, 2, 3, 6, 7, 9]


def test_rounds_at_rest_are_not_observed(observed):
    cohorts = [np.array([0, 1])] * 20_000 + [np.array([1, 2])] * 20_000
    replay.learned(window(cohorts, [0.4, 0.3, 0.3]))
    assert len(observed) <= 2_000


def test_a_year_of_three_intervals_takes_as_many_steps_whatever_the_period(tmp_path, observed):
    path = tmp_path / "year.csv"
    path.write_text(YEAR)
    for period in (3600, 900):
        observed.clear()
        found = audit(federation_of(read_log(path, period=period)))
        assert found.rounds == 365 * DAY // period
        assert len(observed) <= 2_000
        assert found.price.of("fedavot-variance") is not None
        assert not any("replayed" in note or "left out" in note for note in found.notes)


def test_only_the_last_rounds_are_replayed_where_cohorts_change_too_often(monkeypatch):
    monkeypatch.setattr("fedavot.audit.statistics.online_weights.MOST_REPLAYED", 50)
    rng = np.random.default_rng(0)
    cohorts = [np.sort(rng.permutation(6)[:3]) for _ in range(400)]
    log = window(cohorts, [1 / 6] * 6)
    first = replay.first_replayed(log)
    assert 350 <= first < 360
    found = replay.learned(log)
    assert found[: 3 * first].tolist() == [1 / 3] * 3 * first
    late = one_by_one(cohorts[first:], [1 / 6] * 6)
    np.testing.assert_allclose(found[3 * first :], late, atol=AT_REST)


def test_a_long_run_counts_for_no_more_rounds_than_it_takes_to_rest(monkeypatch):
    monkeypatch.setattr("fedavot.audit.statistics.online_weights.MOST_REPLAYED", 2_500)
    cohorts = [np.array([0])] * 5_000 + [np.array([0, 1])] * 5_000 + [np.array([1])] * 10
    assert replay.first_replayed(window(cohorts, [0.5, 0.5])) == 0
