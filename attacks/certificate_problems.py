"""Random pairs of an importance and a law, with their references where there is one.

The numbers are ordinary, over many orders of magnitude, zero, or within 1e-14 to 1e-6 of where
feasible ends; cohorts are scattered, chained or nested; clients may never take part.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import fedavot as fa
from attacks import references
from attacks.references import Listed, Masses, Reference
from fedavot.laws._law import Law

Floats = NDArray[np.float64]
Referee = Callable[[Floats], Reference]

FEW, MANY = 8, 70


@dataclass(frozen=True)
class Setting:
    """A law, the total mass of its rounds in the reference, and how to judge an importance."""

    law: Law
    masses: tuple[Masses, int] | None
    referee: Referee | None


@dataclass(frozen=True)
class Problem:
    """An importance under a law."""

    kind: str
    importance: Floats
    setting: Setting


def generate(rng: np.random.Generator, kind: str) -> Problem:
    """Return a random problem of a kind."""
    setting = KINDS[kind](rng)
    return Problem(kind, importance(rng, setting.law), setting)


def normalised(values: Floats) -> Floats:
    """Return values over their sum, the first one positive if none is."""
    if not values.sum() > 0:
        values = np.where(np.arange(values.size) == 0, 1.0, 0.0)
    return values / values.sum()


def importance(rng: np.random.Generator, law: Law) -> Floats:
    """Return a random importance, drawn with the law in view."""
    count = law.n_clients
    styles: list[Callable[[], Floats]] = [
        lambda: rng.random(count),
        lambda: rng.dirichlet(np.full(count, rng.choice([0.1, 1.0, 5.0]))),
        lambda: 10.0 ** rng.uniform(-rng.choice([6, 12, 15]), 0, count),
        lambda: rng.choice([0.0, 1.0, 1.0, 2.0], count),
        lambda: law.expected_weights(4.0 * rng.normal(size=count)),
        lambda: lexicographic(rng, law),
        lambda: near_tight(rng, law),
        lambda: near_tight(rng, law),
        lambda: rng.random(count) * (rng.random(count) < rng.uniform(0.1, 1)),
        lambda: np.where(np.arange(count) == rng.integers(count), rng.uniform(0, count), 1.0),
    ]
    return normalised(np.maximum(styles[rng.integers(len(styles))](), 0.0))


def lexicographic(rng: np.random.Generator, law: Law) -> Floats:
    """Return the expected weights of a few levels: attainable, with tight sets."""
    levels = rng.integers(0, rng.integers(1, 6), law.n_clients)
    return law.expected_weights(rng.normal(size=law.n_clients), levels)


def near_tight(rng: np.random.Generator, law: Law) -> Floats:
    """Return an importance just inside or just outside of what is attainable."""
    tight = lexicographic(rng, law)
    inner = law.expected_weights(np.zeros(law.n_clients))
    return tight + 10.0 ** rng.uniform(-14, -6) * rng.choice([-1, 1]) * (inner - tight)


def explicit(rng: np.random.Generator, n_clients: int | None = None) -> Setting:
    """Return a list of cohorts."""
    count = n_clients or _size(rng)
    cohorts = _cohorts(rng, count)
    chances = _chances(rng, len(cohorts))
    masses = references.listed(cohorts, chances)
    return Setting(
        fa.Cohorts(cohorts, chances, n_clients=count),
        (masses, sum(masses.values())),
        lambda wanted: Listed(wanted, masses),
    )


def uniform(rng: np.random.Generator, n_clients: int | None = None) -> Setting:
    """Return uniform cohorts of one size."""
    count = n_clients or _size(rng)
    size = int(rng.integers(1, min(count, rng.choice([2, 5, count])) + 1))
    masses = None
    if count <= FEW or (size <= 2 and n_clients is not None):
        listed = references.uniform(count, size)
        masses = (listed, sum(listed.values()))
    return Setting(
        fa.UniformCohorts(count, size),
        masses,
        lambda wanted: (
            references.uniform_prefixes(wanted.tolist(), size)
            if masses is None
            else Listed(wanted, masses[0])
        ),
    )


def independent(rng: np.random.Generator, n_clients: int | None = None) -> Setting:
    """Return independent clients."""
    count = n_clients or _size(rng)
    styles: list[Callable[[], Floats]] = [
        lambda: rng.random(count),
        lambda: 10.0 ** rng.uniform(-6, 0, count),
        lambda: rng.choice([0.0, 0.3, 1.0], count),
        lambda: np.full(count, rng.random()),
        lambda: 10.0 ** rng.uniform(-rng.choice([15, 160]), 0, count),
    ]
    chances = styles[rng.integers(len(styles))]()
    if not chances.any():
        chances[0] = 0.5
    masses = references.independent(chances.tolist()) if count <= FEW else None
    return Setting(
        fa.IndependentClients(chances),
        masses,
        lambda wanted: (
            references.independent_prefixes(wanted.tolist(), chances.tolist())
            if masses is None
            else Listed(wanted, masses[0])
        ),
    )


def successive(rng: np.random.Generator, n_clients: int | None = None) -> Setting:
    """Return pairs drawn one after the other."""
    count = max(2, min(n_clients or _size(rng), 20))
    rates = 10.0 ** rng.uniform(-3, 0, count)
    masses = references.successive_pairs(rates.tolist())
    return Setting(
        fa.SuccessiveDraws(rates, 2),
        (masses, sum(masses.values())),
        lambda wanted: Listed(wanted, masses),
    )


def mixture(rng: np.random.Generator) -> Setting:
    """Return a mixture of two or three laws; those too large to list have no reference."""
    count = int(rng.integers(2, FEW + 1)) if rng.random() < 0.75 else int(rng.integers(9, MANY + 1))
    parts = [
        [explicit, explicit, uniform, independent][rng.integers(4)](rng, count)
        for _ in range(rng.integers(2, 4))
    ]
    weights = normalised(rng.random(len(parts)) + 1e-3)
    law = fa.Mixture([part.law for part in parts], weights)
    tables = [part.masses for part in parts if part.masses is not None]
    if len(tables) < len(parts):
        return Setting(law, None, None)
    masses = references.mixture(tables, weights)
    return Setting(law, None, lambda wanted: Listed(wanted, masses))


KINDS: dict[str, Callable[[np.random.Generator], Setting]] = {
    "explicit": explicit,
    "mixture": mixture,
    "uniform": uniform,
    "independent": independent,
    "successive": successive,
}
SHARES = {"explicit": 0.5, "mixture": 0.2, "uniform": 0.1, "independent": 0.15, "successive": 0.05}
"""How many of the problems are of which kind."""


def _size(rng: np.random.Generator) -> int:
    return int(rng.integers(2, FEW + 1) if rng.random() < 0.4 else rng.integers(9, MANY + 1))


def _cohorts(rng: np.random.Generator, count: int) -> list[list[int]]:
    style = rng.integers(6)
    if style == 0:
        return [[i, i + 1] for i in range(count - 1)]
    if style == 1:
        return [list(range(i + 1)) for i in rng.permutation(count)[: rng.integers(1, count + 1)]]
    if style == 2:
        pairs = list(itertools.combinations(range(count), 2))
        return [list(pairs[k]) for k in rng.permutation(len(pairs))[: rng.integers(1, 120)]]
    most = min(count, int(rng.choice([2, 3, 10])))
    return [
        rng.permutation(count)[: rng.integers(1, most + 1)].tolist()
        for _ in range(rng.integers(1, 120))
    ]


def _chances(rng: np.random.Generator, count: int) -> Floats:
    styles: list[Callable[[], Floats]] = [
        lambda: rng.random(count),
        lambda: np.ones(count),
        lambda: rng.random(count) * (rng.random(count) < 0.7),
        lambda: 10.0 ** rng.uniform(-10, 0, count),
        lambda: 10.0 ** rng.uniform(-10, 0, count),
        lambda: 10.0 ** rng.uniform(-rng.choice([30, 200]), 0, count),
    ]
    return normalised(styles[rng.choice(6, p=[0.3, 0.15, 0.15, 0.15, 0.2, 0.05])]())
