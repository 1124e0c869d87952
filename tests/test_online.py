"""Without softness the online aligner telescopes, and forgets long absences."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa

ROUNDING = 1e-11
"""Room for a few thousand additions to sums of the order of a hundred."""
REFERENCE = 1e-12
"""How closely the aligner and the reference must agree over some hundred rounds."""

exact = partial(fa.OnlineAligner, softness=0, around="equal")


def forgiven(aligner):
    """Return what absences beyond the bound have not added."""
    return aligner.potentials - aligner.effective_potentials


def linear_importance(n_clients):
    shares = np.arange(n_clients, 0, -1.0)
    return shares / shares.sum()


class Witness:
    """Drive an aligner and sum importance and weights by itself, one round at a time."""

    def __init__(self, aligner):
        self.aligner = aligner
        self.owed, self.given = np.zeros((2, aligner.n_clients))

    def observe(self, cohort, weights=None):
        shares = self.aligner.weights(cohort) if weights is None else weights
        self.owed += self.aligner.importance
        self.given[cohort] += shares
        np.testing.assert_allclose(self.aligner.observe(cohort, weights), shares, rtol=1e-15)

    def extend(self, n_new):
        self.owed, self.given = (np.append(each, np.zeros(n_new)) for each in self.sums)

    @property
    def sums(self):
        return self.owed, self.given

    def assert_telescopes(self, step):
        moved = self.aligner.potentials - self.aligner.initial_potentials
        np.testing.assert_allclose(self.owed - self.given, moved / step, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(self.aligner.owed, self.owed, atol=ROUNDING)
        realised = self.given / self.aligner.rounds
        np.testing.assert_allclose(self.aligner.realised, realised, atol=ROUNDING)


class Reference:
    """Update client by client, as the module's docstring says."""

    def __init__(self, importance, step, bound):
        self.importance, self.step, self.bound = importance, step, bound
        self.raw, self.effective, self.credit = np.zeros((3, importance.size))
        self.aside = np.zeros(importance.size, dtype=bool)
        self.reports = 0

    def observe(self, cohort):
        present = np.isin(np.arange(self.importance.size), cohort)
        odds = np.where(present, np.exp(self.effective - self.effective[present].max()), 0.0)
        weights = odds / odds.sum()
        self.aside &= ~present
        rate = 1 / max(self.importance[~self.aside].sum(), 1e-6)
        self.raw += self.step * (self.importance - weights)
        gained = self.credit + self.step * self.importance * rate
        gained = np.minimum(gained, self.bound) - self.credit
        moved = self.step * (self.importance * rate - weights)
        self.effective += np.where(present, moved, gained)
        self.credit = np.where(present, 0.0, self.credit + gained)
        self.reports += len(cohort)
        if self.reports >= self.importance.size:
            # At the bound to rounding: increments summed one by one do not meet it exactly.
            self.aside = self.credit >= self.bound * (1 - 1e-13)
            self.reports = 0


def drawn_cohorts(seed, n_clients, rounds):
    """Return cohorts of one to four clients, some clients being away for long stretches."""
    rng = np.random.default_rng(seed)
    cohorts = []
    for now in range(rounds):
        here = np.arange(n_clients)[(np.arange(n_clients) * 7 + now // 60) % 5 > 1]
        cohorts.append(rng.permutation(here)[: rng.integers(1, 5)])
    return cohorts


@st.composite
def aligners_and_cohorts(draw):
    """Draw an aligner (zero importance and far potentials included) and cohorts for it."""
    n_clients = draw(st.integers(1, 8))
    odds = draw(st.lists(st.integers(0, 9), min_size=n_clients, max_size=n_clients))
    odds = np.array(odds, dtype=float) if any(odds) else np.ones(n_clients)
    spread = st.lists(st.floats(-40, 40), min_size=n_clients, max_size=n_clients)
    step, bound = draw(st.floats(0.01, 10)), draw(st.none() | st.floats(0.1, 10))
    potentials = draw(st.none() | spread)
    aligner = exact(odds / odds.sum(), step=step, potentials=potentials, bound=bound)
    members = st.lists(st.integers(0, n_clients - 1), min_size=1, unique=True)
    return aligner, step, draw(st.lists(members, min_size=1, max_size=40))


@given(aligners_and_cohorts())
def test_the_identity_holds_for_any_sequence_of_cohorts(case):
    aligner, step, cohorts = case
    witness = Witness(aligner)
    for cohort in cohorts:
        witness.observe(cohort)
    witness.assert_telescopes(step)


def test_the_identity_holds_across_joins_and_leaves():
    witness, rng = Witness(exact(linear_importance(6), step=0.3)), np.random.default_rng(4)
    for stage in range(5):
        for _ in range(150):
            witness.observe(rng.permutation(witness.aligner.n_clients)[:2])
        if stage % 2:
            witness.aligner.leave([stage])
        else:
            witness.extend(witness.aligner.join([0.1, 0.05]).size)
    witness.assert_telescopes(0.3)


@pytest.mark.parametrize("seed", range(4))
def test_the_aligner_equals_the_reference(seed):
    importance = np.random.default_rng(seed).dirichlet(np.ones(20))
    aligner, reference = exact(importance, step=0.41, bound=2.3), Reference(importance, 0.41, 2.3)
    for cohort in drawn_cohorts(seed, 20, 600):
        aligner.observe(cohort)
        reference.observe(cohort)
        effective = aligner.effective_potentials
        np.testing.assert_allclose(effective, reference.effective, rtol=0, atol=REFERENCE)
        np.testing.assert_allclose(aligner.potentials, reference.raw, rtol=0, atol=REFERENCE)
    assert forgiven(aligner).max() > 1, "the case must meet the bound to test it"


def test_on_uniform_pairs_the_realised_gap_is_at_most_four_fifths_of_the_offline_plans():
    importance, law = linear_importance(100), fa.UniformCohorts(100, 2)
    offline, gaps = fa.align(importance, law), []
    for seed in range(5):
        cohorts, total = law.sample(np.random.default_rng(seed), 4_000), np.zeros(100)
        aligners = [
            exact(importance, step=4.0, potentials=start) for start in (None, offline.potentials)
        ]
        for cohort in cohorts:
            total[cohort] += offline.weights(cohort)
            for aligner in aligners:
                aligner.observe(cohort)
        means = [total / 4_000, *(aligner.realised for aligner in aligners)]
        gaps.append([np.abs(mean - importance).sum() / 2 for mean in means])
    fixed, online, warm = np.mean(gaps, axis=0)
    assert online <= 0.8 * fixed
    assert warm < online


def after_an_absence(bound):
    """Let client 0, of importance 0.1 among ten, be away for 20,000 rounds; step 0.2."""
    aligner, rng = exact(np.full(10, 0.1), step=0.2, bound=bound), np.random.default_rng(0)
    for _ in range(20_000):
        aligner.observe(1 + rng.permutation(9)[:2])
    return aligner


def test_a_client_back_from_a_long_absence_does_not_take_the_round():
    aligner = after_an_absence(3.0)
    # Odds of e^3 for its own credit, the rest for what the others move among themselves.
    assert 0.9 < max(aligner.weights([0, other])[0] for other in range(1, 10)) < 0.98
    assert aligner.effective_potentials[0] == pytest.approx(3.0, abs=1e-12)
    # What was forgiven does not come back.
    missed = forgiven(aligner)[0]
    assert missed == pytest.approx(0.2 * 0.1 * 20_000 - 3.0, abs=1e-8)
    effective = aligner.effective_potentials[0]
    weight = aligner.observe([0, 1])[0]
    # Back, it moves by the plain step again, the importance of everyone counting.
    moved = aligner.effective_potentials[0] - effective
    assert moved == pytest.approx(0.2 * (0.1 - weight), abs=1e-12)
    assert forgiven(aligner)[0] == pytest.approx(missed, abs=1e-8)


def test_a_bound_below_five_steps_is_raised_to_five_steps():
    assert exact([1.0], step=2.0, bound=1.0).bound == 10.0
    assert exact([1.0], step=0.1, bound=1.0).bound == 1.0
    assert exact([1.0], step=2.0, bound=None).bound is None


def test_joining_does_not_cut_an_absence_short():
    aligner = exact([0.5, 0.25, 0.25], step=0.2)
    for now in range(400):
        if now == 20:
            aligner.join(0.01)
        aligner.observe([1, 2])
    assert aligner.effective_potentials[0] == pytest.approx(3.0, abs=1e-12)


@pytest.mark.parametrize("change", [lambda a: a.join(0.4), lambda a: a.leave([2])])
def test_joins_and_leaves_rescale_what_is_set_aside(change):
    aligner = exact([0.4, 0.3, 0.2, 0.1], step=0.2)
    for _ in range(400):
        aligner.observe([1, 2, 3])
    change(aligner)
    here = np.flatnonzero(aligner.importance[1:]) + 1
    before = aligner.effective_potentials[here].sum()
    aligner.observe(here)
    # Client 0 is set aside: the others are owed one round between them, and are given one.
    assert aligner.effective_potentials[here].sum() == pytest.approx(before, abs=1e-12)


def test_selections_counted_as_given_bring_the_realised_weights_to_the_importance():
    importance, rng = linear_importance(10), np.random.default_rng(14)
    aligner = exact(importance, step=1.0)
    for _ in range(2000):
        here = np.flatnonzero(rng.random(10) < np.linspace(0.9, 0.5, 10))
        if here.size:
            chosen, shares = fa.select(aligner.weights(here), 3, rng)
            aligner.observe(here[chosen], shares)
    assert np.abs(aligner.realised - importance).sum() / 2 < 0.01
