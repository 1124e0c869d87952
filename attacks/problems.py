"""Random pairs of an importance and a law, with the law's cohorts in exact arithmetic.

The numbers are ordinary, over many orders of magnitude, zero, or within 1e-14 to 1e-6 of where
feasible ends; at the edges they are 1e-300, 1e-12, 0 and 1, for few clients or a single one.
Cohorts are scattered, chained or nested; clients may never take part.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import fedavot as fa
from attacks import references
from attacks.campaign import some
from attacks.references import Listed, Masses, Reference
from fedavot.laws._law import Law

Floats = NDArray[np.float64]

FEW, MANY = 8, 70
EDGES = (1.0, 1.0, 0.5, 0.9, 1e-3, 1e-12, 1 - 1e-12, 1e-300, 0.0)


@dataclass(frozen=True)
class Style:
    """How many orders of magnitude chances range over, and whether all numbers lie at the edges."""

    orders: int = 15
    edges: bool = False

    def values(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw numbers from 0 to 1, one of them positive."""
        if self.edges:
            drawn = rng.choice(EDGES, count)
        else:
            orders = some((6, 10, 12, 15, self.orders), rng)
            styles: list[Callable[[], Floats]] = [
                lambda: rng.random(count),
                lambda: np.full(count, rng.random()),
                lambda: 10.0 ** rng.uniform(-orders, 0, count),
                lambda: 10.0 ** rng.uniform(-orders, 0, count),
                lambda: rng.choice([0.0, 0.3, 1.0], count),
                lambda: rng.random(count) * (rng.random(count) < rng.uniform(0.1, 1)),
            ]
            drawn = some(styles, rng)()
        return drawn if drawn.any() else np.where(np.arange(count) == 0, 1.0, 0.0)

    def distribution(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw shares that sum to one."""
        return normalised(self.values(rng, count))


@dataclass(frozen=True)
class Setting:
    """A law, and the masses of its cohorts where they are few enough to be listed.

    ``total`` is the mass of all its rounds, the empty ones too; ``prefixes`` makes the reference
    for an importance where the cohorts are too many.
    """

    law: Law
    masses: Masses | None = None
    total: int = 0
    prefixes: Callable[[list[float]], Reference] | None = None

    def reference(self, importance: Floats) -> Reference | None:
        """Return the exact answers for an importance, None if there is no reference."""
        if self.masses is not None:
            return Listed(importance, self.masses)
        return None if self.prefixes is None else self.prefixes(importance.tolist())

    def cohorts(self) -> tuple[list[NDArray[np.int64]], Floats]:
        """Return the cohorts of the list, and their probabilities."""
        whole = sum(self.masses.values())
        cohorts = [np.array(references.members(cohort)) for cohort in self.masses]
        return cohorts, np.array([mass / whole for mass in self.masses.values()])


@dataclass(frozen=True)
class Problem:
    """An importance under a law."""

    kind: str
    importance: Floats
    setting: Setting


def generate(rng: np.random.Generator, kind: str, style: Style) -> Problem:
    """Return a random problem of a kind of law."""
    if style.edges:
        count = 1 if rng.random() < 0.05 else int(rng.integers(2, 7))
    else:
        few = rng.random() < (0.75 if kind == "mixture" else 0.4)
        count = int(rng.integers(2, FEW + 1) if few else rng.integers(FEW + 1, MANY + 1))
    setting = KINDS[kind](rng, count, style)
    return Problem(kind, importance(rng, setting.law, style), setting)


def normalised(values: Floats) -> Floats:
    """Return values over their sum."""
    return values / values.sum()


def importance(rng: np.random.Generator, law: Law, style: Style) -> Floats:
    """Return a random importance, drawn with the law in view."""
    count = law.n_clients
    if style.edges:
        spread = rng.random() < 0.2
        return normalised(
            10.0 ** -np.linspace(0, 300, count) if spread else style.values(rng, count)
        )
    levels = rng.integers(0, rng.integers(1, 6), count)
    tight = law.expected_weights(rng.normal(size=count), levels)
    inner = law.expected_weights(np.zeros(count))
    nearly = 10.0 ** rng.uniform(-14, -6) * rng.choice([-1, 1])
    styles: list[Callable[[], Floats]] = [
        lambda: Style().values(rng, count),
        lambda: Style().values(rng, count),
        lambda: rng.dirichlet(np.full(count, rng.choice([0.1, 1.0, 5.0]))),
        lambda: law.expected_weights(rng.choice([1, 4, 12]) * rng.normal(size=count)),
        lambda: tight,
        lambda: tight + nearly * (inner - tight),
        lambda: tight + nearly * (inner - tight),
        lambda: inner * 10.0 ** rng.uniform(-3, 0, count),
        lambda: np.where(np.arange(count) == rng.integers(count), rng.uniform(0, count), 1.0),
    ]
    return normalised(np.maximum(some(styles, rng)(), 0.0))


def explicit(rng: np.random.Generator, count: int, style: Style) -> Setting:
    """Return a list of cohorts: a line, nested ones, pairs, or any."""
    way = rng.integers(6)
    everyone, most = rng.permutation(count), 6 if style.edges else 120
    if way == 0 and count > 1:
        cohorts = [[i, i + 1] for i in range(count - 1)]
    elif way == 1:
        cohorts = [list(range(i + 1)) for i in everyone[: rng.integers(1, count + 1)]]
    elif way == 2 and count > 1:
        pairs = list(itertools.combinations(range(count), 2))
        cohorts = [list(pairs[k]) for k in rng.permutation(len(pairs))[: rng.integers(1, most)]]
    else:
        largest = min(count, int(rng.choice([2, 3, 10, count])))
        sizes = rng.integers(1, largest + 1, rng.integers(1, most))
        cohorts = [rng.permutation(count)[:size].tolist() for size in sizes]
    chances = style.distribution(rng, len(cohorts))
    masses = references.listed(cohorts, chances)
    law = fa.Cohorts(cohorts, chances, n_clients=count)
    return Setting(law, masses, sum(masses.values()))


def uniform(rng: np.random.Generator, count: int, style: Style) -> Setting:
    """Return uniform cohorts of one size."""
    size = int(rng.integers(1, min(count, rng.choice([2, 5, count])) + 1))
    law = fa.UniformCohorts(count, size)
    if count > FEW and size > 2:
        return Setting(law, prefixes=lambda p: references.uniform_prefixes(p, size))
    masses = references.uniform(count, size)
    return Setting(law, masses, len(masses))


def independent(rng: np.random.Generator, count: int, style: Style) -> Setting:
    """Return independent clients."""
    chances = style.values(rng, count)
    law = fa.IndependentClients(chances)
    if count > FEW:
        return Setting(law, prefixes=lambda p: references.independent_prefixes(p, chances.tolist()))
    return Setting(law, *references.independent(chances.tolist()))


def successive(rng: np.random.Generator, count: int, style: Style) -> Setting:
    """Return pairs drawn one after the other."""
    count = max(2, min(count, 20))
    rates = (
        rng.choice([1e-12, 0.5, 1.0, 1e6], count)
        if style.edges
        else 10.0 ** rng.uniform(-3, 0, count)
    )
    masses = references.successive_pairs(rates.tolist())
    return Setting(fa.SuccessiveDraws(rates, 2), masses, sum(masses.values()))


def mixture(rng: np.random.Generator, count: int, style: Style) -> Setting:
    """Return a mixture of two or three laws; those too large to list have no reference."""
    makers = (explicit, explicit, uniform) + (independent,) * (not style.edges)
    parts = [some(makers, rng)(rng, count, style) for _ in range(rng.integers(2, 4))]
    weights = normalised(style.values(rng, len(parts)) + 1e-12)
    law = fa.Mixture([part.law for part in parts], weights)
    if any(part.masses is None for part in parts):
        return Setting(law)
    masses = references.mixture([(part.masses, part.total) for part in parts], weights)
    return Setting(law, masses, sum(masses.values()))


KINDS: dict[str, Callable[[np.random.Generator, int, Style], Setting]] = {
    make.__name__: make for make in (explicit, mixture, uniform, independent, successive)
}
