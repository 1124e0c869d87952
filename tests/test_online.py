"""Without softness the online aligner telescopes, and forgets long absences."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa
from fedavot.errors import ImportanceError, OptionError

ROUNDING = 1e-11
"""Room for a few thousand additions to sums of the order of a hundred."""

REFERENCE = 1e-12
"""How closely the aligner and the reference must agree over some hundred rounds."""

exact = partial(fa.OnlineAligner, softness=0, around="equal")


def forgiven(aligner):
    """Return what absences beyond the bound have not added."""
    return aligner.potentials - aligner.effective_potentials


class Witness:
    """Drive an aligner and sum importance and weights by itself, one round at a time."""

    def __init__(self, aligner):
        self.aligner = aligner
        self.owed = np.zeros(aligner.n_clients)
        self.given = np.zeros(aligner.n_clients)

    def observe(self, cohort):
        self.owed += self.aligner.importance
        self.given[cohort] += self.aligner.weights(cohort)
        self.aligner.observe(cohort)

    def extend(self, n_new):
        self.owed = np.append(self.owed, np.zeros(n_new))
        self.given = np.append(self.given, np.zeros(n_new))

    def assert_telescopes(self, step):
        moved = self.aligner.potentials - self.aligner.initial_potentials
        np.testing.assert_allclose(self.owed - self.given, moved / step, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(self.aligner.owed, self.owed, atol=ROUNDING)
        np.testing.assert_allclose(
            self.aligner.realised, self.given / self.aligner.rounds, atol=ROUNDING
        )


class Reference:
    """Update client by client, as the module's docstring says."""

    def __init__(self, importance, step, bound):
        self.importance, self.step, self.bound = importance, step, bound
        self.raw = np.zeros(importance.size)
        self.effective = np.zeros(importance.size)
        self.credit = np.zeros(importance.size)
        self.aside = np.zeros(importance.size, dtype=bool)
        self.reports = 0

    def observe(self, cohort):
        present = np.isin(np.arange(self.importance.size), cohort)
        odds = np.where(present, np.exp(self.effective - self.effective[present].max()), 0.0)
        given = odds / odds.sum()
        self.aside &= ~present
        rate = 1 / max(self.importance[~self.aside].sum(), 1e-6)
        self.raw += self.step * (self.importance - given)
        gained = self.credit + self.step * self.importance * rate
        gained = np.minimum(gained, self.bound) - self.credit
        moved = self.step * (self.importance * rate - given)
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


def linear_importance(n_clients):
    shares = np.arange(n_clients, 0, -1.0)
    return shares / shares.sum()


@st.composite
def aligners_and_cohorts(draw):
    """Draw an aligner (zero importance and far potentials included) and cohorts for it."""
    n_clients = draw(st.integers(1, 8))
    odds = draw(st.lists(st.integers(0, 9), min_size=n_clients, max_size=n_clients))
    odds = np.array(odds, dtype=float) if any(odds) else np.ones(n_clients)
    spread = st.lists(st.floats(-40, 40), min_size=n_clients, max_size=n_clients)
    step = draw(st.floats(0.01, 10))
    aligner = exact(
        odds / odds.sum(),
        step=step,
        potentials=draw(st.none() | spread),
        bound=draw(st.none() | st.floats(0.1, 10)),
    )
    members = st.lists(st.integers(0, n_clients - 1), min_size=1, unique=True)
    return aligner, step, draw(st.lists(members, min_size=1, max_size=40))


@given(aligners_and_cohorts())
def test_the_identity_holds_for_any_sequence_of_cohorts(case):
    aligner, step, cohorts = case
    witness = Witness(aligner)
    for cohort in cohorts:
        witness.observe(cohort)
    witness.assert_telescopes(step)


@pytest.mark.parametrize("bound", [3.0, None])
def test_the_identity_holds_when_an_adversary_always_sends_the_lowest(bound):
    step = 0.5
    witness = Witness(exact(linear_importance(30), step=step, bound=bound))
    for _ in range(2_000):
        # Client 0, the most important, never appears.
        witness.observe(1 + np.argsort(witness.aligner.potentials[1:])[:3])
    witness.assert_telescopes(step)
    assert witness.given[0] == 0


def test_the_identity_holds_across_joins_and_leaves():
    step = 0.3
    witness = Witness(exact(linear_importance(6), step=step))
    rng = np.random.default_rng(4)
    for stage in range(5):
        for _ in range(150):
            witness.observe(rng.permutation(witness.aligner.n_clients)[:2])
        if stage % 2:
            witness.aligner.leave([stage])
        else:
            witness.extend(witness.aligner.join([0.1, 0.05]).size)
    witness.assert_telescopes(step)


@pytest.mark.parametrize("seed", range(4))
def test_the_aligner_equals_the_reference(seed):
    rng = np.random.default_rng(seed)
    importance = rng.dirichlet(np.ones(20))
    aligner = exact(importance, step=0.41, bound=2.3)
    reference = Reference(importance, 0.41, 2.3)
    for cohort in drawn_cohorts(seed, 20, 600):
        aligner.observe(cohort)
        reference.observe(cohort)
        effective = aligner.effective_potentials
        np.testing.assert_allclose(effective, reference.effective, rtol=0, atol=REFERENCE)
        np.testing.assert_allclose(aligner.potentials, reference.raw, rtol=0, atol=REFERENCE)
    assert forgiven(aligner).max() > 1, "the case must meet the bound to test it"


def test_weights_are_the_softmax_of_the_effective_potentials():
    aligner = exact([0.2, 0.3, 0.5], step=1, potentials=[1.0, 2.0, -1.0])
    odds = np.exp([2.0, -1.0])
    np.testing.assert_allclose(aligner.weights([1, 2]), odds / odds.sum(), rtol=1e-15)


def test_potentials_at_the_ends_of_the_floats_still_give_weights():
    aligner = exact([0.5, 0.5], step=1, potentials=[1e308, -1e308])
    assert aligner.weights([0, 1]).tolist() == [1.0, 0.0]


def offline_potentials(importance, pairs):
    """Maximise the dual over pairs by dense damped Newton, with nothing from the library."""
    n_clients = importance.size
    first, second = pairs.T
    potentials = np.zeros(n_clients)

    def dual(x):
        return importance @ x - np.logaddexp(x[first], x[second]).mean()

    for _ in range(50):
        wins = 1 / (1 + np.exp(potentials[second] - potentials[first]))
        attained = np.bincount(first, wins, n_clients) + np.bincount(second, 1 - wins, n_clients)
        gradient = importance - attained / len(pairs)
        if np.abs(gradient).sum() < 1e-12:
            return potentials - potentials.mean()
        laplacian = np.zeros((n_clients, n_clients))
        laplacian[first, second] = -wins * (1 - wins) / len(pairs)
        laplacian += laplacian.T
        laplacian -= np.diag(laplacian.sum(axis=1))
        # Only differences matter: the last potential stays, which makes the rest a regular system.
        move = np.append(np.linalg.solve(laplacian[:-1, :-1], gradient[:-1]), 0.0)
        size = 1.0
        while dual(potentials + size * move) < dual(potentials) + 0.25 * size * (gradient @ move):
            size /= 2
        potentials += size * move
    raise RuntimeError("the offline plan did not converge")


def test_on_uniform_pairs_the_realised_gap_is_at_most_four_fifths_of_the_offline_plans():
    n_clients, rounds, step = 100, 4_000, 4.0
    importance = linear_importance(n_clients)
    pairs = np.array(list(itertools.combinations(range(n_clients), 2)))
    offline = offline_potentials(importance, pairs)
    gaps = []
    for seed in range(5):
        cohorts = pairs[np.random.default_rng(seed).integers(len(pairs), size=rounds)]
        wins = 1 / (1 + np.exp(offline[cohorts[:, 1]] - offline[cohorts[:, 0]]))
        realised = [np.bincount(cohorts.ravel(), np.stack([wins, 1 - wins], 1).ravel()) / rounds]
        for start in (None, offline):
            aligner = exact(importance, step=step, potentials=start)
            for cohort in cohorts:
                aligner.observe(cohort)
            realised.append(aligner.realised)
        gaps.append([np.abs(each - importance).sum() / 2 for each in realised])
    fixed, online, warm = np.mean(gaps, axis=0)
    assert online <= 0.8 * fixed
    assert warm < online


def after_an_absence(bound, *, rounds=20_000):
    """Let client 0, of importance 0.1 among ten, be away for long; step 0.2."""
    aligner = exact(np.full(10, 0.1), step=0.2, bound=bound)
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        aligner.observe(1 + rng.permutation(9)[:2])
    return aligner


def test_a_client_back_from_a_long_absence_does_not_take_the_round():
    aligner = after_an_absence(3.0)
    # Odds of e^3 for its own credit, the rest for what the others move among themselves.
    assert 0.9 < max(aligner.weights([0, other])[0] for other in range(1, 10)) < 0.98
    assert aligner.effective_potentials[0] == pytest.approx(3.0, abs=1e-12)


def test_without_a_bound_it_takes_the_round():
    aligner = after_an_absence(None)
    assert aligner.weights([0, 1])[0] > 1 - 1e-12
    np.testing.assert_allclose(forgiven(aligner), 0.0, atol=1e-9)


def test_what_was_forgiven_does_not_come_back():
    aligner = after_an_absence(3.0)
    missed = forgiven(aligner)[0]
    assert missed == pytest.approx(0.2 * 0.1 * 20_000 - 3.0, abs=1e-8)
    effective = aligner.effective_potentials[0]
    weight = aligner.observe([0, 1])[0]
    # Back, it moves by the plain step again, the importance of everyone counting.
    moved = aligner.effective_potentials[0] - effective
    assert moved == pytest.approx(0.2 * (0.1 - weight), abs=1e-12)
    assert forgiven(aligner)[0] == pytest.approx(missed, abs=1e-8)


def test_while_a_client_is_set_aside_the_others_realise_its_share_in_proportion():
    importance = np.array([0.4, 0.3, 0.2, 0.1])
    aligner = exact(importance, step=0.1)
    for _ in range(3_000):
        aligner.observe([1, 2, 3])
    before = aligner.realised * 3_000
    for _ in range(3_000):
        aligner.observe([1, 2, 3])
    realised = (aligner.realised * 6_000 - before) / 3_000
    np.testing.assert_allclose(realised[1:], importance[1:] / 0.6, atol=1e-3)
    # Nobody is charged for what is forgiven: at most the bound was taken from the others in all.
    assert -3.5 < aligner.effective_potentials[1:].sum() < -2.5


def test_a_bound_below_five_steps_is_raised_to_five_steps():
    assert exact([1.0], step=2.0, bound=1.0).bound == 10.0
    assert exact([1.0], step=0.1, bound=1.0).bound == 1.0
    assert exact([1.0], step=2.0, bound=None).bound is None


def test_when_only_zero_importance_appears_everyone_else_waits_at_the_bound():
    aligner = exact([0.0, 0.5, 0.5], step=0.2)
    for _ in range(500):
        aligner.observe([0])
    assert aligner.effective_potentials[1:].tolist() == [3.0, 3.0]
    assert aligner.weights([1, 2]).tolist() == [0.5, 0.5]


def test_clients_who_leave_get_weight_only_among_themselves():
    aligner = exact([0.5, 0.25, 0.125, 0.125], step=0.1)
    aligner.leave([0, 3])
    np.testing.assert_allclose(aligner.importance, [0, 2 / 3, 1 / 3, 0], rtol=1e-15)
    assert aligner.weights([0, 1, 3])[1] == 1.0
    assert aligner.weights([0, 3]).tolist() == [0.5, 0.5]
    aligner.leave([0])
    np.testing.assert_allclose(aligner.importance, [0, 2 / 3, 1 / 3, 0], rtol=1e-15)


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


@pytest.mark.parametrize("step", [5e-324, 1e-300, 1e100, 1e300, 1e307, 1.7e308])
@pytest.mark.parametrize("bound", [None, 5e-324, 3.0, 1.7e308])
def test_weights_are_finite_and_saved_for_every_step_and_bound(tmp_path, step, bound):
    aligner = exact(
        [0.5, 0.3, 0.2 - 1e-12, 1e-12, 0.0],
        step=step,
        bound=bound,
        potentials=[1e308, -1e308, 0, 0, 0],
    )
    rng = np.random.default_rng(0)
    for at in range(60):
        # The last two are present by turns: absences of every length.
        cohort = np.flatnonzero(rng.random(5) < 0.4) if at % 3 else np.array([at % 2])
        if not cohort.size:
            continue
        weights = aligner.observe(cohort)
        assert (weights >= 0).all()
        assert abs(weights.sum() - 1) <= 1e-12
        if at == 30:
            aligner.join(0.1)
            aligner.leave([0])
        aligner.save(tmp_path / "aligner.json")
        loaded = fa.OnlineAligner.load(tmp_path / "aligner.json")
        assert loaded.state_dict() == aligner.state_dict()
    assert np.isfinite([aligner.potentials, aligner.effective_potentials]).all()


@pytest.mark.parametrize("start", [1.1e300, -1e305, 1.7e308])
def test_clients_who_join_beyond_the_largest_potential_stop_there(tmp_path, start):
    aligner = exact([0.5, 0.5], step=0.1)
    aligner.join([0.1, 0.1], [start, 0.0])
    assert aligner.effective_potentials[2] == np.copysign(1e300, start)
    np.testing.assert_array_equal(forgiven(aligner), np.zeros(4))
    aligner.save(tmp_path / "aligner.json")
    loaded = fa.OnlineAligner.load(tmp_path / "aligner.json")
    assert loaded.state_dict() == aligner.state_dict()


def test_a_huge_step_gives_whole_rounds_to_whom_they_are_owed():
    aligner = exact([0.5, 0.5], step=1e307, bound=None)
    for _ in range(40):
        aligner.observe([0])
    assert aligner.weights([0, 1]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("bound", [0, np.inf])
def test_a_bound_that_is_not_positive_and_finite_is_refused(bound):
    with pytest.raises(OptionError, match=f"bound is {float(bound)}"):
        exact([0.5, 0.5], step=1, bound=bound)


def test_not_everyone_with_importance_can_leave():
    aligner = exact([0.5, 0.5, 0.0], step=0.1)
    with pytest.raises(ImportanceError, match=r"clients \[0, 1\] \(2 in all\)"):
        aligner.leave([0, 1])
    assert aligner.importance.tolist() == [0.5, 0.5, 0.0]


def test_the_telescope_holds_for_whatever_weights_were_given():
    rng = np.random.default_rng(11)
    aligner = exact(linear_importance(12), step=0.7)
    owed, total = np.zeros(12), np.zeros(12)
    for cohort in drawn_cohorts(12, 12, 300):
        shares = rng.dirichlet(np.ones(len(cohort)))
        np.testing.assert_allclose(aligner.observe(cohort, shares), shares, rtol=1e-15)
        owed += aligner.importance
        total[cohort] += shares
    np.testing.assert_allclose(aligner.realised, total / 300, atol=ROUNDING)
    np.testing.assert_allclose(aligner.potentials, 0.7 * (owed - total), atol=ROUNDING)


def test_selections_counted_as_given_bring_the_realised_weights_to_the_importance():
    importance = linear_importance(10)
    aligner = exact(importance, step=1.0)
    rng = np.random.default_rng(14)
    for _ in range(2000):
        here = np.flatnonzero(rng.random(10) < np.linspace(0.9, 0.5, 10))
        if here.size:
            chosen, shares = fa.select(aligner.weights(here), 3, rng)
            aligner.observe(here[chosen], shares)
    assert np.abs(aligner.realised - importance).sum() / 2 < 0.01
