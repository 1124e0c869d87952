"""Federated training with given cohorts and weights: the problems of P6 and P7.

Each round every cohort member takes H full-batch gradient steps from the global model, and then
θ ← Σ w_i θ_i. Nothing here imports the library or a framework, so that an interpreter which has
only a framework can load a problem too. The reference runs in double precision, straight from the
definition, and shares no code with any contender.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Model = tuple[NDArray, ...]
"""A model as arrays: (θ,) for regression, (W, b) for softmax regression, W of shape (10, 784).

With classes first XLA, PyTorch and NumPy all multiply faster than with features first."""

TOLERANCE = 3e-5
"""Largest error of a parameter, relative to the largest one. Rounding in single precision comes to
3e-6 over 2,000 rounds; two weights exchanged in one of 100 rounds come to 4e-4."""

_WEIGHT_UNITS = 1024
"""Weights are whole multiples of one part in so many, so that frameworks which weigh by numbers
of examples can be given them exactly."""


@dataclass(frozen=True, eq=False)
class FederatedProblem:
    """Clients' data, and whom every round trains with which weights.

    Attributes
    ----------
    features : float32 array, shape (n_clients, n_examples, n_features)
    targets : float32 or int32 array, shape (n_clients, n_examples)
        Numbers to predict, or classes.
    members : int array, shape (n_rounds, size)
        The cohorts, members distinct.
    weights : float array, shape (n_rounds, size)
        Rows sum to one.
    n_classes : int
        0 for regression (mean square), else classes (mean cross entropy).
    local_steps : int
        Steps of a member a round, H.
    step : float
        Step size.
    """

    features: NDArray[np.float32]
    targets: NDArray
    members: NDArray[np.int64]
    weights: NDArray[np.float64]
    n_classes: int
    local_steps: int
    step: float

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.members)

    @property
    def shares(self) -> NDArray[np.int64]:
        """The weights as numbers of examples, shape (n_rounds, size)."""
        return np.round(self.weights * _WEIGHT_UNITS).astype(np.int64)

    @property
    def one_hot(self) -> NDArray[np.float32]:
        """The classes as unit vectors, shape (n_clients, n_examples, n_classes)."""
        return np.eye(self.n_classes, dtype=np.float32)[self.targets]

    def start(self) -> Model:
        """Return the model before the first round: zeros, float32."""
        n_features = self.features.shape[2]
        shapes = [(self.n_classes, n_features), self.n_classes] if self.n_classes else [n_features]
        return tuple(np.zeros(shape, np.float32) for shape in shapes)

    def first(self, rounds: int) -> "FederatedProblem":
        """Return the problem of the first rounds alone."""
        fields = vars(self) | {"members": self.members[:rounds], "weights": self.weights[:rounds]}
        return FederatedProblem(**fields)

    def save(self, path: Path) -> None:
        """Write the problem to an npz file."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "FederatedProblem":
        """Read what `save` wrote."""
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        return cls(**{name: a if a.ndim else a.item() for name, a in arrays.items()})


def regression() -> FederatedProblem:
    """P6: 100 clients, 30 examples of 100 features, each client with a model of its own."""
    rng = np.random.default_rng(6)
    features = rng.normal(size=(100, 30, 100))
    models = rng.normal(size=100) + 0.5 * rng.normal(size=(100, 100))
    targets = np.einsum("knd,kd->kn", features, models) / 10 + 0.1 * rng.normal(size=(100, 30))
    return FederatedProblem(
        features.astype(np.float32),
        targets.astype(np.float32),
        *_cohorts(rng),
        n_classes=0,
        local_steps=5,
        step=0.01,
    )


def softmax() -> FederatedProblem:
    """P7: 100 clients, 30 examples of 784 features in 10 classes, by a random linear model."""
    rng = np.random.default_rng(7)
    features = rng.normal(size=(100, 30, 784))
    scores = features @ rng.normal(size=(784, 10)) + rng.gumbel(size=(100, 30, 10))
    return FederatedProblem(
        features.astype(np.float32),
        scores.argmax(axis=2).astype(np.int32),
        *_cohorts(rng),
        n_classes=10,
        local_steps=3,
        step=0.1,
    )


def _cohorts(
    rng: np.random.Generator, n_clients: int = 100, rounds: int = 2_000
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw pairs of clients, and uneven weights for them."""
    first = rng.integers(0, n_clients, rounds)
    second = (first + rng.integers(1, n_clients, rounds)) % n_clients
    share = rng.integers(_WEIGHT_UNITS // 8, 7 * _WEIGHT_UNITS // 8, rounds) / _WEIGHT_UNITS
    return np.column_stack((first, second)), np.column_stack((share, 1.0 - share))


def reference(problem: FederatedProblem, after: Collection[int]) -> dict[int, Model]:
    """Return the models after the given numbers of rounds, in double precision."""
    gradient = _cross_entropy_gradient if problem.n_classes else _square_gradient
    features = problem.features.astype(np.float64)
    targets = problem.one_hot if problem.n_classes else problem.targets
    targets = targets.astype(np.float64)
    model = [leaf.astype(np.float64) for leaf in problem.start()]
    models = {}
    for number in range(1, max(after) + 1):
        total = [0.0] * len(model)
        rows = problem.members[number - 1], problem.weights[number - 1]
        for client, weight in zip(*rows, strict=True):
            local = model
            for _ in range(problem.local_steps):
                slopes = gradient(local, features[client], targets[client])
                local = [a - problem.step * b for a, b in zip(local, slopes, strict=True)]
            total = [a + weight * b for a, b in zip(total, local, strict=True)]
        model = total
        if number in after:
            models[number] = tuple(model)
    return models


def _square_gradient(model: list[NDArray], features: NDArray, targets: NDArray) -> list[NDArray]:
    """Return the gradient of mean (xᵀθ − y)²."""
    errors = np.einsum("nd,d->n", features, model[0]) - targets
    return [np.einsum("nd,n->d", features, 2.0 * errors / len(targets))]


def _cross_entropy_gradient(
    model: list[NDArray], features: NDArray, targets: NDArray
) -> list[NDArray]:
    """Return the gradient of mean −log softmax(Wx + b)_y."""
    scores = np.einsum("nd,cd->nc", features, model[0]) + model[1]
    chances = np.exp(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
    errors = (chances - targets) / len(targets)
    return [errors.T @ features, errors.sum(axis=0)]


def error_of(model: Model, wanted: Model) -> float:
    """Return the largest error of a parameter, relative to the largest parameter.

    A model of the wrong shape or with entries that are not finite is infinitely wrong.
    """
    found = [np.asarray(leaf, dtype=np.float64) for leaf in model]
    shapes = [[leaf.shape for leaf in leaves] for leaves in (found, wanted)]
    if shapes[0] != shapes[1] or not all(np.isfinite(leaf).all() for leaf in found):
        return np.inf
    size = max(np.abs(leaf).max() for leaf in wanted)
    errors = [np.abs(a - b).max() / size for a, b in zip(found, wanted, strict=True)]
    return float(np.max(errors))
