"""The clients that each round asks and their weights, as rectangular arrays.

Cohorts come from the problem's availability, members and weights from the rule; both depend only on
the seed, so a resumed run asks the same clients again. What the library's own laws and rules give
is trusted, what a caller's function gives is checked. Rounds are padded to the length of the
largest: absent places hold the client index n_clients and weight 0.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.errors import CohortError, InputError, RuleError
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

    def realised(self, rounds: int) -> Floats:
        """Return each client's mean weight in the first rounds, over those that asked any client.

        Shape (n_seeds, n_clients); rows sum to one if the rule's weights do.
        """
        active = (self.members[:, :rounds] < self.n_clients).any(axis=2).sum(axis=1)
        return np.asarray(self._total(rounds, self.weights) / np.maximum(active, 1)[:, None])

    def trained(self, rounds: int) -> NDArray[np.bool_]:
        """Return which clients the first rounds asked, shape (n_seeds, n_clients)."""
        return self._total(rounds, np.ones_like(self.weights)) > 0

    def _total(self, rounds: int, values: Floats) -> Floats:
        """Return the sum of each client's values in the first rounds."""
        n_seeds, width = self.members.shape[0], self.n_clients + 1
        cells = self.members[:, :rounds] + width * np.arange(n_seeds)[:, None, None]
        total = np.bincount(cells.ravel(), values[:, :rounds].ravel(), minlength=n_seeds * width)
        return np.asarray(total.reshape(n_seeds, width)[:, :-1])


def schedule(problem: Problem, rule: Rule, seeds: Sequence[int], rounds: int) -> Schedule:
    """Draw the cohorts of every seed, and apply the rule's choice.

    Cohorts follow from (seed, 0), the rule's own draws from (seed, 1): rules compared on one seed
    see the same cohorts.
    """
    task, name = problem.task, f"rule {rule.name!r}"
    if rule.n_clients not in (None, task.n_clients):
        raise RuleError(
            f"{name} was made for {rule.n_clients} clients, and task {task.name!r} has "
            f"{task.n_clients}; build it for these clients"
        )
    choices = []
    for seed in seeds:
        cohorts = _cohorts(problem, seed, rounds)
        choice: Any = rule.choose(cohorts, np.random.default_rng([seed, 1]))
        if isinstance(choice, list) and all(isinstance(one, Asked) for one in choice):
            choice = [one.members for one in choice], [one.weights for one in choice]
        elif not isinstance(choice, Asked):
            raise RuleError(f"{name} must choose a list of Asked, one per round")
        members, sizes = _joined(choice[0], f"members that {name} chose", RuleError)
        weights, lengths = _joined(choice[1], f"weights that {name} gave", RuleError)
        if not sizes.size == lengths.size == rounds:
            raise RuleError(f"{name} chose {lengths.size} times in {rounds} rounds")
        odd = np.flatnonzero(sizes != lengths)
        if odd.size or weights.dtype.kind not in "fiu":
            at = odd[0] if odd.size else 0
            raise RuleError(
                f"{name} gave {lengths[at]} weights of type {weights.dtype} to {sizes[at]} members "
                f"in round {at + 1}; each member needs one number"
            )
        if not _is_ours(rule.choose):
            _refuse_strangers(members, sizes, task, name)
        choices.append((members, weights, sizes))
    members, weights, sizes = map(np.concatenate, zip(*choices, strict=True))
    if not members.size:
        raise CohortError(f"{name} asks no client in any of {rounds} rounds")
    bad = np.flatnonzero(~(np.abs(weights) <= float(np.finfo(task.dtype).max)))
    if bad.size:
        number = np.searchsorted(np.cumsum(sizes), bad[0], side="right") % rounds + 1
        raise RuleError(
            f"{name} gave client {task.label(members[bad[0]])} the weight {weights[bad[0]]} in "
            f"round {number}; it must be finite in {task.dtype}"
        )
    present = np.arange(sizes.max()) < sizes[:, None]
    table, values = np.full(present.shape, task.n_clients, np.int32), np.zeros(present.shape)
    table[present], values[present] = members, weights
    cut = (len(choices), rounds, -1)
    return Schedule(table.reshape(cut), values.reshape(cut), task.n_clients)


def _is_ours(function: Callable[..., Any]) -> bool:
    """Return whether a function is the library's own."""
    return str(getattr(function, "__module__", "")).startswith("fedavot.")


def _cohorts(problem: Problem, seed: int, rounds: int) -> list[Integers]:
    """Return the cohorts that a seed's rounds draw from the availability."""
    source = f"the availability of seed {seed}"
    cohorts = problem.availability(np.random.default_rng([seed, 0]), rounds)
    members, sizes = _joined(cohorts, f"cohorts that {source} gave", CohortError)
    if sizes.size != rounds:
        raise CohortError(f"{source} gave {sizes.size} cohorts for {rounds} rounds")
    if not members.size:
        raise CohortError(f"{source} has no participants in any of {rounds} rounds")
    if not _is_ours(problem.availability):
        _refuse_strangers(members, sizes, problem.task, source)
    # All of one type, even empty ones: rules index by cohorts, and cache by their bytes.
    members = members.astype(np.int64)
    if (sizes == sizes[0]).all():
        return list(members.reshape(rounds, -1))
    ends = itertools.accumulate(sizes.tolist(), initial=0)
    return [members[begin:end] for begin, end in itertools.pairwise(ends)]


def _joined(rows: Any, what: str, error: type[InputError]) -> tuple[NDArray[Any], Integers]:
    """Return the entries of all rounds one after another, and their number in each round."""
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows.ravel(), np.full(len(rows), rows.shape[1])
    try:
        parts = list(rows)
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        # Empty parts may be arrays of floats, as NumPy makes of an empty list.
        entries = np.concatenate([part for part in parts if len(part)] or [np.zeros(0, np.int64)])
        if entries.ndim != 1:
            raise ValueError(f"they have {entries.ndim} axes")
    except (TypeError, ValueError) as cause:
        raise error(f"the {what} are not flat arrays, one per round: {cause}") from None
    return entries, sizes


def _refuse_strangers(members: NDArray[Any], sizes: Integers, task: Task, source: str) -> None:
    """Refuse members that are not distinct known clients in each round."""
    n_clients = task.n_clients
    if members.size and not np.issubdtype(members.dtype, np.integer):
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
