"""The steady rule on a server, in NumPy: rows of numbers in, the model's change out.

What a round does is in `_history.decide`. Models are taken a part at a time, so that what is
computed stays in the processor's cache: the arrays of a round are read once, and nothing of the
size of a model is made but the result and new rows. The sums of the memories are rows beside those
of the clients.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedavot.rules._history as core
from fedavot._checks import Floats, Integers
from fedavot.rules._history import PAIRS, Constants, History
from fedavot.rules._rows import Rows

Array = NDArray[Any]
PART = 1 << 21
"""Numbers that are worked on at a time, over all rows of a round."""
PRODUCT = 1 << 18
"""Multiplications in a matrix product up to which BLAS uses no threads of its own."""
SHORTEST = 1 << 13
"""Entries of a model that are worked on at a time, at least: calls take time too."""
MOST_THREADS = 4
"""More would wait for the computer's memory."""
FEW_PARTS = 8
"""Fewer parts than this are not worth threads."""
TOTAL, USUAL, SHIFT = SUMS = -1, -2, -3
"""The rows of Σ p_i y_i and Σ a_i y_i over the clients with a memory, a the attendance, and of m;
they are there once there was a round."""
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
        y_i, for every client that has a memory, and their sums.
    constants : Constants
        α, κ and c.
    history : History
        Who was present when, and the evidence for trust and tilt.
    """

    importance: Floats
    rows: Rows
    constants: Constants
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = core.nothing(np, self.importance.size)

    @property
    def trust(self) -> float:
        """α of the next round."""
        return float(core.trust(self.history, self.constants.trust))

    def tilt(self) -> float:
        """Return s of the next round, if its cohort has no part of the importance."""
        return float(core.tilt(self.history, given=self.constants.trust))

    def drift(self, client: int) -> Array | None:
        """Return what a client may add to its gradients, κ (y_i − ŷ); None without a memory."""
        if not self.constants.correction or self.history.seen[client] <= 0:
            return None
        mean = core.mean_factor(self.importance, self.history.seen > 0) * self._row(TOTAL)
        return np.asarray(self.constants.correction * (self._row(client) - mean), self.rows.dtype)

    def _row(self, client: int) -> Array:
        row = np.empty(self.rows.size, self.rows.dtype)
        self.rows.read(client, 0, row)
        return row

    def _sum(self, amounts: Floats, clients: Integers) -> Array:
        """Return the sum of these clients' rows, each times its amount."""
        total = np.zeros(self.rows.size)
        for client in clients.tolist():
            total += amounts[client] * self._row(client)
        return total

    def reweigh(self, importance: Floats) -> None:
        """Set a new importance, also for clients that have joined.

        Where that of all remembered clients changes by one factor, as when others join, so does
        the total, and no row is read.
        """
        new = importance.size - self.importance.size
        seen, attended = (
            np.where(importance > 0, np.pad(values, (0, new)), 0)
            for values in (self.history.seen, self.history.attended)
        )
        known = np.flatnonzero(seen > 0)
        left = np.setdiff1d(np.flatnonzero(self.history.seen > 0), known).tolist()
        history = self.history._replace(seen=seen, attended=attended)
        before = self.importance[known]
        factor = float(importance[known].sum() / (before.sum() or 1.0))
        changes = np.abs(importance[known] - factor * before)
        if left or changes.max(initial=0.0) > SAME * importance.max():
            sums = {TOTAL: self._sum(importance, known)}
            sums |= {USUAL: self._sum(attended, known)} if left else {}
        else:
            sums = {TOTAL: self._row(TOTAL) * factor}
        if self.history.rounds:
            self.rows.begin(sums)
            for place, row in sums.items():
                self.rows.write(place, 0, row.astype(self.rows.dtype))
            self.rows.end()
        for client in left:
            self.rows.forget(client)
        self.history, self.importance = history, importance


class Round:
    """A round of a `ServerMemory`: `move` for each stretch of the model's entries, then `end`.

    The memory is unchanged until `end`; a round that is not ended never was.

    Parameters
    ----------
    memory : ServerMemory
        The memory after the round before.
    cohort : int array, shape (n_members,)
        Distinct clients, at least one.
    weights : float array, shape (n_members,)
        Y. The weights used are in the attribute of that name.
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
        self._memory, self._cohort = memory, cohort.tolist()
        self._turn, self._history = core.decide(
            memory.history, memory.importance, cohort, weights, memory.constants
        )
        self.weights, self.kind = self._turn.weights, memory.rows.dtype
        matrix = self._turn.matrix
        matrix[0] *= self.weights @ spans
        self._matrix = matrix.astype(self.kind)
        self._before = self.kind.type(core.mean_factor(memory.importance, memory.history.seen > 0))
        path = memory.constants.correction * (self._turn.returning & corrected)
        # Columns of ones and zeros change nothing.
        self._scale, self._path, self._gain = (
            column.astype(self.kind)[:, None] if (column != usual).any() else None
            for column, usual in ((1.0 / spans, 1.0), (path, 0.0), (self._turn.gains, 1.0))
        )
        self._products = np.zeros(len(PAIRS))
        # Room for what is computed of a part, for each thread, is made once: it would cost more
        # than the work itself to make it for every part.
        number, size = sum(matrix.shape), memory.rows.size
        self._piece = max(PRODUCT // matrix.size, 1)
        self._step_size = max(min(max(PART // number, SHORTEST), size), 1)
        self._threads = min(os.cpu_count() or 1, MOST_THREADS)
        if size < FEW_PARTS * self._step_size:
            self._threads = 1
        self._rooms = np.empty((self._threads, number, self._step_size), self.kind)
        memory.rows.begin([*self._cohort, *SUMS])

    def move(
        self, at: int, updates: Sequence[Array], base: Array, out: Array, *, are_models: bool
    ) -> None:
        """Write the model's entries from ``at`` on, after the round, into ``out``.

        Parameters
        ----------
        at : int
            Where these entries begin in a row.
        updates : sequence of n_members arrays, shape (n_entries,)
            The clients' updates, or their models.
        base : array of shape (n_entries,)
            The model before the round.
        out : array of shape (n_entries,)
            Gets the entries. They are not finite where some update is not.
        are_models : bool
            Whether ``updates`` are models that were trained from ``base``.
        """
        starts, step = range(0, out.size, self._step_size), self._step_size
        parts = [slice(start, min(start + step, out.size)) for start in starts]
        threads = self._threads if len(parts) >= FEW_PARTS else 1
        products = np.empty((len(parts), len(PAIRS)))

        def work(thread: int) -> None:
            mine = range(len(parts) * thread // threads, len(parts) * (thread + 1) // threads)
            for number, part in zip(mine, parts[mine.start : mine.stop], strict=True):
                room = self._rooms[thread, :, : part.stop - part.start]
                with np.errstate(invalid="ignore", over="ignore"):
                    for row, update in zip(room, updates, strict=False):
                        if are_models:
                            np.subtract(update[part], base[part], out=row, dtype=self.kind)
                        else:
                            row[:] = update[part]
                    change, products[number] = self._step(at + part.start, room)
                    np.add(change, base[part], out=out[part])

        # NumPy lets threads run at the same time. Products are summed in the order of their parts,
        # so that results do not depend on the number of threads.
        if threads > 1:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, range(threads)))
        else:
            work(0)
        for product in products:
            self._products += product

    def _step(self, at: int, room: Array) -> tuple[Array, Floats]:
        """Return the change of some entries from their updates, and their part of the evidence.

        The updates are the first rows of ``room``; what is computed lies in the others.
        """
        memory, size = self._memory, len(self._cohort)
        given, found = room[: 2 * size + 3], room[2 * size + 3 :]
        new, old, sums = given[:size], given[size : 2 * size], given[2 * size :]
        for client, row in zip((*self._cohort, *SUMS), given[size:], strict=True):
            memory.rows.read(client, at, row)
        if self._scale is not None:
            new *= self._scale
        if self._path is not None:
            new += self._path * (old - self._before * sums[0])
        for client in np.flatnonzero(self._turn.expired).tolist():
            parts = memory.importance[client], memory.history.attended[client]
            memory.rows.read(client, at, found[0])
            sums[:2] -= np.multiply.outer(np.array(parts, self.kind), found[0])
        # Threads of BLAS inside ours would wait for one another: it uses none in small products.
        whole = given.shape[1] // self._piece * self._piece
        pieces, results = (
            rows[:, :whole].reshape(len(rows), -1, self._piece).swapaxes(0, 1)
            for rows in (given, found)
        )
        np.matmul(self._matrix, pieces, out=results)
        np.matmul(self._matrix, given[:, whole:], out=found[:, whole:])
        rows = (*found, sums[2])
        products = [_dot(rows[i], rows[j]) for i, j in PAIRS]
        if self._gain is not None:
            new -= old
            new *= self._gain
            new += old
        for client, row in zip((*self._cohort, *SUMS), (*new, *found[1:4]), strict=True):
            memory.rows.write(client, at, row)
        return found[0], np.array(products)

    def end(self) -> None:
        """Keep what the round decided, and the clients' updates."""
        self._memory.rows.end()
        for client in np.flatnonzero(self._turn.expired).tolist():
            self._memory.rows.forget(client)
        self._memory.history = core.learn(self._history, self._products, self._turn)


def _dot(left: Array, right: Array) -> float:
    """Return the inner product, in double precision where single would overflow or vanish.

    It is no product of BLAS, which would use threads of its own.
    """
    product = float(np.einsum("j,j", left, right))
    if math.isfinite(product) and product:
        return product
    return float(np.einsum("j,j", left.astype(np.float64), right.astype(np.float64)))
