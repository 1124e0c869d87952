"""How to train: rounds and local steps, step sizes, batches, seeds, and the set of models.

A schedule of step sizes gives one local step size per round. A projection confines models to a
convex set after every local step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, as_amount, as_floats, as_seed, as_size, shown
from fedavot.errors import OptionError
from fedavot.training.task import Params

StepSchedule = Callable[[int, int], Floats]
"""A function of (rounds, local_steps) that gives the step size of every round."""


def constant(step: float) -> StepSchedule:
    """Return η_t = step.

    Parameters
    ----------
    step : float
        The step size of every round, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    return lambda rounds, local_steps: np.full(rounds, size)


def inverse_root(step: float) -> StepSchedule:
    """Return η_t = step/√(T H): the step of the O(1/√T) theorem, T rounds of H local steps.

    Parameters
    ----------
    step : float
        The step size of a single round of one local step, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    return lambda rounds, local_steps: np.full(rounds, size / np.sqrt(rounds * local_steps))


def decaying(step: float, halved_after: float) -> StepSchedule:
    """Return η_t = step/(1 + t/τ), with τ = ``halved_after`` rounds.

    Parameters
    ----------
    step : float
        The step size of the first round, above 0.
    halved_after : float
        Number of rounds after which the step size is half of that, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    scale = as_amount(halved_after, what="halved_after", positive=True)
    return lambda rounds, local_steps: size / (1.0 + np.arange(rounds) / scale)


def cosine(step: float) -> StepSchedule:
    """Return η_t = step (1 + cos(π t/T))/2, decreasing from step to nearly zero.

    Parameters
    ----------
    step : float
        The step size of the first round, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    return lambda rounds, local_steps: (
        size * (1.0 + np.cos(np.pi * np.arange(rounds) / rounds)) / 2.0
    )


class Projection(Protocol):
    """The Euclidean projection onto a closed convex set; hashable."""

    def __call__(self, params: Params) -> Params:
        """Return the nearest point of the set."""
        ...


@dataclass(frozen=True)
class Ball:
    """All models of a bounded Euclidean norm, all leaves taken together.

    Parameters
    ----------
    radius : float
        The largest norm, above 0.
    """

    radius: float

    def __post_init__(self) -> None:
        # As a float, since JAX has no integers of more than 64 bits.
        object.__setattr__(self, "radius", as_amount(self.radius, what="radius", positive=True))

    def __call__(self, params: Params) -> Params:
        """Scale the model back to the sphere if it is outside."""
        import jax
        import jax.numpy as jnp

        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(params)]
        # Squares of entries above the radius might overflow; inside the ball the factor is 1.
        largest = self.radius
        for leaf in leaves:
            largest = jnp.maximum(largest, jnp.max(jnp.abs(leaf), initial=0.0))
        ratio = self.radius / largest
        squares = sum(jnp.sum((leaf / largest) ** 2) for leaf in leaves)
        factor = ratio / jnp.maximum(jnp.sqrt(squares), ratio)
        return jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, params)


@dataclass(frozen=True)
class Box:
    """All models with every entry between two numbers.

    Parameters
    ----------
    low, high : float
        The smallest and the largest entry.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise OptionError(f"a box from {self.low} to {self.high} is empty; low must be below")

    def __call__(self, params: Params) -> Params:
        """Clip every entry."""
        import jax
        import jax.numpy as jnp

        return jax.tree.map(lambda leaf: jnp.clip(leaf, self.low, self.high), params)


@dataclass(frozen=True, eq=False)
class Training:
    """The options of training.

    Parameters
    ----------
    rounds : int
        Number of rounds, each of which ends with one aggregation.
    step : function of (rounds, local_steps)
        A schedule of positive local step sizes, such as ``constant(0.01)``.
    local_steps : int
        Number of local steps each client takes per round, H.
    batch_size : int, optional
        Number of examples per local step, drawn without replacement; all of a client's examples if
        not given.
    projection : Projection, optional
        Projection onto the convex set that models are kept in.
    seeds : sequence of int
        One run per seed, all in one compiled program.
    record_every : int
        Number of rounds between records of the objective; the last round is always recorded.
    start : pytree, optional
        The first model, with the shapes of the task's ``init``, and used instead of it.
    """

    rounds: int
    step: StepSchedule
    local_steps: int = 1
    batch_size: int | None = None
    projection: Projection | None = None
    seeds: Sequence[int] = (0,)
    record_every: int = 1
    start: Params | None = None

    def __repr__(self) -> str:
        batches = "all examples" if self.batch_size is None else f"batches of {self.batch_size:,}"
        return (
            f"Training({self.rounds:,} rounds of {self.local_steps:,} local steps on {batches}, "
            f"{len(self.seeds):,} seed{'s' * (len(self.seeds) > 1)})"
        )

    def __post_init__(self) -> None:
        for name in ("rounds", "local_steps", "record_every", "batch_size"):
            if name != "batch_size" or self.batch_size is not None:
                as_size(getattr(self, name), what=name, low=1)
        if not callable(self.step):
            raise OptionError(f"step is {self.step!r}; give a schedule, such as constant(0.01)")
        try:
            seeds = [as_seed(seed, high=2**31 - 1) for seed in self.seeds]
        except TypeError:
            raise OptionError(
                f"seeds are {shown(self.seeds)}; give a sequence of integers"
            ) from None
        if not seeds or len(set(seeds)) != len(seeds):
            raise OptionError(f"seeds are {shown(seeds)}; give at least one, each once")

    def step_sizes(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the step size of every round in a precision, shape (rounds,)."""
        exact = as_floats(
            self.step(self.rounds, self.local_steps), what="the step schedule", error=OptionError
        )
        if exact.size != self.rounds:
            raise OptionError(
                f"the step schedule gives {exact.size} step sizes for {self.rounds} rounds"
            )
        with np.errstate(over="ignore", under="ignore"):
            sizes = exact.astype(dtype)
        bad = np.flatnonzero(~((sizes > 0) & (sizes < np.inf)))
        if bad.size:
            raise OptionError(
                f"the step size of round {bad[0] + 1} is {exact[bad[0]]}; "
                f"in {dtype} it must be finite and above 0; end the schedule above 0, or earlier"
            )
        return sizes
