"""Some rounds of the log, the share that each client should have in them, and sums over them.

In a round in which its state is unknown, a client's share (``owed``) is 0, and the importance of
the others is scaled to sum to one. With U_t for the clients whose state is unknown in round t and
p(U) for their importance,

    owed_i = mean over rounds t of  p_i / (1 − p(U_t)) where i ∉ U_t,  0 where i ∈ U_t.

Rounds without participants are left out, as in the whole audit.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.federation import Federation
from fedavot.laws.cohorts import Cohorts

Members = NDArray[np.int32]
MOST_ENTRIES, MOST_CLIENTS = 2_000_000, 2_000
"""A log that exceeds either number is large: fitting weights to its rounds would take minutes and
gigabytes."""
CHUNK = 1 << 20
"""Approximate number of entries processed at a time, to save memory."""


@dataclass(frozen=True, eq=False)
class Window:
    """Rounds with participants.

    Attributes
    ----------
    incidence : Incidence
        One row per round.
    rounds : int array, shape (n_rounds,)
        Their positions in the log.
    importance : float array, shape (n_clients,)
        The importance of each client.
    unknown : Incidence or None
        The clients whose state is unknown in each round.
    """

    incidence: Incidence
    rounds: Integers
    importance: Floats
    unknown: Incidence | None

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return self.rounds.size

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self.importance.size

    @cached_property
    def _scale(self) -> Floats:
        """1 / (1 − p(U_t)) for every round; 0 if all importance is unknown."""
        if self.unknown is None:
            return np.ones(self.n_rounds)
        hidden = total_by(
            self._unknown_rounds, self.importance[self.unknown.members], self.n_rounds
        )
        known = 1.0 - hidden
        seen = known > 1e-12
        return np.where(seen, 1.0 / np.where(seen, known, 1.0), 0.0)

    @cached_property
    def _unknown_rounds(self) -> Integers:
        assert self.unknown is not None
        return self.unknown.spread_over_members(np.arange(self.n_rounds))

    @property
    def large(self) -> bool:
        """Whether the log is too large to fit weights to single rounds."""
        return self.incidence.members.size > MOST_ENTRIES or self.n_clients > MOST_CLIENTS

    @property
    def known(self) -> float:
        """Share of the importance that is observed, over all rounds."""
        if self.unknown is None:
            return 1.0
        return 1.0 - float(self.importance[self.unknown.members].sum()) / self.n_rounds

    @cached_property
    def owed(self) -> Floats:
        """Mean share that each client should have, shape (n_clients,); it sums to one."""
        if self.unknown is None:
            return self.importance
        owed = self.owed_in(np.ones(self.n_rounds, dtype=bool))
        # If no client with importance is ever observed, use the importance itself.
        return owed / owed.sum() if owed.sum() > 0 else self.importance

    def owed_in(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return the sum of each client's ``owed`` over some rounds, shape (n_clients,)."""
        scale = np.where(chosen, self._scale, 0.0)
        if self.unknown is None:
            return np.asarray(self.importance * scale.sum())
        lost = total_by(self.unknown.members, scale[self._unknown_rounds], self.n_clients)
        # Against rounding: the share of a client unknown in all of them is exactly 0.
        left = np.where(lost < scale.sum() * (1.0 - 1e-12), scale.sum() - lost, 0.0)
        return np.asarray(self.importance * left)

    def owed_by_round(self, values: Floats) -> Floats:
        """Return Σ_i values_i owed_ti for every round t, shape (n_rounds,)."""
        total = float(values @ self.importance)
        if self.unknown is None:
            return np.full(self.n_rounds, total)
        entries = (values * self.importance)[self.unknown.members]
        return self._scale * (total - total_by(self._unknown_rounds, entries, self.n_rounds))

    @cached_property
    def taken(self) -> Integers:
        """Number of rounds in which each client took part, shape (n_clients,)."""
        members = self.incidence.members
        taken = np.zeros(self.n_clients, dtype=np.int64)
        # In chunks: counting makes a copy with wider integers.
        for _, entries in self.chunks():
            taken += np.bincount(members[entries], minlength=self.n_clients)
        return taken

    def counts(self) -> tuple[Floats, Floats]:
        """Return in how many rounds each client took part, and in how many its state is known."""
        known = np.full(self.n_clients, float(self.n_rounds))
        if self.unknown is not None:
            known -= self.unknown.counts()
        return self.taken.astype(np.float64), known

    def mean_weights(self, weights: Floats) -> Floats:
        """Return each client's mean weight, from one weight per entry, shape (n_clients,)."""
        everywhere = np.ones(self.n_rounds, dtype=bool)
        return np.asarray(self.total_in(weights, everywhere) / self.n_rounds)

    def sum_by_round(self, entries: Floats) -> Floats:
        """Return the sum over each round's members, shape (n_rounds,)."""
        return np.add.reduceat(entries, self.incidence.offsets[:-1])

    def signed_by_round(self, signs: Floats, weights: Floats) -> Floats:
        """Return Σ_i signs_i weight_i of each round, shape (n_rounds,)."""
        sums = np.empty(self.n_rounds)
        members, offsets = self.incidence.members, self.incidence.offsets
        for rounds, entries in self.chunks():
            products = signs[members[entries]] * weights[entries]
            sums[rounds] = np.add.reduceat(products, offsets[rounds] - entries.start)
        return sums

    def total_in(self, weights: Floats, chosen: NDArray[np.bool_]) -> Floats:
        """Return the sum of each client's weights in some rounds, shape (n_clients,)."""
        members, sizes = self.incidence.members, self.incidence.sizes
        total = np.zeros(self.n_clients)
        for rounds, entries in self.chunks():
            part = weights[entries]
            if not chosen[rounds].all():
                part = np.where(np.repeat(chosen[rounds], sizes[rounds]), part, 0.0)
            total += total_by(members[entries], part, self.n_clients)
        return total

    def plain(self) -> Floats:
        """Return 1/|A| for every entry."""
        return np.repeat(1.0 / self.incidence.sizes, self.incidence.sizes)

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Cut the rounds into runs of about `CHUNK` entries: their rounds and their entries."""
        offsets = self.incidence.offsets
        wanted = np.arange(CHUNK, offsets[-1], CHUNK)
        cuts = np.unique([0, *np.searchsorted(offsets, wanted), self.n_rounds])
        for first, last in itertools.pairwise(cuts.tolist()):
            yield slice(first, last), slice(int(offsets[first]), int(offsets[last]))

    def law(self) -> Cohorts:
        """Return the rounds as an explicit law."""
        return Cohorts.of_rounds(self.incidence)

    def part(self, chosen: Integers) -> "Window":
        """Return some of the rounds, by ascending position in this window."""
        return Window(
            self.incidence.rows(chosen),
            self.rounds[chosen],
            self.importance,
            None if self.unknown is None else self.unknown.rows(chosen),
        )


def whole(federation: Federation) -> Window:
    """Return all rounds of a log that have participants."""
    log = federation.participation
    full = Window(
        log.cohorts,
        np.arange(log.n_rounds),
        federation.importance,
        log.unknown,
    )
    filled = np.flatnonzero(np.diff(log.offsets))
    return full if filled.size == log.n_rounds else full.part(filled)
