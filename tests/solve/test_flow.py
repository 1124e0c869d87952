"""Both ways to a maximum flow saturate the same minimum cut."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa
from fedavot._incidence import Incidence
from fedavot.solve import _flow
from fedavot.solve._flow import UNITS, by_ortools, by_scipy


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


@pytest.mark.parametrize("solve", [by_scipy, by_ortools] if find_spec("ortools") else [by_scipy])
@given(network=networks())
def test_a_flow_is_maximal(solve, network):
    incidence, supply, demand = network
    assert_maximal(incidence, supply, demand, solve(*network))


def test_units_of_sixty_bits_are_not_rounded():
    incidence = Incidence(np.array([0, 1], dtype=np.int32), np.array([0, 2]), 2)
    supply, demand = np.array([UNITS / 2, UNITS / 4 + 512]), np.array([UNITS / 2 + 512])
    flow = by_scipy(incidence, supply, demand)
    assert_maximal(incidence, supply, demand, flow)
    assert flow.sent.sum() == demand[0]


def test_without_ortools_levels_are_the_same(monkeypatch):
    rng = np.random.default_rng(3)
    law = fa.Cohorts([rng.permutation(12)[:3] for _ in range(20)], n_clients=12)
    importance = rng.dirichlet(np.full(12, 0.3))
    before = fa.certify(importance, law)
    monkeypatch.setattr(_flow, "find_spec", lambda name: None)
    monkeypatch.setattr(_flow, "by_ortools", None)
    assert np.array_equal(fa.certify(importance, law).deficient, before.deficient)
    assert np.array_equal(
        fa.align(importance, law, objective="variance").levels,
        fa.align(importance, law).levels,
    )
