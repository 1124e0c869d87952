"""The steady rule, applied before the wrapped strategy, which gets θ + change from every client.

    change = Σ_{i∈S} w_i u_i + α Σ_{i∈S} w_i (ŷ − y_i),   u_i = θ_i − θ

w lie between even weights and those learnt, Y, by the rule's tilt; what is not remembered, metrics
and the log have Y itself.

All replies get the same arrays, so that their average is θ + change for any weights, and FedAvgM,
FedAdam and the like take their own step from there. Integers and the running statistics of batch
normalisation are not remembered, and stay those of each reply. A round is combined before the
wrapped strategy sees it, and settled afterwards: if the strategy did not use it, the memory stays
as it was.

`fedavot.rules._server` has the rule, and `fedavot.rules._rows` the file of the memories. The
rest of the state is in the checkpoint.
"""

import logging
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from fedavot._checks import Floats
from fedavot.aggregator import AVERAGED
from fedavot.errors import OptionError, TooLargeError
from fedavot.flower.memory.correction import put_request, take_answer
from fedavot.flower.options import Memory
from fedavot.flower.worth.records import arrays_of, is_float, view
from fedavot.flower.worth.weigher import Weigher
from fedavot.rules._history import History
from fedavot.rules._rows import MARKS, ROWS, RowsOnDisk
from fedavot.rules._server import Round, ServerMemory
from fedavot.rules.ours import constants_of

_log = logging.getLogger("flwr")


class RunMemory:
    """The memory of a run.

    Parameters
    ----------
    model : ArrayRecord
        A model with the names, shapes and types of the arrays.
    options : Memory
        Constants of the rule.
    weigher : Weigher
        The clients, their indices and their importance.
    folder : Path
        Folder of the file.
    """

    def __init__(self, model: ArrayRecord, options: Memory, weigher: Weigher, folder: Path) -> None:
        arrays = {key: view(array) for key, array in model.items() if not key.endswith(AVERAGED)}
        self._forms = {key: (it.shape, it.dtype) for key, it in arrays.items() if is_float(it)}
        self._kind = np.result_type(np.float32, *(kind for _, kind in self._forms.values()))
        self._size = sum(math.prod(shape) for shape, _ in self._forms.values())
        self._corrects = options.correction > 0
        self._constants = constants_of(**vars(options))
        self._weigher, self._folder = weigher, folder
        self._memory: ServerMemory | None = None
        self._rows: RowsOnDisk | None = None
        self._round: Round | None = None
        self._correcting: set[str] = set()
        self._refuse_without_room()

    def prepare(self, messages: Mapping[str, Message]) -> None:
        """Add to the train messages, by client name, what clients need to correct their drift."""
        if not self._corrects:
            return
        memory = None if self._memory is None else self._current()
        for name, message in messages.items():
            client, drift = self._weigher.index(name), None
            if memory is not None and client is not None and name in self._correcting:
                drift = memory.drift(client)
            put_request(message, None if drift is None else self._record(drift))

    def receive(self, usable: Mapping[str, Message]) -> None:
        """Take out of the replies, by client name, which of the clients correct their drift."""
        if self._corrects:
            answers = {name: take_answer(reply) for name, reply in usable.items()}
            self._correcting -= answers.keys()
            self._correcting |= {name for name, corrects in answers.items() if corrects}

    def combine(
        self, usable: Mapping[str, Message], weights: Floats, model: ArrayRecord
    ) -> ArrayRecord:
        """Return θ + change, for the arrays that are remembered."""
        if missing := self._forms.keys() - model.keys():
            raise OptionError(
                f"the wrapped strategy sent a model without the array {min(missing)!r}; with "
                "memory it must send all of them"
            )
        cohort = np.array(self._weigher.indices(list(usable)))
        ones = np.ones(cohort.size)
        turn = Round(self._current(), cohort, weights, spans=ones, corrected=ones == 0)
        moved, at = np.empty(self._size, self._kind), 0
        for key in self._forms:
            start = view(model[key]).reshape(-1)
            trained = [view(arrays_of(reply)[key]).reshape(-1) for reply in usable.values()]
            turn.move(at, trained, start, moved[at : at + start.size], are_models=True)
            at += start.size
        self._round = turn
        return self._record(moved, as_model=True)

    def settle(self, *, accepted: bool) -> None:
        """End the round: remember it if the wrapped strategy used it."""
        if accepted and self._round is not None:
            self._round.end()
        self._round = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint about to be written; `saved` must follow."""
        state: dict[str, Any] = {"correcting": sorted(self._correcting), "mark": None}
        if self._memory is None or self._rows is None:
            return state
        places = self._rows.places
        return state | {
            "mark": self._rows.before_save(),
            "clients": np.array(list(places), np.int64),
            "places": np.array(list(places.values()), np.int64),
            "importance": self._memory.importance,
            "history": self._memory.history._asdict(),
        }

    def saved(self) -> None:
        """Protect the rows of the state that was saved last, in place of the one before."""
        if self._rows is not None:
            self._rows.after_save()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a checkpoint; raise if the rows are not those of it."""
        self._correcting = set(state["correcting"])
        if state["mark"] is None:
            self.clear()
            return
        places = dict(zip(state["clients"].tolist(), state["places"].tolist(), strict=True))
        memory = self._begin(state["importance"], mark=state["mark"], places=places)
        memory.history = History(**state["history"])

    def clear(self) -> None:
        """Delete the files of rounds that no checkpoint has."""
        for name in (ROWS, MARKS):
            (self._folder / name).unlink(missing_ok=True)

    def _current(self) -> ServerMemory:
        """Return the memory, with the importance that the clients have now."""
        shares = self._weigher.amounts / self._weigher.amounts.sum()
        if self._memory is None:
            return self._begin(shares)
        if not np.array_equal(shares, self._memory.importance):
            self._memory.reweigh(shares)
        return self._memory

    def _begin(self, importance: Floats, **saved: Any) -> ServerMemory:
        self._rows = RowsOnDisk(self._folder, self._size, self._kind, **saved)
        self._memory = ServerMemory(importance, self._rows, self._constants)
        return self._memory

    def _record(self, row: NDArray[Any], *, as_model: bool = False) -> ArrayRecord:
        """Return a row as arrays, which have the types of the model if it is one."""
        record, at = ArrayRecord(), 0
        for key, (shape, kind) in self._forms.items():
            size = math.prod(shape)
            with np.errstate(over="ignore"):  # the aggregate is checked for this
                values = row[at : at + size].astype(kind if as_model else self._kind)
            record[key] = Array(values.reshape(shape))
            at += size
        return record

    def _refuse_without_room(self) -> None:
        """Raise if the disk has no room for the clients that are known, and log what they take."""
        count, row = len(self._weigher.clients), self._size * self._kind.itemsize
        path, free = self._folder / ROWS, shutil.disk_usage(self._folder).free
        taken = path.stat().st_blocks * 512 if path.exists() else 0  # the file has holes
        if max(count, 1) * row > free + taken:
            raise TooLargeError(
                f"memory for {max(count, 1)} clients takes {max(count, 1) * row / 1e9:,.1f} GB, "
                f"and {self._folder} has {(free + taken) / 1e9:,.1f} GB left; use another folder, "
                "or leave out memory"
            )
        in_all = f", {_size(count * row)} in total" if count else ""
        _log.info("FedAVOT: memory takes %s per client in %s%s", _size(row), self._folder, in_all)


def _size(count: int) -> str:
    """Return a number of bytes in a suitable unit."""
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1}
    name, unit = next(it for it in units.items() if count >= it[1] or it[0] == "bytes")
    return f"{count / unit:.3g} {name}"
