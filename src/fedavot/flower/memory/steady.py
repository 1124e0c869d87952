"""The steady rule, applied before the wrapped strategy, which gets θ + change from every client.

    change = α T + Σ w_i (u_i − α y_i),   u_i = θ_i − θ

All replies get the same floating-point arrays, so that their average is θ + change for any weights,
and FedAvgM, FedAdam and the like take their own step from there. Arrays of other types are averaged
by weight. A round is combined before the wrapped strategy sees it, and settled afterwards.

`fedavot.rules.held` implements the rule. With memories on the server, the clients' side of the rule
runs here, on rows of a file; see `on_clients` for memories that clients keep themselves.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from fedavot._checks import Floats, Integers
from fedavot.errors import CheckpointError
from fedavot.flower.memory.rows import Rows
from fedavot.flower.memory.wire import Layout, minus
from fedavot.flower.options import Memory
from fedavot.flower.worth.records import arrays_of
from fedavot.flower.worth.weigher import Weigher
from fedavot.rules._held_client import Model, reply_of, total
from fedavot.rules.held import Reply, ServerMemory, Step

_log = logging.getLogger("flwr")

NOT_SAVED = ("importance", "constants")
"""Fields of `ServerMemory` that come from the weigher and the options."""

SAME = 1e-9
"""Relative difference up to which an importance counts as unchanged."""

PER_CLIENT = ("accepted", "gains", "masses", "written")
"""Fields with one number per client; only those of clients that have replied are saved."""


class SteadyMemory:
    """What memories on the server and on clients have in common.

    Parameters
    ----------
    model : ArrayRecord
        A model with the names, shapes and types of the arrays.
    options : Memory
        Constants of the rule.
    weigher : Weigher
        The clients, their indices and their importance.
    """

    def __init__(self, model: ArrayRecord, options: Memory, weigher: Weigher) -> None:
        self.layout, self._options, self._weigher = Layout(model), options, weigher
        self.where = options.where
        constants = {name: it for name, it in vars(options).items() if name != "where"}
        self.rule = ServerMemory.start([1.0], self.layout.zeros(), **constants)
        self._step: Step | None = None

    def prepare(self, number: int, messages: Mapping[str, Message]) -> None:
        """Begin a round, with the train messages by client name."""
        self.rule.rounds = number - 1

    def receive(self, replies: Iterable[Message]) -> list[Message]:
        """Return the replies of a round without the records that only the memory uses."""
        return list(replies)

    def unusable(self, usable: Mapping[str, Message]) -> dict[str, str]:
        """Return why some otherwise usable replies cannot be used with memory."""
        return {}

    def combine(
        self, usable: Mapping[str, Message], weights: Floats, model: ArrayRecord
    ) -> ArrayRecord:
        """Return θ + change, for the floating-point arrays."""
        amounts, clients = self._weigher.amounts, self._weigher.indices(list(usable))
        self.rule.reach(amounts / amounts.sum())
        start = self.layout.take(model)
        told = dict(zip(clients, self._replies(usable, clients, start), strict=True))
        self._step = self.rule.step(told, weigh=lambda _: weights)
        moved = start if self._step is None else total((1.0, start), (1.0, self._step.change))
        combined = ArrayRecord()
        self.layout.put(combined, moved)
        return combined

    def settle(self, *, accepted: bool) -> None:
        """End the round: keep the combined state if the wrapped strategy used it, or discard it."""
        self.rule.accept(self._step if accepted else None)
        self._step = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        held = {name: value for name, value in vars(self.rule).items() if name not in NOT_SAVED}
        heard = np.flatnonzero(self.rule.accepted)
        held |= {name: held[name][heard] for name in PER_CLIENT if name in held}
        shares = self.rule.importance[heard]
        return {"where": self.where, "heard": heard, "shares": shares, **held}

    def saved(self) -> None:
        """Do nothing: all state is in the checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a checkpoint."""
        if state["where"] != self.where:
            raise CheckpointError(
                f"the checkpoint has its memory on the {state['where']}, and this run on the "
                f"{self.where}; use memory={state['where']!r}, or start in another folder"
            )
        self._recover(state)
        heard = state["heard"]
        for name in vars(self.rule).keys() - set(NOT_SAVED):
            value = state[name]
            if name in PER_CLIENT:
                value = np.zeros(int(heard.max(initial=0)) + 1, value.dtype)
                value[heard] = state[name]
            setattr(self.rule, name, value)
        self.rule.check()
        amounts = self._weigher.amounts
        if heard.size and amounts.sum() > 0:
            self.rule.reach(amounts / amounts.sum())
            ratios = amounts[heard] / np.where(state["shares"] > 0, state["shares"], np.inf)
            if np.ptp(ratios) > SAME * ratios.max():
                self._reweigh(heard)

    def clear(self) -> None:
        """Delete what an earlier run without a checkpoint left behind."""

    def _recover(self, state: Mapping[str, Any]) -> None:
        """Check and complete the files that belong to a checkpoint."""

    def _reweigh(self, heard: Integers) -> None:
        """Handle clients that have replied whose importance differs from that in the mean."""
        _log.warning(
            "FedAVOT: the importance changed; the mean of the memories still has the earlier "
            "importance, and new updates count by the current one; with a half-life the "
            "difference fades"
        )

    def _replies(
        self, usable: Mapping[str, Message], clients: Sequence[int], start: Model
    ) -> list[Reply]:
        """Return the replies as the rule takes them, in their order."""
        raise NotImplementedError


class OnServer(SteadyMemory):
    """Memories in a file of rows on the server.

    Parameters
    ----------
    model, options, weigher
        As for `SteadyMemory`.
    folder : Path
        Folder of the file.
    """

    def __init__(self, model: ArrayRecord, options: Memory, weigher: Weigher, folder: Path) -> None:
        super().__init__(model, options, weigher)
        self._rows = Rows(folder, self.layout.size, self.layout.dtype)
        self._new: dict[int, tuple[Model | None, Model]] = {}
        count, each = len(weigher.clients), self._rows.bytes_for(1)
        self._rows.refuse_without_room(max(count, 1))
        in_all = f", {_size(count * each)} in total" if count else ""
        _log.info("FedAVOT: memory takes %s per client in %s%s", _size(each), folder, in_all)

    def settle(self, *, accepted: bool) -> None:
        """End the round; keep the new rows until `saved`."""
        step = self._step if accepted else None
        super().settle(accepted=accepted)
        rows = {}
        if step is not None:
            for client, gain in zip(step.cohort.tolist(), step.gains.tolist(), strict=True):
                old, news = self._new[client]
                held = [] if old is None else [(1.0, old)]
                rows[client] = self.layout.flat(total(*held, (gain, news)))
        self._new = {}
        self._rows.stage(rows)

    def state_dict(self) -> dict[str, Any]:
        """Write the journal, and return the state with the digests of the rows."""
        self._rows.write_journal(self.rule.rounds)
        own = {"digests": self._rows.digests, "bytes": self._rows.bytes_on_disk()}
        return {**super().state_dict(), **own}

    def saved(self) -> None:
        """Write the new rows to their file."""
        self._rows.commit()

    def _recover(self, state: Mapping[str, Any]) -> None:
        """Complete the rows from the journal, and check all of them."""
        self._rows.recover(int(state["rounds"]), int(state["bytes"]), state["digests"])

    def clear(self) -> None:
        """Delete the files of an earlier run."""
        self._rows.clear()

    def _reweigh(self, heard: Integers) -> None:
        """Recompute the mean with the current importance."""
        parts = [(0.0, self.layout.zeros())]
        for client in heard.tolist():
            (row,) = self._rows.read([client])
            share = float(self.rule.importance[client])
            parts.append((share * self.rule.request(client).fade, self.layout.parts(row)))
        if self.rule.heard > 0:
            self.rule.mean = total((1.0 / self.rule.heard, total(*parts)))

    def _replies(
        self, usable: Mapping[str, Message], clients: Sequence[int], start: Model
    ) -> list[Reply]:
        """Do the clients' part of the rule, and keep it until the round is settled."""
        found = []
        rows = zip(clients, self._rows.read(clients), usable.values(), strict=True)
        for client, row, reply in rows:
            request = self.rule.request(client)
            said = minus(self.layout.take(arrays_of(reply)), start)
            old = total((request.fade, self.layout.parts(row))) if request.accepted else None
            news = said if old is None else minus(said, old)
            self._new[client] = (old, news)
            found.append(reply_of(request, request.accepted, news, old))
        return found


def _size(count: int) -> str:
    """Return a number of bytes in a suitable unit."""
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1}
    name, unit = next(it for it in units.items() if count >= it[1] or it[0] == "bytes")
    return f"{count / unit:.3g} {name}"
