"""Every way to the Newton direction solves the same linear system."""

import itertools

import numpy as np
import pytest

import brute
import fedavot as fa
from agreement import close
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._laplacian import Factored
from fedavot.solve import direction
from fedavot.solve.direction import logarithmic_mean
from fedavot.solve.dual import DualProblem, Pull
from strategies import enumerate_cohorts, normalised

# Largest error, relative to the longest entry: matrices here have condition numbers up to 1e8.
SOLVED = 1e-7
# The same for a product law's factors, whose rows are within 2 % of the Hessian's.
APPROXIMATE = 0.05
SOFTNESS = 0.3


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
    "blocks": lambda step: direction._by_blocks(step, step.point.dense()),
    "blocks without the matrix": lambda step: direction._by_blocks(step, None),
    "sparse factor": direction._by_sparse_factor,
}
pulls = pytest.mark.parametrize("softness", [0.0, SOFTNESS], ids=["exact", "soft"])
listed = pytest.mark.parametrize("law", LISTED.values(), ids=LISTED)
products = pytest.mark.parametrize("law", PRODUCT.values(), ids=PRODUCT)
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def step_of(law, target, x, softness=0.0):
    """Return a step of Newton's method at potentials x, everybody free."""
    parts = np.zeros(law.n_clients, dtype=np.int64)
    free = np.ones(law.n_clients, dtype=bool)
    problem = DualProblem(law.system(), target, free, ~free, parts)
    point = problem.system.curvature(x)
    pull = Pull(softness, target, parts) if softness else None
    gradient = target - point.marginal
    extra = direction._extra(problem, point.marginal, gradient, pull)
    return direction._Step(problem, point, gradient, extra, pulled=pull is not None), pull


def one_step(law, softness=0.0):
    """Return a step at random potentials, and the whole matrix of its system."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=law.n_clients)
    target = normalised(law.expected_weights(rng.normal(0.0, 0.5, law.n_clients)))
    step, _ = step_of(law, target, x, softness)
    return step, brute.hessian(enumerate_cohorts(law), x) + np.diag(step.extra)


def error(found, wanted):
    """Return the error of potentials' differences: constants do not count."""
    return np.ptp(found - wanted) / np.abs(wanted).max()


@pulls
@ways
@listed
def test_listed_cohorts_have_the_direction_of_the_explicit_matrix(law, way, softness):
    step, matrix = one_step(law, softness)
    assert error(way(step), np.linalg.solve(matrix, step.gradient)) <= SOLVED


@pulls
@products
def test_a_product_laws_exact_hessian_has_the_direction_of_the_explicit_matrix(law, softness):
    step, matrix = one_step(law, softness)
    found = WAYS["blocks"](step)
    assert error(found, np.linalg.solve(matrix, step.gradient)) <= SOLVED


@pulls
@pytest.mark.parametrize("few", [200, 0], ids=["dense", "low rank"])
@products
def test_a_product_laws_factors_have_about_the_same_direction(monkeypatch, law, few, softness):
    step, matrix = one_step(law, softness)
    monkeypatch.setattr(direction, "_FEW_CLIENTS", few)
    found = direction._by_factors(step, step.point.factors())
    assert error(found, np.linalg.solve(matrix, step.gradient)) <= APPROXIMATE


@pulls
def test_low_rank_solves_the_matrix_of_its_own_factors(softness):
    rng = np.random.default_rng(6)
    law = fa.IndependentClients(rng.uniform(0.01, 0.3, 250))
    step, pull = step_of(law, law.expected_weights(np.zeros(250)), rng.normal(size=250), softness)
    assert isinstance(step.point, Factored)
    (factor,) = step.point.factors()
    joint = (factor.columns * factor.signs) @ factor.columns.T
    np.fill_diagonal(joint, 0.0)
    matrix = np.diag(joint.sum(axis=1) + step.extra) - joint
    assert factor.signs.size < 200
    found = direction.newton_direction(step.problem, step.point, step.gradient, pull, 1500)
    assert error(found, np.linalg.solve(matrix, step.gradient)) <= SOLVED


@pytest.mark.parametrize("dense", [5_000, 100, 0])
@pytest.mark.parametrize("law", [random_log(250, 2_000), chain(250)], ids=["log", "chain"])
def test_however_many_may_be_factorised_a_step_brings_the_target_near(monkeypatch, law, dense):
    monkeypatch.setattr(direction, "DENSE_CLIENTS", 100)
    monkeypatch.setattr(ExplicitSystem, "is_sparse", False)
    step, _ = step_of(law, law.expected_weights(np.linspace(0.0, 1e-3, 250)), np.zeros(250))
    gradient = step.gradient
    found = direction.newton_direction(step.problem, step.point, gradient, None, dense)
    assert found @ gradient > 0.0
    # Conjugate gradients alone take as many steps as a chain is long.
    if dense == 5_000 or law.n_cohorts > 250:
        assert np.abs(gradient - step.point.dense() @ found).sum() <= 0.1 * np.abs(gradient).sum()


def test_clients_that_are_not_free_do_not_move():
    step, matrix = one_step(LISTED["log"])
    free = np.arange(40) % 3 > 0
    problem = DualProblem(
        step.problem.system, step.problem.target, free, ~free, np.zeros(40, dtype=np.int64)
    )
    gradient = np.where(free, step.gradient, 0.0)
    held = direction._Step(problem, step.point, gradient, step.extra, pulled=False)
    wanted = np.linalg.solve(matrix[np.ix_(free, free)], gradient[free])
    for way in (WAYS["blocks"], WAYS["sparse factor"]):
        found = way(held)
        assert not found[~free].any()
        assert close(found[free], wanted, SOLVED * np.abs(wanted).max())


@pytest.mark.parametrize(("chance", "wanted"), [(0.1, 0.3), (0.3, 0.1), (1e-9, 0.5), (0.7, 1e-9)])
@ways
def test_a_client_alone_in_its_cohort_gets_the_step_of_a_sweep(way, chance, wanted):
    law = fa.Cohorts([[0, 1], [0, 1, 2], [0, 2], [3]], [*[(1.0 - chance) / 3] * 3, chance])
    target = np.array([*[(1.0 - wanted) / 3] * 3, wanted])
    found = way(step_of(law, target, np.array([0.0, 1.0, -1.0, 0.5]))[0])
    assert found[3] == pytest.approx(np.clip(np.log(wanted / chance), -8.0, 8.0), rel=1e-9)
    assert np.isfinite(found).all()


def test_a_singular_system_gets_its_least_norm_solution():
    laplacian = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, -1e-20]])
    found = direction.solve_dense(laplacian, np.array([1.0, -1.0, 0.0]))
    assert close(found, [0.5, -0.5, 0.0])


@pytest.mark.parametrize("right", [1e-30, 1e-3, 1.0, 7.0])
@pytest.mark.parametrize("ratio", [1.0, 1.0 + 1e-9, 1.0009, 1.0011, 1.5, 1e6, 1e-6, 0.3])
def test_the_logarithmic_mean_is_the_mean_of_all_geometric_means(ratio, right):
    places, weights = np.polynomial.legendre.leggauss(60)
    wanted = right * (0.5 * weights) @ np.exp(0.5 * (places + 1.0) * np.log(ratio))
    left, right = np.array([ratio * right]), np.array([right])
    # Within 0.1 % of each other they are given their plain mean, off by log² / 12.
    for found in (logarithmic_mean(left, right), logarithmic_mean(right, left)):
        assert found[0] == pytest.approx(wanted, rel=1e-7)
