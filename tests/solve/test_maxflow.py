"""Splitting by max-flow ends at the levels that the search finds, and at those of brute force."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot._incidence import Incidence
from fedavot.laws.successive import explicit_cohorts
from fedavot.solve import maxflow
from fedavot.solve.levels import one_level
from fedavot.solve.maxflow import (
    UNITS,
    maximum_flow,
    split_by_flow,
)
from strategies import enumerate_cohorts, explicit_laws, importances, normalised, successive_laws

# L1; flows are whole multiples of 2^-50, and alignments are solved to this tolerance.
ATTAINED = 1e-9
# L1; levels are read off exactly, so only ratios tied to within rounding are left open.
BASE = 1e-10

sizes = pytest.mark.parametrize(
    ("n_clients", "n_cohorts"), [(30, 100), (40, 150), (50, 250), (60, 400)]
)
skews = pytest.mark.parametrize("skew", [0.3, 1.0, 2.5])


def random_problem(n_clients, n_cohorts, skew):
    """Return ragged cohorts of mostly popular clients, and an importance skewed by e^±skew."""
    rng = np.random.default_rng([n_clients, n_cohorts, int(10 * skew)])
    popularity = rng.gumbel(size=n_clients) * 0.5
    noise = rng.gumbel(size=(n_cohorts, n_clients))
    order = np.argsort(-(popularity + noise), axis=1)
    members = [row[: rng.integers(1, 5)].tolist() for row in order]
    importance = np.exp(skew * rng.normal(size=n_clients))
    law = fa.Cohorts(members, rng.dirichlet(np.ones(n_cohorts)), n_clients)
    return importance / importance.sum(), law


def by_flow(importance, law):
    return split_by_flow(
        importance, explicit_cohorts(law), one_level(importance, law), np.zeros(importance.size)
    )


@sizes
@skews
def test_flow_and_search_attain_the_same(n_clients, n_cohorts, skew):
    importance, law = random_problem(n_clients, n_cohorts, skew)
    alignment = fa.align(importance, law, tol=ATTAINED / 2)
    assert alignment.status == "nearest"
    assert np.abs(by_flow(importance, law).target - alignment.attained).sum() <= ATTAINED


@pytest.mark.parametrize("tiny", [1e-10, 1e-11, 1e-12])
def test_flow_after_a_sweep_that_met_its_target_still_ends_at_potentials_that_do(tiny):
    """Clients of next to no importance leave the residual small while levels still change."""
    members = [[0, 2], [0, 1, 2, 3, 4, 5], [1], [2, 3, 4, 5], [0, 1, 2, 4, 5]]
    law = fa.Cohorts(members)
    importance = normalised([6 * tiny, 0.001156, 0.245958, 4 * tiny, 0.604567, 0.148319])
    alignment = fa.align(importance, law, tol=ATTAINED)
    cohorts = enumerate_cohorts(law)
    attained = brute.expected_weights(cohorts, alignment.potentials, alignment.levels)
    base = brute.lexicographic_base(importance, cohorts)
    assert np.abs(attained - base.attained).sum() <= 2 * ATTAINED


@settings(max_examples=80)
@given(explicit_laws(8) | successive_laws(), st.data())
def test_flow_attains_the_lexicographically_optimal_base(law, data):
    importance = data.draw(importances(law.n_clients))
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert np.abs(by_flow(importance, law).target - base.attained).sum() <= BASE


@settings(max_examples=40)
@given(explicit_laws(8), st.data())
def test_splitting_what_is_split_changes_nothing(law, data):
    importance = data.draw(importances(law.n_clients))
    once = by_flow(importance, law)
    again = split_by_flow(importance, explicit_cohorts(law), once, np.zeros(importance.size))
    assert np.array_equal(once.levels, again.levels)
    assert np.array_equal(once.target, again.target)


def exact_base(importance, cohorts, probabilities):
    """Return what each client attains over what it is wanted for, in exact arithmetic.

    Of all sets with the least coverage per importance the union is taken, contracted, and so on.
    """
    p = [Fraction(value) for value in importance.tolist()]
    q = [Fraction(value) for value in probabilities.tolist()]
    rows = [sum(1 << int(client) for client in cohort) for cohort in cohorts]
    left, ratios = (1 << len(p)) - 1, [Fraction(0)] * len(p)
    while left:
        best, level = None, 0
        for subset in range(1, left + 1):
            if subset & ~left:
                continue
            wanted = sum(value for i, value in enumerate(p) if subset >> i & 1)
            reached = (v for row, v in zip(rows, q, strict=True) if row & subset)
            ratio = sum(reached, Fraction(0)) / wanted
            if best is None or ratio < best:
                best, level = ratio, subset
            elif ratio == best:
                level |= subset
        for client in (i for i in range(len(p)) if level >> i & 1):
            ratios[client] = best
        q = [value for row, value in zip(rows, q, strict=True) if not row & level]
        rows = [row for row in rows if not row & level]
        left &= ~level
    return np.array([float(ratio) for ratio in ratios])


def members_of(law):
    ends = law.incidence.offsets
    return [law.incidence.members[a:b] for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("n_clients", [2, 5, 40])
@pytest.mark.parametrize("scrambled", [False, True])
def test_nested_cohorts_fall_into_all_their_levels(n_clients, scrambled):
    names = np.arange(n_clients)
    if scrambled:
        names = np.random.default_rng(4).permutation(n_clients)
    law = fa.Cohorts([names[: last + 1] for last in range(n_clients)])
    parts = by_flow(np.full(n_clients, 1.0 / n_clients), law)
    # The last client of the chain is in one cohort only, the last two are in two, and so on: all
    # those sets are tight.
    assert np.array_equal(parts.levels[names], np.arange(n_clients)[::-1])
    assert np.allclose(parts.ratios, 1.0, rtol=1e-12, atol=0.0)
    assert np.allclose(parts.target, 1.0 / n_clients, rtol=1e-12, atol=0.0)


def test_nested_cohorts_out_of_reach_fall_into_all_their_levels():
    importance = normalised(2.0 ** np.arange(12.0))
    law = fa.Cohorts([list(range(last + 1)) for last in range(12)])
    parts = by_flow(importance, law)
    wanted = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert parts.levels.tolist() == list(range(12))[::-1]
    assert np.allclose(parts.target, wanted.attained, rtol=1e-12, atol=0.0)


def test_importance_over_twelve_orders_takes_few_flows(monkeypatch):
    rng = np.random.default_rng(5)
    law = fa.Cohorts([np.unique(row) for row in rng.integers(0, 700, (7_000, 5))], n_clients=700)
    importance = normalised(10.0 ** (-12 * rng.random(700) ** 3))
    flows = []
    monkeypatch.setattr(
        maxflow, "maximum_flow", lambda *given: flows.append(1) or maximum_flow(*given)
    )
    found = fa.align(importance, law)
    assert found.status == "nearest"
    assert found.levels.max() > 100
    # If tiny clients moved by one level with every flow, it would take 31.
    assert len(flows) <= 15


@pytest.mark.parametrize("seed", range(25))
def test_importance_of_1e_24_attains_its_share_of_the_base_in_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(row) for row in rng.random((8, 6)) < 0.35]
    members = [cohort for cohort in members if cohort.size] + [np.arange(6)]
    law = fa.Cohorts(members, rng.dirichlet(np.ones(len(members))), 6)
    importance = rng.dirichlet(np.ones(6))
    importance[rng.permutation(6)[: rng.integers(1, 4)]] *= 1e-24
    importance /= importance.sum()
    ratios = exact_base(importance, members_of(law), law.probabilities)
    parts = by_flow(importance, law)
    assert np.allclose(parts.target / importance, ratios, rtol=1e-8, atol=0.0)


def assert_maximal(incidence, supply, demand, flow):
    """Check capacities, conservation, and that the cut is saturated in whole units."""
    exact = [int(value) for value in flow.sent]
    assert all(0 <= sent <= int(most) for sent, most in zip(exact, supply, strict=True))
    carried = [int(value) for value in flow.carried]
    assert min(carried, default=0) >= 0
    by_client, by_cohort = [0] * incidence.n_clients, [0] * incidence.n_cohorts
    rows = incidence.spread_over_members(np.arange(incidence.n_cohorts))
    for member, row, amount in zip(incidence.members, rows, carried, strict=True):
        by_client[member] += amount
        by_cohort[row] += amount
    assert by_client == exact
    assert all(taken <= int(most) for taken, most in zip(by_cohort, demand, strict=True))
    met = {
        int(row)
        for member, row in zip(incidence.members, rows, strict=True)
        if flow.reached[member]
    }
    cut = sum(int(supply[client]) for client in np.flatnonzero(~flow.reached))
    cut += sum(int(demand[row]) for row in met)
    assert sum(exact) == cut


@st.composite
def networks(draw):
    n_clients = draw(st.integers(1, 8))
    cohorts = draw(
        st.lists(st.sets(st.integers(0, n_clients - 1), min_size=1), min_size=1, max_size=10)
    )
    members = np.concatenate([sorted(cohort) for cohort in cohorts]).astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum([len(cohort) for cohort in cohorts])))
    powers = st.integers(0, 44).map(lambda bits: float(2**bits))
    units = st.builds(lambda a, b: float(int(a * b)), powers, st.floats(0, 2**8))
    supply = draw(st.lists(units, min_size=n_clients, max_size=n_clients))
    demand = draw(st.lists(units, min_size=len(cohorts), max_size=len(cohorts)))
    return Incidence(members, offsets, n_clients), np.array(supply), np.array(demand)


@given(network=networks())
def test_a_flow_is_maximal(network):
    incidence, supply, demand = network
    assert_maximal(incidence, supply, demand, maximum_flow(*network))


def test_units_of_sixty_bits_are_not_rounded():
    incidence = Incidence(np.array([0, 1], dtype=np.int32), np.array([0, 2]), 2)
    supply, demand = np.array([UNITS / 2, UNITS / 4 + 512]), np.array([UNITS / 2 + 512])
    flow = maximum_flow(incidence, supply, demand)
    assert_maximal(incidence, supply, demand, flow)
    assert flow.sent.sum() == demand[0]
