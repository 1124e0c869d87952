"""Small federated problems on the clients of a log.

Client i has a quadratic loss with curvatures h_ij and a minimum b_i of its own,

    f_i(θ) = ½ Σ_j h_ij (θ_j − b_ij)²,     F = Σ p_i f_i,     F − min F = ½ Σ_j H_j (θ_j − θ*_j)²,

with H = Σ p_i h_i and θ* = Σ p_i h_i b_i / H. Clients of one group differ only a little. L local
steps of size η, with Gaussian noise of deviation σ in each gradient, change a model θ by

    Δ_i = −c_i (θ − b_i) + s_i ξ,     c_i = 1 − (1 − η h_i)^L,
    s_i² = σ² η² Σ_{k<L} (1 − η h_i)^{2k},

so that a client's round is a single expression. Arrays have the axes (dimension, step size,
problem, client).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fedavot._checks import Floats, Integers

DIMENSION = 6
STRENGTHS = (0.5, 1.0, 2.0)
"""How far the clients' minima differ, relative to the distance of the first model."""
NOISES = (0.1, 0.5)
"""Standard deviation of a gradient's noise, relative to the same distance."""
SEEDS = 4
WITHIN = 0.2
"""How much clients of one group differ, relative to groups."""
LEAST_CURVATURE = 0.1
"""Curvatures lie between this and 1, through the arctangent of a normal random number."""


@dataclass(frozen=True, eq=False)
class Problems:
    """Problems on the same clients, those of one variant consecutive, and their local training.

    Attributes
    ----------
    minimum : float array, shape (DIMENSION, 1, n_problems, n_clients)
        b.
    pull, noise : float array, shape (DIMENSION, n_steps, n_problems, n_clients)
        c and s.
    curvature, best : float array, shape (DIMENSION, n_problems)
        H and θ*.
    """

    minimum: Floats
    pull: Floats
    noise: Floats
    curvature: Floats
    best: Floats

    @property
    def n_problems(self) -> int:
        """Number of problems."""
        return int(self.best.shape[1])

    def excess(self, models: Floats) -> Floats:
        """Return F − min F at models of shape (DIMENSION, ..., n_problems)."""
        shape = (DIMENSION, *[1] * (models.ndim - 2), self.n_problems)
        apart = models - self.best.reshape(shape)
        return np.asarray((apart**2 * self.curvature.reshape(shape)).sum(axis=0) / 2)


def problems(
    importance: Floats,
    groupings: Sequence[Integers | None],
    *,
    steps: Floats,
    local_steps: int,
    rng: np.random.Generator,
) -> Problems:
    """Draw the problems of all variants and seeds.

    Parameters
    ----------
    importance : float array, shape (n_clients,)
        The importance of each client.
    groupings : sequence of int arrays, shape (n_clients,), or None
        Which clients are alike: the group of each, or None if all differ. Every grouping has its
        own variants.
    steps : float array, shape (n_steps,)
        Local step sizes.
    local_steps : int
        Number of local steps of a client in a round.
    rng : Generator
        Generator for the problems.
    """
    variants = list(product(STRENGTHS, NOISES))
    # A seed gives the same draws in every variant of a grouping, so that only the variant differs.
    parts = [_drawn(importance.size, group_of, rng) for group_of in groupings]
    minimum = np.concatenate(
        [first + strength * apart for first, apart, _ in parts for strength, _ in variants], axis=1
    )
    curvature = np.concatenate(
        [
            LEAST_CURVATURE ** (0.5 + np.arctan(bent) / np.pi)
            for _, _, bent in parts
            for _ in variants
        ],
        axis=1,
    )
    variants *= len(parts)
    deviation = np.repeat([noise for _, noise in variants], SEEDS)[:, None]
    sizes = steps[:, None, None]
    kept = 1.0 - sizes * curvature[:, None]
    pull = 1.0 - kept**local_steps
    squares = (1.0 - kept ** (2 * local_steps)) / (1.0 - kept**2)
    total = curvature @ importance
    return Problems(
        minimum=minimum[:, None],
        pull=pull,
        noise=deviation * sizes * np.sqrt(squares),
        curvature=total,
        best=(curvature * minimum) @ importance / total,
    )


def _drawn(
    n_clients: int, group_of: Integers | None, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return the distance of all minima from the first model, their spread, and curvatures."""
    group = np.arange(n_clients) if group_of is None else group_of
    within = 0.0 if group_of is None else WITHIN

    def drawn() -> Floats:
        of_group = rng.standard_normal((DIMENSION, SEEDS, int(group.max()) + 1))
        return of_group[..., group] + within * rng.standard_normal((DIMENSION, SEEDS, n_clients))

    apart, bent = drawn(), drawn()
    first = rng.standard_normal((DIMENSION, SEEDS, 1))
    first /= np.sqrt((first**2).mean(axis=0))
    return first, apart, bent
