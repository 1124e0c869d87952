"""Hypothesis generators of laws, potentials and problems, and the enumeration of a law's cohorts.

Feasible problems are generated from plans, infeasible ones from a planted deficient set, tight ones
from a lexicographic softmax of two levels: the answer is known before any solver is asked.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import brute
import fedavot as fa

MAX_CLIENTS = 8
SPREADS = (1.0, 3.0, 30.0, 30.0, 300.0, 5000.0)


class Problem(NamedTuple):
    """An importance, a law, and the law's table of cohorts."""

    importance: np.ndarray
    law: object
    cohorts: dict


class Planted(NamedTuple):
    """An infeasible problem with a set of clients that is wanted more than it can be had."""

    importance: np.ndarray
    law: object
    cohorts: dict
    deficient: frozenset


def normalised(values):
    values = np.asarray(values, dtype=np.float64)
    return values / values.sum()


def importances(n_clients, *, zeros=True):
    """Draw a distribution over clients, spread over e^±6, some of it exactly zero."""
    logs = st.floats(-6.0, 6.0)
    entries = st.lists(st.none() | logs if zeros else logs, min_size=n_clients, max_size=n_clients)
    return entries.filter(lambda logs: any(log is not None for log in logs)).map(
        lambda logs: normalised([0.0 if log is None else math.exp(log) for log in logs])
    )


def potentials(n_clients, spreads=SPREADS):
    """Draw finite numbers within plus or minus one of the spreads."""
    return st.sampled_from(spreads).flatmap(
        lambda spread: st.lists(
            st.floats(-spread, spread), min_size=n_clients, max_size=n_clients
        ).map(np.array)
    )


def levels(n_clients):
    """Draw a level for each client, out of three, or None for no levels."""
    entries = st.lists(st.integers(0, 2), min_size=n_clients, max_size=n_clients)
    return st.none() | entries.map(lambda values: np.array(values, dtype=np.int64))


def permutations(n_clients):
    return st.permutations(range(n_clients)).map(lambda order: np.array(order, dtype=np.int64))


@st.composite
def cohort_lists(draw, max_clients=10):
    """Draw the arguments of Cohorts: ragged, in any member order, repeats and zeros included."""
    n_clients = draw(st.integers(1, max_clients))
    cohort = st.lists(st.integers(0, n_clients - 1), min_size=1, max_size=n_clients, unique=True)
    members = draw(st.lists(cohort, min_size=1, max_size=12))
    return members, draw(importances(len(members))), n_clients


def explicit_laws(max_clients=10):
    return cohort_lists(max_clients).map(lambda arguments: fa.Cohorts(*arguments))


def uniform_sizes(max_clients=MAX_CLIENTS):
    """Draw the number of clients and the size of cohorts."""
    return st.integers(1, max_clients).flatmap(
        lambda n_clients: st.tuples(st.just(n_clients), st.integers(1, n_clients))
    )


def uniform_laws(max_clients=MAX_CLIENTS):
    return uniform_sizes(max_clients).map(lambda sizes: fa.UniformCohorts(*sizes))


def independent_probabilities(max_clients=MAX_CLIENTS, min_clients=1):
    """Draw probabilities: ordinary, never, always, and down to 1e-12 of either."""
    tiny = st.floats(-12.0, -1.0).map(lambda exponent: 10.0**exponent)
    chance = st.one_of(
        st.floats(0.05, 0.95),
        tiny,
        tiny.map(lambda value: 1.0 - value),
        st.sampled_from([0.0, 1.0]),
    )
    return st.lists(chance, min_size=min_clients, max_size=max_clients).filter(any).map(np.array)


def independent_laws(max_clients=MAX_CLIENTS):
    return independent_probabilities(max_clients).map(fa.IndependentClients)


@st.composite
def successive_rates(draw, max_clients=MAX_CLIENTS):
    """Draw rates spread over e^±8, zeros included, and a size up to four."""
    rate = st.one_of(st.floats(-8.0, 8.0).map(math.exp), st.just(0.0))
    rates = draw(st.lists(rate, min_size=1, max_size=max_clients).filter(any))
    size = draw(st.integers(1, min(4, sum(value > 0 for value in rates))))
    return np.array(rates), size


def successive_laws(max_clients=MAX_CLIENTS):
    return successive_rates(max_clients).map(lambda arguments: fa.SuccessiveDraws(*arguments))


def laws_over(n_clients):
    """Draw a law over exactly this many clients, other than a mixture."""
    chances = independent_probabilities(n_clients, n_clients)
    cohort = st.lists(st.integers(0, n_clients - 1), min_size=1, max_size=n_clients, unique=True)
    return st.one_of(
        chances.map(fa.IndependentClients),
        st.integers(1, n_clients).map(lambda size: fa.UniformCohorts(n_clients, size)),
        st.lists(cohort, min_size=1, max_size=6).map(
            lambda members: fa.Cohorts(members, n_clients=n_clients)
        ),
    )


@st.composite
def mixture_parts(draw, max_clients=MAX_CLIENTS):
    """Draw the arguments of Mixture: laws over the same clients, and their probabilities."""
    n_clients = draw(st.integers(1, max_clients))
    laws = draw(st.lists(laws_over(n_clients), min_size=1, max_size=3))
    return laws, draw(importances(len(laws)))


def mixtures(max_clients=MAX_CLIENTS):
    return mixture_parts(max_clients).map(lambda arguments: fa.Mixture(*arguments))


def any_law(max_clients=MAX_CLIENTS):
    return st.one_of(
        explicit_laws(max_clients),
        uniform_laws(max_clients),
        independent_laws(max_clients),
        successive_laws(max_clients),
        mixtures(max_clients),
    )


@st.composite
def feasible_problems(draw, laws=None):
    """Draw a law and the marginal of a plan: of a softmax, or of arbitrary positive weights."""
    law = draw(any_law() if laws is None else laws)
    cohorts = enumerate_cohorts(law)
    if draw(st.booleans()):
        importance = brute.expected_weights(cohorts, draw(potentials(law.n_clients, (1.0, 5.0))))
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        importance = np.zeros(law.n_clients)
        for cohort, chance in cohorts.items():
            importance[list(cohort)] += float(chance) * rng.dirichlet(np.ones(len(cohort)))
    return Problem(normalised(importance), law, cohorts)


@st.composite
def tight_problems(draw, laws=None):
    """Draw the marginal of a lexicographic softmax of two levels, both of which get weight."""
    law = draw(any_law() if laws is None else laws)
    assume(law.n_clients >= 2)
    cohorts = enumerate_cohorts(law)
    first = draw(st.sets(st.integers(0, law.n_clients - 1), min_size=1, max_size=law.n_clients - 1))
    level = np.array([client not in first for client in range(law.n_clients)], dtype=np.int64)
    x = draw(potentials(law.n_clients, (1.0, 3.0)))
    importance = brute.expected_weights(cohorts, x, level)
    assume(0.01 < importance[level == 0].sum() < 0.99)
    return Problem(normalised(importance), law, cohorts)


@st.composite
def infeasible_problems(draw, laws=None):
    """Draw a law, a set of clients that cohorts often miss, and give it too much importance."""
    law = draw(any_law() if laws is None else laws)
    cohorts = enumerate_cohorts(law)
    order = draw(permutations(law.n_clients))
    covered = np.array([brute.coverage(cohorts, order[: k + 1]) for k in range(order.size)])
    often_missed = np.flatnonzero(covered < 0.9)
    assume(often_missed.size > 0)
    planted = order[: draw(st.integers(1, int(often_missed[-1]) + 1))]
    share = covered[planted.size - 1]
    share += draw(st.floats(0.05, 1.0)) * (1.0 - share)
    others = np.setdiff1d(np.arange(order.size), planted)
    importance = np.zeros(order.size)
    importance[planted] = share * draw(importances(planted.size))
    importance[others] = (1.0 - share) * draw(importances(others.size))
    return Planted(normalised(importance), law, cohorts, frozenset(planted.tolist()))


def enumerate_cohorts(law):
    """Return every cohort's probability, given that it is not empty, from the law's parameters."""
    if isinstance(law, fa.Mixture):
        return mix([enumerate_cohorts(part) for part in law.laws], law.probabilities)
    chances = unconditional(law)
    total = sum(chances.values())
    return {cohort: chance / total for cohort, chance in chances.items()}


def enumerate_mixture(laws, probabilities):
    """Return a mixture's cohorts: states by all rounds, then the whole given A ≠ ∅."""
    chances = mix([unconditional(law) for law in laws], probabilities)
    total = sum(chances.values())
    return {cohort: chance / total for cohort, chance in chances.items()}


def mix(tables, weights):
    mixed = {}
    for table, weight in zip(tables, weights, strict=True):
        for cohort, chance in table.items():
            mixed[cohort] = mixed.get(cohort, np.longdouble(0)) + np.longdouble(weight) * chance
    return {cohort: chance for cohort, chance in mixed.items() if chance > 0}


def unconditional(law):
    """Return the probability of every non-empty cohort, over all rounds."""
    match law:
        case fa.Cohorts():
            ends = law.incidence.offsets
            rows = [law.incidence.members[a:b].tolist() for a, b in itertools.pairwise(ends)]
            return enumerate_list(rows, law.probabilities)
        case fa.UniformCohorts():
            cohorts = itertools.combinations(range(law.n_clients), law.size)
            count = math.comb(law.n_clients, law.size)
            return {frozenset(cohort): np.longdouble(1) / count for cohort in cohorts}
        case fa.IndependentClients():
            return _independent(np.asarray(law.probabilities, dtype=np.longdouble))
        case fa.SuccessiveDraws():
            return _successive(np.asarray(law.rates, dtype=np.longdouble), law.size)
    raise TypeError(f"no enumeration for {law!r}")


def enumerate_list(members, probabilities):
    return mix([{frozenset(cohort): np.longdouble(1)} for cohort in members], probabilities)


def _independent(chances):
    cohorts = {frozenset(): np.longdouble(1)}
    for client, chance in enumerate(chances):
        present = {cohort | {client}: q * chance for cohort, q in cohorts.items()}
        absent = {cohort: q * (1 - chance) for cohort, q in cohorts.items()}
        cohorts = {cohort: q for cohort, q in (absent | present).items() if q > 0}
    return {cohort: q for cohort, q in cohorts.items() if cohort}


def _successive(rates, size):
    cohorts = {}
    for sequence in itertools.permutations(np.flatnonzero(rates).tolist(), size):
        chance, drawn = np.longdouble(1), set()
        for client in sequence:
            chance *= rates[client] / sum(r for k, r in enumerate(rates) if k not in drawn)
            drawn.add(client)
        cohorts[frozenset(sequence)] = cohorts.get(frozenset(sequence), np.longdouble(0)) + chance
    return cohorts


LAWS = {
    "cohorts": explicit_laws(8),
    "uniform": uniform_laws(),
    "independent": independent_laws(),
    "mixture": mixtures(),
    "successive": successive_laws(),
}
"""One strategy for small laws of each kind."""
