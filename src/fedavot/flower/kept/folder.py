"""The folder of a run: participation log, checkpoint and memory."""

import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result, Strategy

import fedavot.flower.kept.checkpoint as saved
from fedavot._files import SEALED_FROM
from fedavot.errors import CheckpointError, FedavotError
from fedavot.flower.kept.log import ParticipationLog, Round
from fedavot.flower.kept.memory import ROWS, Memory
from fedavot.flower.who.identity import Names
from fedavot.flower.worth.replies import Inspector
from fedavot.flower.worth.weigher import Weigher

_log = logging.getLogger("flwr")

LOG = "participation.jsonl"
LOCK = "lock"

_HISTORIES = (
    "train_metrics_clientapp",
    "evaluate_metrics_clientapp",
    "evaluate_metrics_serverapp",
)


def lock(path: Path) -> int:
    """Open and lock a file; no other process or run can lock it until it is closed.

    A server that is believed dead may still be writing when the next one starts.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # this system has no such locks
        pass
    except OSError:
        os.close(number)
        raise CheckpointError(
            f"another run is writing to {path.parent}; stop it (flwr list, flwr stop RUN-ID), or "
            "choose another folder"
        ) from None
    return number


@dataclass(frozen=True)
class Parts:
    """The objects whose state a checkpoint holds."""

    strategy: Strategy
    weigher: Weigher
    names: Names
    inspector: Inspector


class RunFolder:
    """The files of one run.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    parts : Parts
        Objects whose state a checkpoint holds.
    checkpoints : bool
        Whether checkpoints are written; if not, there are only the log and the memory.

    Attributes
    ----------
    memory : Memory or None
        The last updates of the clients, if memory is used.
    """

    def __init__(self, folder: Path, parts: Parts, *, checkpoints: bool) -> None:
        self._folder = folder
        self._parts = parts
        self._checkpoints = checkpoints
        self._settings: list[dict[str, Any]] = []
        self._log: ParticipationLog | None = None
        self._unlock: Callable[[], object] = lambda: None
        self.memory: Memory | None = None

    def open(self, model: ArrayRecord, *, memory: bool, resume: bool) -> None:
        """Open the files; raise if they cannot be written or belong to another run."""
        # Models and updates are confidential.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._unlock = weakref.finalize(self, os.close, lock(self._folder / LOCK))
        try:
            self._open(model, memory=memory, resume=resume)
        except BaseException:
            self.close()
            raise

    def _open(self, model: ArrayRecord, *, memory: bool, resume: bool) -> None:
        kept = (saved.FILE, LOG, ROWS)
        existing = [name for name in kept if (self._folder / name).exists()]
        if existing and not resume:
            raise CheckpointError(
                f"{self._folder} holds {existing[0]} of an earlier run; continue that run with "
                "resume=True, or choose another folder"
            )
        if self._checkpoints:
            saved.refuse_unsaveable(self._parts.strategy)
        self._settings = saved.settings(self._parts.strategy)
        if memory:
            self.memory = self._open_memory(model)
        self._log = ParticipationLog(self._folder / LOG)

    def _open_memory(self, model: ArrayRecord) -> Memory:
        memory, count = Memory(self._folder, model), len(self._parts.weigher.clients)
        memory.refuse_without_room(max(count, 1))
        in_all = f", {memory.bytes_for(count) / 1e6:.3g} MB in total" if count else ""
        each = memory.bytes_for(1) / 1e6
        _log.info("FedAVOT: memory takes %.3g MB per client in %s%s", each, self._folder, in_all)
        return memory

    def close(self) -> None:
        """Release the folder for other runs."""
        self._unlock()

    def log(self, record: Round) -> None:
        """Append a round to the log."""
        assert self._log is not None
        self._log.append(record)
        if self.memory is not None and not self._checkpoints:
            self.memory.commit(len(self._parts.weigher.clients))

    def save(self, number: int, model: ArrayRecord, result: Result, *, evaluated: bool) -> None:
        """Write the checkpoint of a round after its training, or after its evaluation too."""
        packed, arrays = saved.pack_strategy(self._parts.strategy, self._settings)
        model_names, model_arrays = saved.pack_model(model)
        meta = {
            "round": number,
            "evaluated": evaluated,
            "model": model_names,
            "strategy": packed,
            "weigher": self._parts.weigher.state_dict(),
            "identity": {
                "answers": list(self._parts.names.answers.items()),
                "holders": self._parts.names.holders,
                "registered": sorted(self._parts.names.registered),
            },
            "norms": list(self._parts.inspector.norms),
            "random": saved.rng_states(),
            "memory": None if self.memory is None else self.memory.bytes_on_disk(),
            "results": {
                kind: [[at, dict(metrics)] for at, metrics in getattr(result, kind).items()]
                for kind in _HISTORIES
            },
        }
        arrays |= model_arrays
        if self.memory is not None:
            self.memory.write_journal(number)
            arrays |= {"memory": self.memory.total, "memory/digests": self.memory.digests}
        saved.Checkpoint(meta, arrays).save(self._folder)
        if self.memory is not None:
            self.memory.commit(len(self._parts.weigher.clients))

    def load(self, model: ArrayRecord) -> tuple[ArrayRecord, Result, int, bool]:
        """Return the model, the metrics, the number of the last round and whether it was evaluated.

        Without a checkpoint these are ``model``, no metrics, 0, and true.
        """
        assert self._log is not None
        if not (self._folder / saved.FILE).exists():
            self._log.cut(0)
            if self.memory is not None:
                self.memory.clear()
            return model, Result(), 0, True
        checkpoint = saved.Checkpoint.load(self._folder)
        try:
            return self._restore(checkpoint, model)
        except FedavotError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as cause:
            raise CheckpointError(
                f"the checkpoint in {self._folder} lacks what this run needs ({cause!r}); start in "
                "another folder"
            ) from cause

    def _restore(
        self, checkpoint: saved.Checkpoint, model: ArrayRecord
    ) -> tuple[ArrayRecord, Result, int, bool]:
        """Restore the state from a checkpoint; raise if it belongs to another run."""
        assert self._log is not None
        meta = checkpoint.meta
        if meta["version"] == 1:
            meta = _with_keys_of_version_2(meta)
        difference = self._parts.weigher.differs(meta["weigher"])
        remembered = meta["memory"] is not None
        if difference is None and remembered != (self.memory is not None):
            difference = f"it was written {'with' if remembered else 'without'} memory"
        if difference is not None:
            raise CheckpointError(
                f"the checkpoint in {self._folder} belongs to another run: {difference}"
            )
        arrays = saved.unpack_model(meta["model"], checkpoint.arrays, model)
        saved.unpack_strategy(self._parts.strategy, meta["strategy"], checkpoint.arrays)
        self._parts.weigher.restore(meta["weigher"])
        identity = meta["identity"]
        self._parts.names.answers = {int(node): name for node, name in identity["answers"]}
        self._parts.names.holders = dict(identity["holders"])
        self._parts.names.registered = set(identity["registered"])
        self._parts.inspector.norms.extend(meta["norms"])
        number = int(meta["round"])
        if self.memory is not None:
            self.memory.total = checkpoint.arrays["memory"]
            n_clients, digests = len(self._parts.weigher.clients), None
            if meta["version"] >= SEALED_FROM:
                digests = checkpoint.arrays["memory/digests"]
            self.memory.recover(number, n_clients, meta["memory"], digests)
        self._log.cut(number)
        saved.set_rng_states(meta["random"])
        result = Result()
        for kind in _HISTORIES:
            history = {at: MetricRecord(values) for at, values in meta["results"][kind]}
            getattr(result, kind).update(history)
        return arrays, result, number, bool(meta["evaluated"])


def _with_keys_of_version_2(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a checkpoint of version 1 under the keys of version 2."""
    weigher = dict(meta["weigher"])
    weigher["clients"] = weigher.pop("names")
    return meta | {"weigher": weigher, "identity": meta["names"]}
