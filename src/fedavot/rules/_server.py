"""The steady rule on a server, in NumPy: rows of numbers in, the model's change out.

The formulas are those of `_memory`; who is remembered, whose memory expires and the trust come from
`_history`. Models are taken a part at a time, so that what is computed stays in the processor's
cache: the arrays of a round are read once, and nothing of the size of a model is made but the
result, the sum of the memories and the clients' new rows.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.rules._history import History, begin, gains, learn, trust
from fedavot.rules._rows import Rows

Array = NDArray[Any]
PART = 1 << 19
"""Numbers that are worked on at a time, over all clients of a round."""
MOST_THREADS = 4
"""More would wait for the computer's memory."""
FEW_PARTS = 8
"""Fewer parts than this are not worth threads."""
SAME = 1e-12
"""Difference, relative to the largest importance, up to which importance counts as unchanged."""


@dataclass(eq=False)
class ServerMemory:
    """The memories of the clients, and what is known about them.

    Attributes
    ----------
    importance : float array, shape (n_clients,)
        p.
    rows : Rows
        y_i, for every client that has a memory.
    total : array, shape (n_entries,)
        Σ p_i y_i over the clients with a memory.
    trust_given : float
        α; NaN if it is learnt.
    correction, damping : float
        κ and c.
    history : History
        Who was present when, and the evidence for α.
    """

    importance: Floats
    rows: Rows
    total: Array
    trust_given: float = float("nan")
    correction: float = 0.0
    damping: float = 0.0
    history: History = field(init=False)

    def __post_init__(self) -> None:
        seen = np.zeros(self.importance.size, np.int64)
        self.history = History(np.int64(0), seen, np.int64(1), np.zeros(3))

    @property
    def trust(self) -> float:
        """α of the next round."""
        return float(trust(self.history) if np.isnan(self.trust_given) else self.trust_given)

    def drift(self, client: int) -> Array | None:
        """Return what a client may add to its gradients, κ (y_i − ŷ); None without a memory."""
        if not self.correction or self.history.seen[client] <= 0:
            return None
        row = np.empty_like(self.total)
        self.rows.read(client, 0, row)
        mean = self.total / self.share(self.history.seen > 0)
        return np.asarray(self.correction * (row - mean), self.total.dtype)

    def share(self, counts: NDArray[np.bool_]) -> float:
        """Return the importance of the clients that count; 1 if there are none."""
        return float(self.importance[counts].sum()) or 1.0

    def reweigh(self, importance: Floats) -> None:
        """Set a new importance, also for clients that have joined.

        Where that of all remembered clients changes by one factor, as when others join, so does
        the total, and no row is read.
        """
        seen = np.pad(self.history.seen, (0, importance.size - self.history.seen.size))
        left = np.flatnonzero((seen > 0) & (importance == 0)).tolist()
        seen[importance == 0] = 0
        history = self.history._replace(seen=seen)
        known = np.flatnonzero(seen > 0)
        before = self.importance[known]
        factor = importance[known].sum() / (before.sum() or 1.0)
        changes = np.abs(importance[known] - factor * before)
        if not left and changes.max(initial=0.0) <= SAME * importance.max():
            total = self.total * self.total.dtype.type(factor)
        else:
            total, row = np.zeros(self.total.size), np.empty_like(self.total)
            for client in known.tolist():
                self.rows.read(client, 0, row)
                total += importance[client] * row
        for client in left:
            self.rows.forget(client)
        self.history, self.importance = history, importance
        self.total = total.astype(self.total.dtype)


class Round:
    """A round of a `ServerMemory`: `change` for each stretch of the model's entries, then `end`.

    The memory is unchanged until `end`; a round that is not ended never was.

    Parameters
    ----------
    memory : ServerMemory
        The memory after the round before.
    cohort : int array, shape (n_members,)
        Distinct clients, at least one.
    weights : float array, shape (n_members,)
        Y.
    spans : float array, shape (n_members,)
        H η of each: local steps times their size.
    corrected : bool array, shape (n_members,)
        Who added `ServerMemory.drift` to its gradients.
    """

    def __init__(
        self,
        memory: ServerMemory,
        cohort: Integers,
        weights: Floats,
        *,
        spans: Floats,
        corrected: NDArray[np.bool_],
    ) -> None:
        present = np.zeros(memory.importance.size, bool)
        present[cohort] = True
        self.kind = memory.total.dtype
        self._memory, self._cohort = memory, cohort.tolist()
        self._turn, self._history = begin(memory.history, present)
        self._expired = np.flatnonzero(self._turn.expired).tolist()
        self._back = self._turn.returning[cohort]
        self._trust, self._span = self.kind.type(memory.trust), self.kind.type(weights @ spans)
        before = memory.share(memory.history.seen > 0)
        part = float(weights @ self._back) / memory.share(self._turn.remembered)
        self._before, self._part = self.kind.type(1.0 / before), self.kind.type(part)
        gain = gains(self._turn.absence[cohort], memory.damping)
        sums = [weights, memory.importance[cohort] * gain, weights * self._back]
        self._sums = np.stack(sums).astype(self.kind)
        columns = 1.0 / spans, memory.correction * (self._back & corrected), gain
        self._scale, self._path, self._gain = (
            np.asarray(column, self.kind)[:, None] for column in columns
        )
        self._total = np.empty_like(memory.total)
        self._products = np.zeros(3)
        memory.rows.begin(self._cohort)

    def change(self, at: int, updates: Sequence[Array], base: Array | None, out: Array) -> None:
        """Write the change of the model's entries from ``at`` on into ``out``.

        Parameters
        ----------
        at : int
            Where these entries begin in a row.
        updates : sequence of n_members arrays, shape (n_entries,)
            The clients' updates; their models, if ``base`` is given.
        base : array of shape (n_entries,), optional
            The model that they started from.
        out : array of shape (n_entries,)
            Gets the change. It is not finite where some update is not.
        """
        step = max(PART // len(self._cohort), 1)

        def one(first: int) -> Floats:
            part = slice(first, min(first + step, out.size))
            new = np.empty((len(updates), part.stop - first), self.kind)
            with np.errstate(invalid="ignore", over="ignore"):
                for row, update in zip(new, updates, strict=True):
                    if base is None:
                        row[:] = update[part]
                    else:
                        np.subtract(update[part], base[part], out=row, dtype=self.kind)
                out[part], products = self._step(at + first, new)
            return products

        parts = range(0, out.size, step)
        # NumPy lets threads run at the same time. Parts are summed in their order, so that results
        # do not depend on the number of threads.
        with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as threads:
            results = map(one, parts) if len(parts) < FEW_PARTS else threads.map(one, parts)
            for products in results:
                self._products += products

    def _step(self, at: int, new: Array) -> tuple[Array, Floats]:
        """Return the change of some entries from their updates, and their part of the evidence."""
        memory, stretch = self._memory, slice(at, at + new.shape[1])
        old, total = np.empty_like(new), memory.total[stretch]
        for client, known, row in zip(self._cohort, self._back, old, strict=True):
            if known:
                memory.rows.read(client, at, row)
            else:
                row[:] = 0
        if (self._scale != 1.0).any():
            new *= self._scale
        if self._path.any():
            new += self._path * (old - self._before * total)
        for client in self._expired:
            row = np.empty_like(total)
            memory.rows.read(client, at, row)
            total = total - self.kind.type(memory.importance[client]) * row
        weights, shares, back = self._sums
        mean, stored = weights @ new, weights @ old
        self._total[stretch] = total + (shares @ new - shares @ old)
        change = self._span * (self._trust * (self._part * total - stored) + mean)
        if not self._back.all():
            mean = back @ new  # the rows of clients without a memory are zero
        if (self._gain != 1.0).any():
            new = old + self._gain * (new - old)
        for client, row in zip(self._cohort, new, strict=True):
            memory.rows.write(client, at, row)
        mean, stored = np.stack([mean, stored]).astype(np.float64)  # their squares may overflow
        return change, np.array([mean @ stored, stored @ stored, mean @ mean])

    def end(self) -> None:
        """Keep what the round decided, and the clients' updates."""
        self._memory.rows.end()
        for client in self._expired:
            self._memory.rows.forget(client)
        self._memory.total = self._total
        self._memory.history = learn(self._history, self._products, self._turn)
