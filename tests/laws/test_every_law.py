"""Laws that hold for every availability law alike."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agreement
import fedavot as fa
from agreement import EXACT, close
from strategies import LAWS as KINDS
from strategies import (
    any_law,
    enumerate_cohorts,
    importances,
    independent_laws,
    levels,
    permutations,
    potentials,
    uniform_laws,
)

ROUNDS = 20_000
LAWS = {
    "cohorts": fa.Cohorts([[0, 3], [2, 1, 0], [3]], [0.5, 0.3, 0.2], n_clients=5),
    "uniform": fa.UniformCohorts(5, 2),
    "independent": fa.IndependentClients([0.3, 0.0, 0.9, 0.2]),
    "almost always empty": fa.IndependentClients([1e-9, 2e-9]),
    "somebody is always there": fa.IndependentClients([0.2, 1.0, 0.6]),
    "successive": fa.SuccessiveDraws([1.0, 2.0, 0.0, 5.0], 2),
    "mixture": fa.Mixture(
        [fa.IndependentClients([0.1, 0.2, 0.0]), fa.UniformCohorts(3, 2)], [0.7, 0.3]
    ),
}
laws = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def law_and(*strategies):
    """Draw a law together with values of as many entries as it has clients."""
    return any_law().flatmap(
        lambda law: st.tuples(st.just(law), *(make(law.n_clients) for make in strategies))
    )


def relabelled(law, order):
    """Return the law in which client k is called order[k]."""
    match law:
        case fa.UniformCohorts():
            return law
        case fa.IndependentClients():
            return fa.IndependentClients(law.probabilities[np.argsort(order)])
        case fa.SuccessiveDraws():
            return fa.SuccessiveDraws(law.rates[np.argsort(order)], law.size)
        case fa.Cohorts():
            ends = law.incidence.offsets
            rows = [order[law.incidence.members[a:b]] for a, b in itertools.pairwise(ends)]
            return fa.Cohorts(rows, law.probabilities, law.n_clients)
        case fa.Mixture():
            weights = law.probabilities / [part.nonempty for part in law.laws]
            parts = [relabelled(part, order) for part in law.laws]
            return fa.Mixture(parts, weights / weights.sum())
    raise TypeError(law)


@every_kind
@given(data=st.data())
def test_expected_weights_and_curvature_equal_enumeration(kind, data):
    law = data.draw(KINDS[kind])
    cohorts = enumerate_cohorts(law)
    x, level = data.draw(potentials(law.n_clients)), data.draw(levels(law.n_clients))
    agreement.check_weights(law, cohorts, x, level)
    agreement.check_curvature(law, cohorts, x, level)


@every_kind
@given(data=st.data())
def test_inclusion_and_the_coverage_of_sets_and_prefixes_equal_enumeration(kind, data):
    law = data.draw(KINDS[kind])
    cohorts = enumerate_cohorts(law)
    agreement.check_inclusion(law, cohorts)
    agreement.check_coverages(law, cohorts)
    agreement.check_prefixes(law, cohorts, data.draw(permutations(law.n_clients)))


@pytest.mark.parametrize("kind", ["uniform", "independent"])
@given(data=st.data())
def test_a_prefix_of_the_worst_order_is_as_bad_as_any_set(kind, data):
    law = data.draw(KINDS[kind])
    importance = data.draw(importances(law.n_clients))
    agreement.check_worst_order(law, enumerate_cohorts(law), importance)


@settings(max_examples=15)
@given(st.one_of(uniform_laws(12), independent_laws(12)), st.data())
def test_expected_weights_of_twelve_clients_equal_enumeration(law, data):
    x, level = data.draw(potentials(law.n_clients)), data.draw(levels(law.n_clients))
    agreement.check_weights(law, enumerate_cohorts(law), x, level)


@laws
def test_a_seed_is_no_generator(law):
    with pytest.raises(fa.errors.OptionError, match=r"rng is 0; .*default_rng"):
        law.sample(0, 3)


@laws
def test_nobody_is_covered_with_probability_zero_and_no_sign(law):
    assert str(law.coverage([])) == "0.0"


@given(law_and(potentials, levels))
def test_expected_weights_are_a_distribution(case):
    law, x, level = case
    weights = law.expected_weights(x, level)
    assert weights.shape == (law.n_clients,)
    assert weights.min() >= 0
    assert abs(weights.sum() - 1.0) <= EXACT


@given(law_and(potentials, levels), st.integers(-(2**14), 2**14))
def test_adding_a_constant_to_all_potentials_changes_nothing(case, constant):
    law, x, level = case
    # Multiples of 1/1024 stay exact when the constant is added, so that only the law can differ.
    x = np.round(x * 1024) / 1024
    assert close(law.expected_weights(x + constant, level), law.expected_weights(x, level))


@given(law_and(potentials, levels, permutations))
def test_relabelling_the_clients_permutes_the_expected_weights(case):
    law, x, level, order = case
    back = np.argsort(order)
    moved = relabelled(law, order).expected_weights(x[back], None if level is None else level[back])
    assert close(moved[order], law.expected_weights(x, level))


@given(law_and(lambda n: potentials(n, (1.0, 30.0)), levels))
def test_levels_are_the_limit_of_potentials_far_apart(case):
    law, x, level = case
    far = x if level is None else x - 1000.0 * level
    assert close(law.expected_weights(far), law.expected_weights(x, level))


@given(law_and(potentials, lambda n: levels(n).filter(lambda level: level is not None)))
def test_levels_matter_through_their_order_alone(case):
    law, x, level = case
    assert close(law.expected_weights(x, 5 * level - 7), law.expected_weights(x, level))


@laws
def test_potentials_at_the_ends_of_the_floats_act_as_levels(law):
    x = 1e308 * np.linspace(-1.0, 1.0, law.n_clients)
    wanted = law.expected_weights(np.zeros(law.n_clients), np.arange(law.n_clients)[::-1])
    assert close(law.expected_weights(x), wanted)


@given(law_and(lambda n: potentials(n, (3.0,)), levels))
def test_the_rows_of_the_hessian_sum_to_zero(case):
    law, x, level = case
    rows = law.system(level).curvature(x).dense().sum(axis=1)
    assert close(rows, np.zeros(law.n_clients))


@given(any_law())
def test_only_independent_clients_leave_rounds_without_anybody(law):
    empty = 1.0 - law.nonempty
    parts = law.laws if isinstance(law, fa.Mixture) else [law]
    if not any(isinstance(part, fa.IndependentClients) for part in parts):
        assert abs(empty) <= EXACT
    elif isinstance(law, fa.IndependentClients):
        assert abs(empty - np.prod(1.0 - law.probabilities)) <= EXACT


@laws
def test_cohorts_are_drawn_as_often_as_their_probability_says(law):
    drawn = [frozenset(cohort.tolist()) for cohort in law.sample(np.random.default_rng(3), ROUNDS)]
    wanted = enumerate_cohorts(law)
    assert set(drawn) <= set(wanted)
    for cohort, chance in wanted.items():
        error = np.sqrt(float(chance) * (1.0 - float(chance)) / ROUNDS)
        # Four standard errors, and one round for cohorts too rare to expect.
        assert abs(drawn.count(cohort) / ROUNDS - float(chance)) <= 4 * error + 1 / ROUNDS


@laws
def test_drawn_cohorts_have_distinct_members_in_ascending_order(law):
    for cohort in law.sample(np.random.default_rng(4), 200):
        assert cohort.dtype == np.int64
        assert np.all(np.diff(cohort) > 0)


@laws
def test_the_same_seed_draws_the_same_cohorts(law):
    first, again, other = (law.sample(np.random.default_rng(seed), 300) for seed in (5, 5, 6))
    assert [cohort.tolist() for cohort in first] == [cohort.tolist() for cohort in again]
    assert [cohort.tolist() for cohort in first] != [cohort.tolist() for cohort in other]


@laws
def test_drawing_no_rounds_gives_no_cohorts(law):
    assert law.sample(np.random.default_rng(0), 0) == []
