"""The clients that each round asks and their weights, as rectangular arrays.

Cohorts come from the problem's availability, members and weights from the rule; both depend only on
the seed, so a resumed run asks the same clients again. Rounds are padded to the length of the
largest: absent places hold the client index n_clients and weight 0.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, as_array
from fedavot.errors import CohortError, RuleError
from fedavot.rules._rule import Asked, Rule
from fedavot.training.task import Problem, Task


@dataclass(frozen=True, eq=False)
class Schedule:
    """Members and weights of every round and seed.

    Attributes
    ----------
    members : int array, shape (n_seeds, n_rounds, length)
        Clients asked; n_clients in absent places.
    weights : float array, shape (n_seeds, n_rounds, length)
        Weights of their updates; 0 in absent places.
    n_clients : int
        Number of clients.
    """

    members: NDArray[np.int32]
    weights: Floats
    n_clients: int

    @functools.cached_property
    def sizes(self) -> NDArray[np.int32]:
        """Largest number of clients that a seed asks, by round, shape (n_rounds,)."""
        return np.asarray((self.members < self.n_clients).sum(axis=2).max(axis=0), dtype=np.int32)

    @property
    def padded(self) -> bool:
        """Whether some round asks fewer clients than the largest."""
        return bool((self.members == self.n_clients).any())

    @property
    def alike(self) -> bool:
        """Whether every seed asks the same clients with the same weights."""
        return bool(
            (self.members == self.members[:1]).all() and (self.weights == self.weights[:1]).all()
        )

    def realised(self, rounds: int) -> Floats:
        """Return each client's mean weight in the first rounds, over those that asked any client.

        Shape (n_seeds, n_clients); rows sum to one if the rule's weights do.
        """
        n_seeds, n_clients = self.members.shape[0], self.n_clients
        cells = self.members[:, :rounds] + (n_clients + 1) * np.arange(n_seeds)[:, None, None]
        weights = self.weights[:, :rounds]
        total = np.bincount(
            cells.ravel(), weights.ravel(), minlength=n_seeds * (n_clients + 1)
        ).reshape(n_seeds, -1)[:, :n_clients]
        asked = (self.members[:, :rounds] < n_clients).any(axis=2).sum(axis=1)
        return np.asarray(total / np.maximum(asked, 1)[:, None])

    def trained(self, rounds: int) -> NDArray[np.bool_]:
        """Return which clients the first rounds asked, shape (n_seeds, n_clients)."""
        asked = np.zeros((self.members.shape[0], self.n_clients + 1), dtype=np.bool_)
        for seed, members in zip(asked, self.members, strict=True):
            seed[members[:rounds].ravel()] = True
        return asked[:, : self.n_clients]


class _Drawn(NamedTuple):
    """The members of all rounds of a seed, one after the other, and their number in each round."""

    members: Integers
    sizes: Integers


class _Asked(NamedTuple):
    """The members whom a seed's rounds ask, and their weights, in the same order."""

    drawn: _Drawn
    weights: NDArray[Any]


def schedule(problem: Problem, rule: Rule, seeds: Sequence[int], rounds: int) -> Schedule:
    """Draw the cohorts of every seed, and apply the rule's choice.

    Cohorts follow from (seed, 0), the rule's own draws from (seed, 1): rules compared on one seed
    see the same cohorts.
    """
    task = problem.task
    if rule.n_clients not in (None, task.n_clients):
        raise RuleError(
            f"rule {rule.name!r} was made for {rule.n_clients} clients, and task "
            f"{task.name!r} has {task.n_clients}; build it for these clients"
        )
    asked: list[_Asked] = []
    for seed in seeds:
        source = f"the availability of seed {seed}"
        given = problem.availability(np.random.default_rng([seed, 0]), rounds)
        table = given if isinstance(given, np.ndarray) and given.ndim == 2 else None
        cohorts = _cohorts(given, source) if table is None else list(table)
        if len(cohorts) != rounds:
            raise CohortError(
                f"the availability gave {len(cohorts)} cohorts for {rounds} rounds of seed {seed}"
            )
        drawn = _joined(cohorts, source) if table is None else _rows(table)
        _check(drawn, task, source)
        types = {one.dtype for one in (cohorts if table is None else [table])}
        # All of one type, even empty ones: rules index by cohorts, and cache by their bytes.
        if types != {np.dtype(np.int64)}:
            cohorts = [cohort.astype(np.int64) for cohort in cohorts]
        chosen = rule.choose(cohorts, np.random.default_rng([seed, 1]))
        if isinstance(chosen, Asked):
            asked.append(_all_at_once(chosen, drawn, task, rule.name))
        else:
            asked.append(_one_by_one(chosen, cohorts, drawn, task, rule.name))
    return _rectangle(asked, task, rounds, rule.name)


def _cohorts(given: Any, source: str) -> list[NDArray[Any]]:
    """Return the cohorts that an availability gave, as arrays."""
    where = f"{source} gave no list of cohorts"
    try:
        cohorts = list(given)
        if set(map(type, cohorts)) <= {np.ndarray}:
            return cohorts
        return [as_array(cohort, otherwise=where, error=CohortError) for cohort in cohorts]
    except TypeError as cause:
        raise CohortError(f"{where}: {cause}") from None


def _all_at_once(chosen: Asked, drawn: _Drawn, task: Task, name: str) -> _Asked:
    """Return the choice of a rule that gave one table for all rounds."""
    uneven = (
        f"rule {name!r} chose for all rounds at once, with rows of different lengths; return a "
        "list with one Asked per round"
    )
    members, weights = (as_array(part, otherwise=uneven, error=RuleError) for part in chosen)
    if members.ndim != 2 or weights.shape != members.shape:
        raise RuleError(
            f"rule {name!r} chose for all rounds at once, with members of shape {members.shape} "
            f"and weights of shape {weights.shape}; both need one row per round, with one column "
            "for each client asked"
        )
    _check_rounds(len(members), drawn, name)
    found = _rows(members)
    if not all(map(np.array_equal, found, drawn)):
        _check(found, task, f"rule {name!r}")
    return _Asked(found, _numbers(weights.ravel(), name))


def _one_by_one(
    chosen: Any, cohorts: Sequence[Integers], drawn: _Drawn, task: Task, name: str
) -> _Asked:
    """Return the choice of a rule that gave a list with one `Asked` per round."""
    if not (isinstance(chosen, list) and set(map(type, chosen)) <= {Asked}):
        raise RuleError(f"rule {name!r} must choose a list of Asked, one per round")
    _check_rounds(len(chosen), drawn, name)
    members = [one.members for one in chosen]
    if not _as_drawn(members, cohorts, drawn):
        source = f"rule {name!r}"
        drawn = _joined([np.asarray(one) for one in members], source)
        _check(drawn, task, source)
    weights = [one.weights for one in chosen]
    try:
        sizes = _sizes(weights)
        flat = np.concatenate(weights)
    except (TypeError, ValueError) as cause:
        raise RuleError(f"rule {name!r} gave weights that are not flat arrays: {cause}") from None
    other = np.flatnonzero(drawn.sizes != sizes)
    if other.size:
        raise RuleError(
            f"rule {name!r} gave {sizes[other[0]]} weights to {drawn.sizes[other[0]]} members in "
            f"round {other[0] + 1}"
        )
    return _Asked(drawn, _numbers(flat, name))


def _check_rounds(chosen: int, drawn: _Drawn, name: str) -> None:
    if chosen != drawn.sizes.size:
        raise RuleError(
            f"rule {name!r} chose {chosen} times in {drawn.sizes.size} rounds; choose must return "
            "one Asked per cohort, or one Asked with a row per cohort"
        )


def _numbers(weights: NDArray[Any], name: str) -> NDArray[Any]:
    """Return the weights of all rounds if they are numbers, one per member."""
    if weights.ndim != 1 or weights.dtype.kind not in "fiu":
        raise RuleError(
            f"rule {name!r} gave weights of type {weights.dtype} in {weights.ndim} dimensions; "
            "each round needs a flat array of floats"
        )
    return weights


def _as_drawn(members: Sequence[Any], cohorts: Sequence[Integers], drawn: _Drawn) -> bool:
    """Return whether a rule asks exactly the cohorts that were checked, none changed in place."""
    if any(map(operator.is_not, members, cohorts)):
        return False
    try:
        return b"".join(members) == drawn.members.tobytes()
    except TypeError:  # not contiguous, such as rows of an array in column order
        return False


def _rectangle(asked: list[_Asked], task: Task, rounds: int, name: str) -> Schedule:
    """Return the members asked and their weights, which must be finite in the task's precision."""
    sizes = np.concatenate([one.drawn.sizes for one in asked])
    length = max(int(sizes.max()), 1)
    places: Any = slice(None) if (sizes == length).all() else np.arange(length) < sizes[:, None]
    members = np.full((sizes.size, length), task.n_clients, np.int32)
    weights = np.zeros(members.shape)
    for table, parts in (
        (members, [one.drawn.members for one in asked]),
        (weights, [one.weights for one in asked]),
    ):
        flat = np.concatenate(parts)
        table[places] = flat.reshape(table.shape) if flat.size == table.size else flat
    bad = np.argwhere(~(np.abs(weights) <= float(np.finfo(task.dtype).max)))
    if bad.size:
        at = tuple(bad[0])
        raise RuleError(
            f"rule {name!r} gave client {task.label(members[at])} the weight {weights[at]} in "
            f"round {at[0] % rounds + 1}; it must be finite in {task.dtype}"
        )
    cut = (len(asked), rounds, length)
    return Schedule(members.reshape(cut), weights.reshape(cut), task.n_clients)


def _rows(table: NDArray[Any]) -> _Drawn:
    """Return the members of cohorts that are the rows of one array."""
    return _Drawn(table.flatten(), np.full(len(table), table.shape[1]))


def _joined(cohorts: Sequence[NDArray[Any]], source: str) -> _Drawn:
    """Return the members of cohorts that are separate arrays."""
    if {cohort.ndim for cohort in cohorts} - {1}:
        deep = [number for number, cohort in enumerate(cohorts) if cohort.ndim != 1]
        raise CohortError(
            f"{source} has a cohort of shape {cohorts[deep[0]].shape} in round {deep[0] + 1}; "
            "it must be a flat sequence of client indices"
        )
    sizes = _sizes(cohorts)
    # Empty cohorts may be arrays of floats, as NumPy makes of an empty list.
    filled = cohorts if sizes.all() else [one for one in cohorts if one.size] or cohorts
    return _Drawn(np.concatenate(filled), sizes)


def _check(drawn: _Drawn, task: Task, source: str) -> None:
    """Refuse members that are not distinct known clients."""
    n_clients, (members, sizes) = task.n_clients, drawn
    if not sizes.any():
        raise CohortError(f"{source} has no participants in any of {sizes.size} rounds")
    if not np.issubdtype(members.dtype, np.integer):
        raise CohortError(
            f"{source} gave members of type {members.dtype}, not client indices from 0 to "
            f"{n_clients - 1}"
        )
    unknown = members[(members < 0) | (members >= n_clients)]
    if unknown.size:
        raise CohortError(
            f"{source} has client {unknown[0]}, but clients run from 0 to {n_clients - 1}"
        )
    places = np.sort(np.repeat(np.arange(sizes.size), sizes) * n_clients + members)
    repeated = places[1:][places[1:] == places[:-1]]
    if repeated.size:
        number, client = divmod(int(repeated[0]), n_clients)
        raise CohortError(f"{source} has client {task.label(client)} twice in round {number + 1}")


def _sizes(arrays: Sequence[Any]) -> Integers:
    return np.fromiter(map(len, arrays), np.int64, len(arrays))
