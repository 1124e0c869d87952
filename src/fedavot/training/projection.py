"""Convex sets to which models are confined by Euclidean projection after every local step."""

from dataclasses import dataclass
from typing import Protocol

from fedavot._checks import as_amount
from fedavot.errors import OptionError
from fedavot.training.task import Params


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
        for name in ("low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def __call__(self, params: Params) -> Params:
        """Clip every entry."""
        import jax
        import jax.numpy as jnp

        return jax.tree.map(lambda leaf: jnp.clip(leaf, self.low, self.high), params)
