"""Deficiency and Hall ratio in exact arithmetic, by methods and code of their own.

Floats are taken as the rational numbers they are, and probabilities as integer masses over their
sum, so that nothing is ever rounded. A set of clients is the integer with those bits.

* A law given as a list of cohorts: all 2^N sets if there are few clients, else the minimum cut of
  importance -> clients -> cohorts -> probability, for p(J) − f(J) and, by Dinkelbach's iteration
  on h, for p(J) − h f(J).
* Uniform and independent clients too many to list: the sets that can be worst are prefixes of one
  order (docs/theory.md, section 4), each evaluated exactly.
"""

import functools
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

MOST_CLIENTS = 10
"""All sets of so many clients are tried one by one; from there on a flow is faster."""

Masses = dict[int, int]
"""From cohorts to probabilities, times an integer common to all."""
Coverage = Callable[[int], Fraction]


def integers(values: Iterable[float]) -> list[int]:
    """Return numbers times one power of two, as integers."""
    ratios = [float(value).as_integer_ratio() for value in values]
    common = max(below for _, below in ratios)
    return [above * (common // below) for above, below in ratios]


def as_set(clients: Iterable[int]) -> int:
    """Return a set of clients as an integer."""
    return sum(1 << client for client in {int(client) for client in clients})


def members(number: int) -> list[int]:
    """Return the clients of a set."""
    return [client for client in range(number.bit_length()) if number >> client & 1]


def listed(cohorts: Sequence[Iterable[int]], probabilities: Iterable[float]) -> Masses:
    """Return the masses of a list of cohorts, in which a cohort may occur twice."""
    masses: Masses = defaultdict(int)
    for cohort, mass in zip(cohorts, integers(probabilities), strict=True):
        masses[as_set(cohort)] += mass
    return {cohort: mass for cohort, mass in masses.items() if mass}


def uniform(n_clients: int, size: int) -> Masses:
    """Return the masses of all cohorts of one size."""
    return {as_set(cohort): 1 for cohort in itertools.combinations(range(n_clients), size)}


def independent(probabilities: Sequence[float]) -> tuple[Masses, int]:
    """Return the masses of all non-empty cohorts, and the mass of those and the empty one."""
    one, *chances = integers((1.0, *probabilities))
    masses = {0: 1}
    for client, chance in enumerate(chances):
        absent = {cohort: mass * (one - chance) for cohort, mass in masses.items()}
        present = {cohort | 1 << client: mass * chance for cohort, mass in masses.items()}
        masses = {cohort: mass for cohort, mass in (absent | present).items() if mass}
    masses.pop(0, None)
    return masses, one ** len(chances)


def successive_pairs(rates: Sequence[float]) -> Masses:
    """Return the masses of pairs drawn one after the other by rates, without replacement."""
    whole = integers(rates)
    total = sum(whole)
    chances = {
        1 << a | 1 << b: Fraction(whole[a] * whole[b], total - whole[a])
        + Fraction(whole[a] * whole[b], total - whole[b])
        for a, b in itertools.combinations(range(len(whole)), 2)
        if whole[a] and whole[b]
    }
    common = math.lcm(*(chance.denominator for chance in chances.values()))
    return {
        cohort: chance.numerator * (common // chance.denominator)
        for cohort, chance in chances.items()
    }


def mixture(parts: Sequence[tuple[Masses, int]], weights: Iterable[float]) -> Masses:
    """Return the masses of a mixture of laws, each given with the mass of all its rounds."""
    product = math.prod(total for _, total in parts)
    masses: Masses = defaultdict(int)
    for (part, total), weight in zip(parts, integers(weights), strict=True):
        for cohort, mass in part.items():
            masses[cohort] += weight * mass * (product // total)
    return {cohort: mass for cohort, mass in masses.items() if mass}


@dataclass(frozen=True)
class Answer:
    """The largest p(J) − f(J) and p(J)/f(J) over all sets J; an infinite ratio is None."""

    deficiency: Fraction
    hall_ratio: Fraction | None


class Reference(ABC):
    """An importance and a law, of which sets can be evaluated and both maxima are known."""

    def __init__(self, importance: Iterable[float]) -> None:
        self.wanted = integers(importance)
        self.wanted_total = sum(self.wanted)

    def importance(self, clients: int) -> Fraction:
        """Return the importance of a set."""
        return Fraction(sum(self.wanted[i] for i in members(clients)), self.wanted_total)

    @abstractmethod
    def coverage(self, clients: int) -> Fraction:
        """Return the probability that a cohort meets the set."""

    @property
    @abstractmethod
    def answer(self) -> Answer:
        """Both maxima."""


class Listed(Reference):
    """The reference for a law given by the masses of its cohorts."""

    def __init__(self, importance: Iterable[float], masses: Masses) -> None:
        super().__init__(importance)
        self.masses = masses
        self.total = sum(masses.values())

    def coverage(self, clients: int) -> Fraction:
        """Return the probability that a cohort meets the set."""
        return Fraction(sum(m for cohort, m in self.masses.items() if cohort & clients), self.total)

    @cached_property
    def answer(self) -> Answer:
        """Both maxima."""
        return self._by_trying() if len(self.wanted) <= MOST_CLIENTS else self._by_flows()

    def _by_trying(self) -> Answer:
        count = len(self.wanted)
        avoided, wanted = [0] * (1 << count), [0] * (1 << count)
        for cohort, mass in self.masses.items():
            avoided[cohort] += mass
        for bit in (1 << client for client in range(count)):
            for number in range(1 << count):
                if number & bit:
                    avoided[number] += avoided[number ^ bit]
        largest, above, below = 0, 0, 1
        for number in range(1, 1 << count):
            low = number & -number
            wanted[number] = wanted[number ^ low] + self.wanted[low.bit_length() - 1]
            mine = wanted[number] * self.total
            covered = (self.total - avoided[~number & (1 << count) - 1]) * self.wanted_total
            largest = max(largest, mine - covered)
            if mine * below > above * covered:
                above, below = mine, covered
        deficiency = Fraction(largest, self.total * self.wanted_total)
        return Answer(deficiency, Fraction(above, below) if below else None)

    def _by_flows(self) -> Answer:
        met = functools.reduce(operator.or_, self.masses)
        unmet = as_set(i for i, mine in enumerate(self.wanted) if mine) & ~met
        shortfall, worst = self._cut(Fraction(1))
        ratio = None if unmet else Fraction(1)
        # Each cut that still falls short has a larger ratio than the last, and there are finitely
        # many sets.
        rest, clients = shortfall, worst
        while ratio is not None and rest > 0:
            ratio = self.importance(clients) / self.coverage(clients)
            rest, clients = self._cut(ratio)
        return Answer(shortfall, ratio)

    def _cut(self, ratio: Fraction) -> tuple[Fraction, int]:
        """Return the largest p(J) − ratio f(J) over all sets, and a set that has it."""
        up = self.total * ratio.denominator
        down = self.wanted_total * ratio.numerator
        flow, clients = max_flow(
            [mine * up for mine in self.wanted],
            [mass * down for mass in self.masses.values()],
            [members(cohort) for cohort in self.masses],
        )
        whole = self.wanted_total * up
        return Fraction(whole - flow, whole), as_set(clients)


class Prefixes(Reference):
    """The reference for uniform or independent clients, by the prefixes of their worst order.

    Parameters
    ----------
    importance : iterable of float
    order : sequence of int
        All clients; the worst sets are among its prefixes.
    coverage : callable
        The exact coverage of a set.
    """

    def __init__(
        self, importance: Iterable[float], order: Sequence[int], coverage: Coverage
    ) -> None:
        super().__init__(importance)
        self.order = order
        self._coverage = coverage

    def coverage(self, clients: int) -> Fraction:
        """Return the probability that a cohort meets the set."""
        return self._coverage(clients)

    @cached_property
    def answer(self) -> Answer:
        """Both maxima."""
        prefixes = list(itertools.accumulate((1 << i for i in self.order), operator.or_))
        pairs = [(self.importance(prefix), self.coverage(prefix)) for prefix in prefixes]
        infinite = any(mine > 0 and covered == 0 for mine, covered in pairs)
        ratio = None if infinite else max(mine / covered for mine, covered in pairs if covered)
        return Answer(max(mine - covered for mine, covered in pairs), ratio)


def uniform_prefixes(importance: Sequence[float], size: int) -> Prefixes:
    """Return the reference for uniform cohorts of one size."""
    count = len(importance)

    def coverage(clients: int) -> Fraction:
        return 1 - Fraction(math.comb(count - clients.bit_count(), size), math.comb(count, size))

    return Prefixes(importance, sorted(range(count), key=lambda i: -importance[i]), coverage)


def independent_prefixes(importance: Sequence[float], probabilities: Sequence[float]) -> Prefixes:
    """Return the reference for independent clients.

    The order is by logarithms, which are rounded: of two clients whose p_i/a_i are equal to
    rounding the wrong one may come first, and that changes either maximum by no more than that.
    """
    one, *chances = integers((1.0, *probabilities))

    def missed(clients: Iterable[int]) -> Fraction:
        absent = [one - chances[i] for i in clients]
        return Fraction(math.prod(absent), one ** len(absent))

    def rank(client: int) -> float:
        chance = probabilities[client]
        if importance[client] == 0 or chance == 1:
            return 0.0 if importance[client] else 1.0
        return -math.inf if chance == 0 else importance[client] / math.log1p(-chance)

    somebody = 1 - missed(range(len(chances)))
    order = sorted(range(len(chances)), key=rank)
    return Prefixes(importance, order, lambda clients: (1 - missed(members(clients))) / somebody)


def max_flow(
    supplies: Sequence[int], capacities: Sequence[int], cohorts: Sequence[Sequence[int]]
) -> tuple[int, list[int]]:
    """Send as much as possible from clients to the cohorts that have them, by Dinic's method.

    Returns
    -------
    int
        The amount that arrives.
    list of int
        The clients on the source's side of the smallest minimum cut.
    """
    network = _Network(supplies, capacities, cohorts)
    while network.reach():
        for client, left in enumerate(network.left):
            if left:
                network.left[client] -= network.push(client, left)
    reached = [client for client, depth in enumerate(network.client_depth) if depth >= 0]
    return sum(supplies) - sum(network.left), reached


class _Network:
    """Amounts that clients have left, that cohorts have room for, and that was sent."""

    def __init__(
        self, supplies: Sequence[int], capacities: Sequence[int], cohorts: Sequence[Sequence[int]]
    ) -> None:
        self.left, self.room = list(supplies), list(capacities)
        self.sent = [dict.fromkeys(cohort, 0) for cohort in cohorts]
        self.cohorts_of: list[list[int]] = [[] for _ in supplies]
        for number, cohort in enumerate(cohorts):
            for client in cohort:
                self.cohorts_of[client].append(number)

    def reach(self) -> bool:
        """Find how far clients and cohorts are from anything left; say if any in reach has room."""
        self.client_depth = [0 if left else -1 for left in self.left]
        self.cohort_depth = [-1] * len(self.room)
        self.untried = [iter(cohorts) for cohorts in self.cohorts_of]
        self.current = [next(untried, None) for untried in self.untried]
        layer, depth, found = [i for i, left in enumerate(self.left) if left], 0, False
        while layer and not found:
            met = {a for i in layer for a in self.cohorts_of[i] if self.cohort_depth[a] < 0}
            for cohort in met:
                self.cohort_depth[cohort] = depth + 1
                found = found or self.room[cohort] > 0
            layer = list(
                {j for a in met for j, x in self.sent[a].items() if x and self.client_depth[j] < 0}
            )
            depth += 2
            for client in layer:
                self.client_depth[client] = depth
        return found

    def push(self, client: int, amount: int) -> int:
        """Send up to an amount onward from a client along shortest ways; return what arrived."""
        arrived = 0
        while (cohort := self.current[client]) is not None:
            if self.cohort_depth[cohort] == self.client_depth[client] + 1:
                arrived += self._through(client, cohort, amount - arrived)
                if arrived == amount:
                    break
            self.current[client] = next(self.untried[client], None)
        return arrived

    def _through(self, client: int, cohort: int, amount: int) -> int:
        arrived = min(amount, self.room[cohort])
        self.room[cohort] -= arrived
        for other, amount_sent in list(self.sent[cohort].items()):
            if arrived == amount:
                break
            if amount_sent and self.client_depth[other] == self.cohort_depth[cohort] + 1:
                moved = self.push(other, min(amount - arrived, amount_sent))
                self.sent[cohort][other] -= moved
                arrived += moved
        self.sent[cohort][client] += arrived
        return arrived
