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
from fedavot.solve._numeric import logarithmic_mean
from fedavot.solve._problem import DualProblem, Pull
from strategies import enumerate_cohorts, normalised

SOLVED = 1e-7
"""Largest error, relative to the longest entry: matrices here have condition numbers up to 1e8."""
APPROXIMATE = 0.05
"""The same for a product law's factors, whose rows are within 2 % of the Hessian's."""
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


def few_large_cohorts(n_clients, n_cohorts):
    rng = np.random.default_rng(3)
    members = rng.random((n_cohorts, n_clients)) < 0.4
    members[0] = True
    return fa.Cohorts([np.flatnonzero(row) for row in members], n_clients=n_clients)


LISTED = {
    "chain": chain(60),
    "log": random_log(40, 120),
    "few large cohorts": few_large_cohorts(50, 20),
}
PRODUCT = {
    "independent": fa.IndependentClients(np.linspace(0.1, 0.8, 14)),
    "uniform": fa.UniformCohorts(14, 4),
    "mixture": fa.Mixture(
        [fa.IndependentClients(np.linspace(0.7, 0.2, 14)), fa.UniformCohorts(14, 3)], [0.4, 0.6]
    ),
}
WAYS = {
    "blocks": direction._by_blocks,
    "large blocks": direction._by_large_blocks,
    "sparse factor": direction._by_sparse_factor,
}
pulls = pytest.mark.parametrize("softness", [0.0, SOFTNESS], ids=["exact", "soft"])
listed = pytest.mark.parametrize("law", LISTED.values(), ids=LISTED)
products = pytest.mark.parametrize("law", PRODUCT.values(), ids=PRODUCT)
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def one_step(law, softness=0.0, seed=5):
    """Return a step of Newton's method at random potentials, and the whole matrix of its system."""
    rng = np.random.default_rng(seed)
    n_clients = law.n_clients
    x = rng.normal(size=n_clients)
    target = normalised(law.expected_weights(rng.normal(0.0, 0.5, n_clients)))
    parts = np.zeros(n_clients, dtype=np.int64)
    nobody = np.zeros(n_clients, dtype=bool)
    problem = DualProblem(law.system(), target, ~nobody, nobody, parts)
    point = problem.system.curvature(x)
    pull = Pull(softness, target, parts) if softness else None
    gradient = target - point.marginal
    extra = direction._extra(problem, point, gradient, pull)
    step = direction._Step(problem, point, gradient, extra, pulled=pull is not None)
    return step, brute.hessian(enumerate_cohorts(law), x) + np.diag(extra)


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
@listed
def test_the_cohorts_side_has_the_direction_of_the_explicit_matrix(law, softness):
    step, matrix = one_step(law, softness)
    found = direction._by_cohorts(step, step.point.roots().matrix(), np.arange(law.n_clients))
    assert error(found, np.linalg.solve(matrix, step.gradient)) <= SOLVED


def test_large_parts_with_fewer_cohorts_than_clients_are_solved_on_the_cohorts_side(monkeypatch):
    step, matrix = one_step(LISTED["few large cohorts"])
    calls, original = [], direction._by_cohorts
    monkeypatch.setattr(direction, "_FEW_CLIENTS", 10)
    monkeypatch.setattr(
        direction, "_by_cohorts", lambda *given: calls.append(1) or original(*given)
    )
    found = direction._by_large_blocks(step)
    assert calls
    assert error(found, np.linalg.solve(matrix, step.gradient)) <= SOLVED


@pulls
@products
def test_a_product_laws_exact_hessian_has_the_direction_of_the_explicit_matrix(law, softness):
    step, matrix = one_step(law, softness)
    found = direction._by_blocks(step)
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
    x = rng.normal(size=250)
    target, parts = law.expected_weights(np.zeros(250)), np.zeros(250, dtype=np.int64)
    nobody = np.zeros(250, dtype=bool)
    problem = DualProblem(law.system(), target, ~nobody, nobody, parts)
    point = problem.system.curvature(x)
    pull = Pull(softness, target, parts) if softness else None
    gradient = target - point.marginal
    assert isinstance(point, Factored)
    (factor,) = point.factors()
    joint = (factor.columns * factor.signs) @ factor.columns.T
    np.fill_diagonal(joint, 0.0)
    extra = direction._extra(problem, point, gradient, pull)
    matrix = np.diag(joint.sum(axis=1) + extra) - joint
    assert factor.signs.size < 200
    found = direction.newton_direction(problem, point, gradient, pull, 1500)
    assert error(found, np.linalg.solve(matrix, gradient)) <= SOLVED


@pulls
def test_conjugate_gradients_come_as_close_as_the_gradient_asks(softness):
    step, matrix = one_step(LISTED["log"], softness)
    # The closer to the optimum, the closer they solve: the square root of the gradient's norm.
    small = direction._Step(
        step.problem, step.point, 1e-18 * step.gradient, step.extra, step.pulled
    )
    wanted = np.linalg.solve(matrix, step.gradient)
    assert error(direction._by_conjugate_gradients(small)[0], 1e-18 * wanted) <= SOLVED
    rough, _ = direction._by_conjugate_gradients(step)
    left, scale = step.gradient - matrix @ rough, matrix.diagonal()
    assert left @ (left / scale) <= 0.011 * (step.gradient @ (step.gradient / scale))


@pulls
def test_conjugate_gradients_descend_along_a_chain(softness):
    step, matrix = one_step(LISTED["chain"], softness)
    found, _ = direction._by_conjugate_gradients(step)
    assert found @ step.gradient > 0.0
    assert found @ matrix @ found <= 2.0 * (found @ step.gradient)


@pulls
@pytest.mark.parametrize(
    ("law", "dense", "way"),
    [
        (chain(250), 1500, "_by_sparse_factor"),
        (LISTED["log"], 1500, "_by_blocks"),
        (LISTED["log"], 0, "_by_conjugate_gradients"),
        (random_log(250, 2_000), 1500, "_by_blocks"),
        (random_log(250, 2_000), 100, "_by_conjugate_gradients"),
        (fa.UniformCohorts(30, 4), 1500, "_by_blocks"),
        (fa.UniformCohorts(60, 4), 1500, "_by_factors"),
        (fa.UniformCohorts(60, 4), 0, "_by_factors"),
    ],
)
def test_the_way_is_chosen_by_size_and_structure(monkeypatch, law, dense, way, softness):
    taken = []
    for name in ("_by_blocks", "_by_sparse_factor", "_by_factors", "_by_conjugate_gradients"):
        original = getattr(direction, name)
        monkeypatch.setattr(
            direction,
            name,
            lambda *given, name=name, original=original: taken.append(name) or original(*given),
        )
    target = np.full(law.n_clients, 1.0 / law.n_clients)
    parts = np.zeros(law.n_clients, dtype=np.int64)
    nobody = np.zeros(law.n_clients, dtype=bool)
    problem = DualProblem(law.system(), target, ~nobody, nobody, parts)
    point = problem.system.curvature(np.zeros(law.n_clients))
    pull = Pull(softness, target, parts) if softness else None
    direction.newton_direction(problem, point, target - point.marginal, pull, dense)
    assert taken == [way]


@pytest.mark.parametrize(
    ("law", "ways"),
    [
        (random_log(250, 2_000), ["_by_conjugate_gradients"]),
        # Its chain takes as many steps as it is long.
        (chain(250), ["_by_conjugate_gradients", "_by_large_blocks"]),
    ],
    ids=["log", "chain"],
)
def test_many_clients_are_factorised_only_where_conjugate_gradients_fail(monkeypatch, law, ways):
    taken = []
    for name in ("_by_blocks", "_by_large_blocks", "_by_conjugate_gradients"):
        original = getattr(direction, name)
        monkeypatch.setattr(
            direction,
            name,
            lambda *given, name=name, original=original: taken.append(name) or original(*given),
        )
    monkeypatch.setattr(direction, "DENSE_CLIENTS", 100)
    monkeypatch.setattr(ExplicitSystem, "is_sparse", False)
    nobody, parts = np.zeros(250, dtype=bool), np.zeros(250, dtype=np.int64)
    x = np.linspace(0.0, 1e-3, 250)
    problem = DualProblem(law.system(), law.expected_weights(x), ~nobody, nobody, parts)
    point = problem.system.curvature(np.zeros(250))
    gradient = problem.target - point.marginal
    found = direction.newton_direction(problem, point, gradient, None, 5_000)
    assert taken == ways
    left = gradient - point.dense() @ found
    assert np.abs(left).sum() <= 0.1 * np.abs(gradient).sum()


def test_parts_that_do_not_meet_are_solved_apart():
    law = fa.Cohorts([[0, 1], [2, 3, 4], [3, 4], [1, 0]], [0.3, 0.3, 0.2, 0.2])
    parts = np.array([0, 0, 1, 1, 1])
    nobody = np.zeros(5, dtype=bool)
    target = np.array([0.2, 0.3, 0.1, 0.2, 0.2])
    problem = DualProblem(law.system(), target, ~nobody, nobody, parts)
    point = problem.system.curvature(np.zeros(5))
    gradient = target - point.marginal
    extra = direction._extra(problem, point, gradient, None)
    step = direction._Step(problem, point, gradient, extra, pulled=False)
    matrix = brute.hessian(enumerate_cohorts(law), np.zeros(5)) + np.diag(extra)
    wanted = np.linalg.solve(matrix, gradient)
    for way in WAYS.values():
        found = way(step)
        for part in (0, 1):
            assert error(found[parts == part], wanted[parts == part]) <= SOLVED


def test_clients_that_are_not_free_do_not_move():
    step, matrix = one_step(LISTED["log"])
    free = np.arange(40) % 3 > 0
    problem = DualProblem(
        step.problem.system, step.problem.target, free, ~free, np.zeros(40, dtype=np.int64)
    )
    gradient = np.where(free, step.gradient, 0.0)
    held = direction._Step(problem, step.point, gradient, step.extra, pulled=False)
    wanted = np.linalg.solve(matrix[np.ix_(free, free)], gradient[free])
    for way in (direction._by_blocks, direction._by_sparse_factor):
        found = way(held)
        assert not found[~free].any()
        assert close(found[free], wanted, SOLVED * np.abs(wanted).max())


def alone(chance, wanted):
    """Return a step in which the last client is alone in its only cohort."""
    law = fa.Cohorts([[0, 1], [0, 1, 2], [0, 2], [3]], [*[(1.0 - chance) / 3] * 3, chance])
    target = np.array([*[(1.0 - wanted) / 3] * 3, wanted])
    nobody = np.zeros(4, dtype=bool)
    problem = DualProblem(law.system(), target, ~nobody, nobody, np.zeros(4, dtype=np.int64))
    point = problem.system.curvature(np.array([0.0, 1.0, -1.0, 0.5]))
    gradient = target - point.marginal
    extra = direction._extra(problem, point, gradient, None)
    return direction._Step(problem, point, gradient, extra, pulled=False)


@pytest.mark.parametrize(("chance", "wanted"), [(0.1, 0.3), (0.3, 0.1), (1e-9, 0.5), (0.7, 1e-9)])
@pytest.mark.parametrize("way", [*WAYS, "cohorts"])
def test_a_client_without_curvature_gets_the_step_of_a_sweep(way, chance, wanted):
    step = alone(chance, wanted)
    if way == "cohorts":
        found = direction._by_cohorts(step, step.point.roots().matrix(), np.arange(4))
    else:
        found = WAYS[way](step)
    assert found[3] == pytest.approx(np.clip(np.log(wanted / chance), -8.0, 8.0), rel=1e-9)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("wanted", [0.01, 0.2])
def test_a_client_far_above_all_others_gets_the_step_of_a_sweep_by_factors(wanted):
    n_clients = 60
    law = fa.IndependentClients(np.full(n_clients, 0.1))
    x = np.zeros(n_clients)
    # Beyond the gap at which potentials act as levels, it is alone and has no curvature.
    x[0] = 100.0
    target = np.full(n_clients, (1.0 - wanted) / (n_clients - 1))
    target[0] = wanted
    nobody = np.zeros(n_clients, dtype=bool)
    problem = DualProblem(
        law.system(), target, ~nobody, nobody, np.zeros(n_clients, dtype=np.int64)
    )
    point = problem.system.curvature(x)
    found = direction.newton_direction(problem, point, target - point.marginal, None, 1500)
    assert found[0] == pytest.approx(np.log(wanted / point.marginal[0]), rel=1e-9)


def test_with_a_pull_everybody_has_curvature():
    step = alone(0.1, 0.3)
    pull = Pull(SOFTNESS, step.problem.target, step.problem.parts)
    extra = direction._extra(step.problem, step.point, step.gradient, pull)
    pulled = direction._Step(step.problem, step.point, step.gradient, extra, pulled=True)
    for way in WAYS.values():
        assert way(pulled)[3] == pytest.approx(step.gradient[3] / extra[3], rel=1e-9)


@pytest.mark.parametrize("right", [1e-30, 1e-3, 1.0, 7.0])
@pytest.mark.parametrize("ratio", [1.0, 1.0 + 1e-9, 1.0009, 1.0011, 1.5, 1e6, 1e-6, 0.3])
def test_the_logarithmic_mean_is_the_mean_of_all_geometric_means(ratio, right):
    places, weights = np.polynomial.legendre.leggauss(60)
    wanted = right * (0.5 * weights) @ np.exp(0.5 * (places + 1.0) * np.log(ratio))
    left, right = np.array([ratio * right]), np.array([right])
    # Within 0.1 % of each other they are given their plain mean, off by log² / 12.
    for found in (logarithmic_mean(left, right), logarithmic_mean(right, left)):
        assert found[0] == pytest.approx(wanted, rel=1e-7)


def test_the_logarithmic_mean_with_zero_vanishes():
    found = logarithmic_mean(np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]))
    assert np.all(found >= 0.0)
    # 1/log(1e300) is as little as floats allow.
    assert np.all(found <= 1.0 / 690.0)


def test_the_extra_diagonal_makes_a_lack_far_beyond_the_weight_a_step_of_a_sweep():
    step = alone(1e-9, 0.5)
    assert step.gradient[3] / (step.extra[3] + 1e-9) == pytest.approx(np.log(0.5 / 1e-9), rel=1e-6)
