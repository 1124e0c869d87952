"""Whichever way Newton's direction is found, the same alignment is reached, as quickly."""

import itertools

import numpy as np
import pytest

import fedavot as fa
from agreement import close
from fedavot.solve import direction, newton
from fedavot.solve.direction import logarithmic_mean
from fedavot.solve.dual import DualProblem
from strategies import normalised

TOL = 1e-10
# Potentials follow marginals that are exact to 1e-10, where clients have at least 1e-3 of weight.
SAME_POTENTIALS = 1e-6
# Rows of a product law's factors are within 2 % of the Hessian's.
APPROXIMATE = 0.05


def chain(n_clients):
    rng = np.random.default_rng(1)
    pairs = list(itertools.pairwise(range(n_clients)))
    return fa.Cohorts([*pairs, [0, 1, 2]], rng.dirichlet(np.ones(n_clients)), n_clients)


def random_log(n_clients, n_cohorts):
    rng = np.random.default_rng(2)
    order = np.argsort(rng.random((n_cohorts, n_clients)), axis=1)
    rows = [row[: rng.integers(1, 6)] for row in order]
    return fa.Cohorts(rows, rng.dirichlet(np.ones(n_cohorts)), n_clients)


LISTED = {"chain": chain(60), "log": random_log(40, 120)}
PRODUCT = {
    "independent": fa.IndependentClients(np.linspace(0.1, 0.8, 14)),
    "uniform": fa.UniformCohorts(14, 4),
    "mixture": fa.Mixture(
        [fa.IndependentClients(np.linspace(0.7, 0.2, 14)), fa.UniformCohorts(14, 3)], [0.4, 0.6]
    ),
}
WAYS = {
    "sparse factor": (LISTED, ((direction, "_FEW_CLIENTS", 0),)),
    "conjugate gradients": (LISTED, ((newton, "DENSE_CLIENTS", 0),)),
    "dense factors": (PRODUCT, ((direction, "_EXACT_CLIENTS", 0),)),
}


@pytest.mark.parametrize("softness", [0.0, 0.3], ids=["exact", "soft"])
@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for way, (laws, _) in WAYS.items() for name in laws]
)
def test_every_way_to_the_direction_leads_to_the_same_alignment(way, name, softness, monkeypatch):
    laws, limits = WAYS[way]
    law = laws[name]
    x = np.random.default_rng(5).normal(0.0, 0.5, law.n_clients)
    importance = normalised(law.expected_weights(x))
    options = {"softness": softness, "method": "newton", "tol": TOL}
    usual = fa.align(importance, law, **options)
    for module, limit, value in limits:
        monkeypatch.setattr(module, limit, value)
    other = fa.align(importance, law, **options)
    assert usual.status == other.status == ("soft" if softness else "exact")
    assert np.ptp(other.potentials - usual.potentials) <= SAME_POTENTIALS
    # A direction that is only about right takes a few steps more, a wrong one many.
    counts = sorted([usual.iterations, other.iterations])
    assert counts[1] <= 2 * counts[0] + 2


def direction_at(x, law, target):
    """Return Newton's direction at potentials x, everybody free."""
    everyone, parts = np.ones(x.size, dtype=bool), np.zeros(x.size, dtype=np.int64)
    problem = DualProblem(law.system(), target, everyone, ~everyone, parts)
    point = problem.system.curvature(x)
    return direction.newton_direction(problem, point, target - point.marginal, None, 1_500)


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_low_rank_has_about_the_direction_of_the_exact_matrix(spread, monkeypatch):
    rng = np.random.default_rng(6)
    law = fa.IndependentClients(rng.uniform(0.01, 0.3, 250))
    x, target = spread * rng.normal(size=250), law.expected_weights(np.zeros(250))
    low_rank = direction_at(x, law, target)
    monkeypatch.setattr(direction, "_EXACT_CLIENTS", 1_000)
    exact = direction_at(x, law, target)
    assert np.ptp(low_rank - exact) <= APPROXIMATE * np.abs(exact).max()


@pytest.mark.parametrize(("chance", "wanted"), [(0.1, 0.3), (1e-9, 0.5), (0.7, 1e-9)])
def test_a_client_alone_in_its_cohort_gets_the_step_of_a_sweep(chance, wanted):
    law = fa.Cohorts([[0, 1], [0, 1, 2], [0, 2], [3]], [*[(1.0 - chance) / 3] * 3, chance])
    target = np.array([*[(1.0 - wanted) / 3] * 3, wanted])
    found = direction_at(np.array([0.0, 1.0, -1.0, 0.5]), law, target)
    assert found[3] == pytest.approx(np.clip(np.log(wanted / chance), -8.0, 8.0), rel=1e-9)
    assert np.isfinite(found).all()


def test_a_singular_system_gets_its_least_norm_solution():
    laplacian = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, -1e-20]])
    found = direction.solve_dense(laplacian, np.array([1.0, -1.0, 0.0]))
    assert close(found, [0.5, -0.5, 0.0])


@pytest.mark.parametrize("right", [1e-30, 7.0])
@pytest.mark.parametrize("ratio", [1.0, 1.0 + 1e-9, 1.0009, 1.5, 1e6, 1e-6])
def test_the_logarithmic_mean_is_the_mean_of_all_geometric_means(ratio, right):
    places, weights = np.polynomial.legendre.leggauss(60)
    wanted = right * (0.5 * weights) @ np.exp(0.5 * (places + 1.0) * np.log(ratio))
    left, right = np.array([ratio * right]), np.array([right])
    for found in (logarithmic_mean(left, right), logarithmic_mean(right, left)):
        assert found[0] == pytest.approx(wanted, rel=1e-7)
