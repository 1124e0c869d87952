"""Losses against NumPy, gradients against differences, optima against their conditions."""

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.flatten_util
import numpy as np
import pytest
from scipy.signal import correlate

from fedavot.errors import MissingPackageError
from fedavot.training import Problem
from fedavot.training import objective as objective_of
from fedavot.training.tasks import linear
from fedavot.training.tasks.classifiers import cnn_scores, cnn_task, mlp_task, softmax_task

DOUBLE = 1e-10
"""Room for double-precision sums in another order."""
SINGLE = 1e-5
"""The same in single precision."""
DIFFERENCE = 1e-6
"""Error of central differences with step 1e-5 in double precision."""
PROGRAM = 1e-6
"""HiGHS's feasibility and optimality tolerances are 1e-7, on sums of some hundred terms."""


def uneven_clients(*, n_features=3, seed=0, labels=None):
    """Return clients of 1 to 6 examples, targets normal or drawn from the labels."""
    rng = np.random.default_rng(seed)
    clients = []
    for count in (4, 1, 6, 3):
        features = rng.standard_normal((count, n_features))
        targets = rng.standard_normal(count) if labels is None else rng.choice(labels, count)
        clients.append((features, targets))
    return clients


lad_task = functools.partial(linear.linear_task, loss=linear.mean_deviation)


def objective(loss, clients, shares, params):
    """Return Σ p_i f_i in NumPy; ``loss`` gives one number an example."""
    return sum(
        share * np.mean(loss(features @ params, targets))
        for share, (features, targets) in zip(shares, clients, strict=True)
    )


LINEAR = {
    "square": (linear.mean_square, lambda score, y: (score - y) ** 2, None),
    "deviation": (linear.mean_deviation, lambda score, y: np.abs(score - y), None),
    "hinge": (linear.mean_hinge, lambda score, y: np.maximum(0, 1 - y * score), (-1.0, 1.0)),
}


def assert_is_its_formula(loss, formula, params, batch):
    """The loss is the NumPy formula, and its gradient the formula's difference quotient."""
    with jax.enable_x64(True):
        flat, shaped = jax.flatten_util.ravel_pytree(params)
        value, slope = jax.value_and_grad(loss)(params, batch)
        slope = jax.flatten_util.ravel_pytree(slope)[0]
        near = [(shaped(flat + h), shaped(flat - h)) for h in 1e-5 * np.eye(flat.size)]
        quotients = [(formula(up, *batch) - formula(down, *batch)) / 2e-5 for up, down in near]
        np.testing.assert_allclose(value, formula(params, *batch), rtol=DOUBLE)
        np.testing.assert_allclose(slope, quotients, atol=DIFFERENCE)


@pytest.mark.parametrize("kind", LINEAR)
def test_a_linear_loss_is_its_formula_and_its_gradient_the_difference_quotient(kind):
    loss, formula, labels = LINEAR[kind]
    rng = np.random.default_rng(1)
    for batch in uneven_clients(labels=labels):
        assert_is_its_formula(
            loss, lambda it, x, y: np.mean(formula(x @ it, y)), rng.standard_normal(3), batch
        )


def numpy_cross_entropy(scores, labels):
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return -np.mean(np.log(chances[np.arange(labels.size), labels]))


SOFTMAX = softmax_task("any", [(np.ones((1, 1)), [0])]).loss


def test_the_softmax_loss_and_gradient_are_the_textbook_formulas():
    rng = np.random.default_rng(2)
    batch = rng.standard_normal((7, 4)), rng.integers(0, 3, 7)
    params = {"weights": rng.standard_normal((4, 3)), "bias": rng.standard_normal(3)}

    def formula(params, features, labels):
        return numpy_cross_entropy(features @ params["weights"] + params["bias"], labels)

    assert_is_its_formula(SOFTMAX, formula, params, batch)


def test_the_hidden_layers_loss_gradient_and_accuracy_are_those_of_numpy():
    rng = np.random.default_rng(6)
    batch = rng.standard_normal((9, 4)), rng.integers(0, 3, 9)
    task = mlp_task("any", [batch], 3, n_hidden=5)
    assert task.dtype == np.float32
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64) + 0.1 * rng.standard_normal(leaf.shape),
        task.init(jax.random.key(0)),
    )

    def scores(params, features):
        for layer in ("hidden", "output"):
            features = features @ params[layer]["weights"] + params[layer]["bias"]
            features = np.maximum(features, 0) if layer == "hidden" else features
        return np.asarray(features)

    def formula(params, features, labels):
        return numpy_cross_entropy(scores(params, features), labels)

    assert_is_its_formula(task.loss, formula, params, batch)
    right = np.mean(scores(params, batch[0]).argmax(axis=1) == batch[1])
    assert task.accuracy(params, batch) == pytest.approx(right, rel=SINGLE)


def test_the_softmax_loss_survives_scores_that_would_overflow():
    params = {"weights": np.array([[1e4, -1e4]], np.float32), "bias": np.zeros(2, np.float32)}
    batch = (np.ones((2, 1), np.float32), np.array([0, 1]))
    assert SOFTMAX(params, batch) == 1e4


def test_the_objective_of_accuracies_is_their_weighted_mean_over_uneven_clients():
    clients = [(np.eye(3)[[0, 1, 2]], [0, 1, 1]), (np.eye(3)[[2]], [2])]
    task = softmax_task("uneven", clients, 3)
    judged = dataclasses.replace(task, loss=task.accuracy)
    problem = Problem(judged, [0.75, 0.25], lambda rng, rounds: [[0]] * rounds)
    params = {"weights": np.eye(3)[None], "bias": np.zeros((1, 3))}
    np.testing.assert_allclose(objective_of(problem, params), 0.75 * 2 / 3 + 0.25, rtol=SINGLE)


def test_the_accuracy_of_the_hinge_is_the_share_on_the_right_side():
    clients = [(np.array([[2.0], [-1.0], [0.0], [3.0]]), [1.0, -1.0, 1.0, -1.0])]
    task = linear.linear_task("signs", clients, loss=linear.mean_hinge)
    assert task.accuracy(np.ones(1), clients[0]) == 0.5
    assert linear.linear_task("squares", clients).accuracy is None


def numpy_network(params, image):
    """Return the scores of one image, convolutions by SciPy, maxima one by one."""
    channels = [image.reshape(28, 28)]
    for layer in ("first", "second"):
        kernels = np.asarray(params[layer]["weights"], np.float64)
        kernels = kernels.reshape(3, 3, len(channels), -1)
        outputs = []
        for target, bias in enumerate(np.asarray(params[layer]["bias"])):
            total = bias + sum(
                correlate(channel, kernels[:, :, source, target], mode="valid", method="direct")
                for source, channel in enumerate(channels)
            )
            half = total.shape[0] // 2
            pooled = [
                [total[2 * r : 2 * r + 2, 2 * c : 2 * c + 2].max() for c in range(half)]
                for r in range(half)
            ]
            outputs.append(np.maximum(pooled, 0))
        channels = outputs
    flat = np.stack(channels, axis=-1).ravel()
    return flat @ np.asarray(params["dense"]["weights"]) + np.asarray(params["dense"]["bias"])


def test_the_network_convolves_and_halves_as_scipy_does():
    rng = np.random.default_rng(4)
    images, labels = rng.random((3, 784)), rng.integers(0, 10, 3)
    task = cnn_task("digits", [(images, labels)])
    params = jax.tree.map(
        lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape).astype(np.float32),
        task.init(jax.random.key(1)),
    )
    scores = np.stack([numpy_network(params, image) for image in images])
    batch = images.astype(np.float32), labels
    np.testing.assert_allclose(cnn_scores(params, batch[0]), scores, rtol=1e-3, atol=1e-4)
    expected = numpy_cross_entropy(scores, labels)
    np.testing.assert_allclose(task.loss(params, batch), expected, rtol=1e-4)


def test_the_network_is_small_single_and_drawn_with_he_variances_from_its_key():
    task = cnn_task("digits", [(np.zeros((2, 784)), np.array([0, 1]))])
    first, again, other = (task.init(jax.random.key(seed)) for seed in (0, 0, 1))
    sizes = [leaf.size for leaf in jax.tree.leaves(first)]
    assert sum(sizes) == 5258
    assert {leaf.dtype for leaf in jax.tree.leaves(first)} == {np.dtype(np.float32)}
    assert task.dtype == np.float32
    np.testing.assert_array_equal(first["dense"]["weights"], again["dense"]["weights"])
    assert not np.array_equal(first["dense"]["weights"], other["dense"]["weights"])
    for layer in ("second", "dense"):
        weights = np.asarray(first[layer]["weights"])
        # More than a thousand weights: the sample variance is within a fifth of 2/fan-in.
        assert weights.var() == pytest.approx(2 / weights.shape[0], rel=0.2)


@pytest.mark.parametrize("n_clients", [2, 5, 100])
def test_the_heterogeneous_regression_follows_its_recipe(n_clients):
    task = linear.heterogeneous_regression(n_clients=n_clients, n_features=4, n_examples=200)
    features, targets = task.data
    assert features.shape == (n_clients, 200, 4)
    assert features.dtype == targets.dtype == np.float64
    models = np.array([np.linalg.lstsq(x, y)[0] for x, y in zip(features, targets, strict=True)])
    residuals = targets - np.einsum("nmd,nd->nm", features, models)
    # 200 residuals a client: their deviation is .1 within 5 standard errors of 5 %.
    np.testing.assert_allclose(residuals.std(axis=1), 0.1, rtol=0.3)
    scales = features.std(axis=1).mean(axis=1)
    assert 0.4 < scales.min() < scales.max() < 1.6
    if n_clients == 100:
        drift = (np.arange(1, 101) - 50.5) / 50
        fitted = np.linalg.lstsq(np.column_stack((np.ones(100), drift)), models)[0]
        spread = (models - np.column_stack((np.ones(100), drift)) @ fitted).std()
        assert spread == pytest.approx(0.3, rel=0.2)
        assert features.mean(axis=1).std() == pytest.approx(0.5, rel=0.2)


def test_the_iid_regression_is_the_authors_script():
    pytest.importorskip("sklearn")
    task = linear.iid_regression()
    features, targets = task.data
    assert features.shape == (100, 30, 100)
    flat = features.reshape(3000, 100)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=DOUBLE)
    np.testing.assert_allclose(flat.std(axis=0), 1, rtol=DOUBLE)
    from sklearn.datasets import make_regression

    raw, responses = make_regression(n_samples=3000, n_features=100, noise=0.1, random_state=0)
    order = np.random.RandomState(0).permutation(3000)
    np.testing.assert_array_equal(targets.ravel(), responses[order])
    wanted = ((raw - raw.mean(axis=0)) / raw.std(axis=0))[order[60]]
    np.testing.assert_allclose(features[2, 0], wanted, rtol=DOUBLE)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedavot\[experiments\]'"):
        linear.iid_regression()


SHARES = np.array([0.1, 0.5, 0.15, 0.25])


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("radius", [None, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_no_direction_leads_down_from_an_optimum(kind, radius, seed):
    loss, formula, labels = LINEAR[kind]
    clients = uneven_clients(n_features=2, seed=seed, labels=labels)
    task = linear.linear_task("uneven", clients, loss=loss)
    params, value = linear.optimum(task, SHARES, radius=radius)
    assert value == pytest.approx(objective(formula, clients, SHARES, params), rel=DOUBLE)
    reach = np.inf if radius is None else radius
    assert np.abs(params).max() <= reach + PROGRAM
    # Convex in two dimensions: looking around in all directions, near and
    # far, settles it.
    angles = np.linspace(0, 2 * np.pi, 721)
    for length in (1e-3, 0.1, 1.0, 10.0):
        around = params + length * np.column_stack((np.cos(angles), np.sin(angles)))
        values = [
            objective(formula, clients, SHARES, point) for point in np.clip(around, -reach, reach)
        ]
        assert min(values) >= value - PROGRAM


def test_the_chance_of_a_turned_label_is_the_one_asked_for():
    shape = {"n_clients": 50, "n_examples": 100, "seed": 3}
    clean, noisy = (
        linear.heterogeneous_classification(flipped=chance, **shape).data[1]
        for chance in (0.0, 0.2)
    )
    # 5,000 labels: .2 within five standard errors.
    assert np.mean(clean != noisy) == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / 5000))


@pytest.mark.parametrize("build", [linear.linear_task, lad_task])
def test_integers_become_floats_and_single_precision_stays(build):
    whole = build("whole", [([[1, 2], [3, 4]], [1, 0])])
    assert {leaf.dtype for leaf in whole.data} == {np.dtype(np.float64)}
    single = build("single", [(np.ones((2, 3), np.float32), np.ones(2, np.float32))])
    assert single.dtype == np.float32


def test_importing_the_tasks_loads_neither_scikit_learn_nor_matplotlib_nor_jax():
    modules = ("linear", "classifiers")
    code = "; ".join(
        [f"import fedavot.training.tasks.{name}" for name in modules]
        + ["import fedavot.training.mnist, fedavot.training.partition, sys"]
        + ["print([m for m in ('jax', 'sklearn', 'mlxtend', 'matplotlib') if m in sys.modules])"]
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


EYE = np.eye(2)


def test_the_losses_of_classifiers_are_equal_where_their_models_are():
    one, other = (softmax_task(name, [(EYE, [0, 1])]).loss for name in ("one", "other"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != cnn_task("images", [(np.ones((1, 784)), [0])]).loss
