"""The folder of a run: participation log, checkpoint and memory."""

import copy
import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result, Strategy

import fedavot.flower.kept.checkpoint as saved
from fedavot.errors import CheckpointError, FedavotError
from fedavot.flower.kept.best import FILE as BEST
from fedavot.flower.kept.best import BestModel
from fedavot.flower.kept.log import ParticipationLog, Round
from fedavot.flower.kept.packing import Packer, unpack
from fedavot.flower.kept.state import StrategyState
from fedavot.flower.memory import memory_of
from fedavot.flower.memory.options import Memory
from fedavot.flower.memory.rows import ROWS
from fedavot.flower.memory.steady import SteadyMemory
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
    except ImportError:  # this system does not have such locks
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


@dataclass(kw_only=True)
class Progress:
    """How far a run has come.

    Attributes
    ----------
    number : int
        The last round that was trained; 0 before the first.
    model : ArrayRecord
        The global model after it.
    evaluated : bool
        Whether that model was evaluated.
    result : Result
        The metrics so far.
    configs : tuple of ConfigRecord
        The configurations of training and evaluation, which a strategy may change.
    """

    model: ArrayRecord
    configs: tuple[ConfigRecord, ConfigRecord]
    number: int = 0
    evaluated: bool = True
    result: Result = field(default_factory=Result)


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
    memory : SteadyMemory or None
        What is remembered of the clients, if memory is used.
    """

    def __init__(self, folder: Path, parts: Parts, *, checkpoints: bool) -> None:
        self._folder = folder
        self._parts = parts
        self._checkpoints = checkpoints
        self._state: StrategyState | None = None
        self._configs: list[dict[str, Any]] = []
        self._best: BestModel | None = None
        self._form: dict[str, list[Any]] = {}
        self._log: ParticipationLog | None = None
        self._unlock: Callable[[], object] = lambda: None
        self.memory: SteadyMemory | None = None

    def open(self, model: ArrayRecord, *, memory: Memory | None, resume: bool) -> None:
        """Open the files; raise if they cannot be written or belong to another run."""
        # Models and updates are confidential.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._unlock = weakref.finalize(self, os.close, lock(self._folder / LOCK))
        try:
            self._open(model, memory=memory, resume=resume)
        except BaseException:
            self.close()
            raise

    def _open(self, model: ArrayRecord, *, memory: Memory | None, resume: bool) -> None:
        kept = (saved.FILE, LOG, ROWS, BEST)
        # A run that was stopped before its first round leaves an empty log, and nothing to resume.
        paths = {name: self._folder / name for name in kept}
        existing = [name for name, at in paths.items() if at.exists() and at.stat().st_size]
        if existing and not resume:
            or_resume = "continue that run with resume=True, or " if self._checkpoints else ""
            raise CheckpointError(
                f"{self._folder} holds {existing[0]} of an earlier run; {or_resume}choose another "
                "folder"
            )
        self._form = saved.form_of(model)
        if self._checkpoints:
            self._state = StrategyState(self._parts.strategy)
        if memory is not None:
            known = self._parts.weigher
            self.memory = memory_of(model, memory, known, self._folder, resume=resume)
        self._log = ParticipationLog(self._folder / LOG)

    def close(self) -> None:
        """Release the folder for other runs."""
        self._unlock()

    def log(self, record: Round) -> None:
        """Append a round to the log."""
        assert self._log is not None
        self._log.append(record)
        if self.memory is not None and not self._checkpoints:
            self.memory.saved()

    def keep_best(self, metric: str) -> None:
        """Keep the best model by a metric as well."""
        self._best = BestModel(self._folder, metric)

    def save(self, run: Progress) -> None:
        """Write the checkpoint of a round after its training, or after its evaluation too."""
        assert self._state is not None
        if self._best is not None and run.evaluated:
            self._best.consider(run.number, run.model, run.result)
        packed, arrays = self._state.pack()
        model_names, model_arrays = saved.pack_model(run.model)
        configs = Packer("configs")
        meta = {
            "round": run.number,
            "evaluated": run.evaluated,
            "model": model_names,
            "form": self._form,
            "strategy": packed,
            "configs": configs.pack(self._changes(run.configs), "configs"),
            "random": saved.rng_states(),
            "results": {
                kind: [[at, dict(metrics)] for at, metrics in getattr(run.result, kind).items()]
                for kind in _HISTORIES
            },
        }
        arrays |= model_arrays | configs.arrays
        own = self._parts
        parts = ("weigher", own.weigher), ("names", own.names), ("inspector", own.inspector)
        for kind, part in (*parts, ("memory", self.memory)):
            packer = Packer(kind)
            meta[kind] = None if part is None else packer.pack(part.state_dict(), kind)
            arrays |= packer.arrays
        saved.Checkpoint(meta, arrays).save(self._folder)
        if self.memory is not None:
            self.memory.saved()

    def begin(self, run: Progress, *, resume: bool) -> None:
        """Begin a run, or restore it from its checkpoint, if ``resume`` and there is one."""
        assert self._log is not None
        self._configs = [copy.deepcopy(dict(config)) for config in run.configs]
        if not resume:
            return
        if not (self._folder / saved.FILE).exists():
            self._log.cut(0)
            if self.memory is not None:
                self.memory.clear()
            return
        checkpoint = saved.Checkpoint.load(self._folder)
        try:
            self._restore(checkpoint, run)
        except FedavotError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as cause:
            raise CheckpointError(
                f"the checkpoint in {self._folder} lacks what this run needs ({cause!r}); start in "
                "another folder"
            ) from cause

    def _restore(self, checkpoint: saved.Checkpoint, run: Progress) -> None:
        """Restore the state from a checkpoint; raise if it belongs to another run."""
        assert self._log is not None
        assert self._state is not None
        meta = checkpoint.meta
        # Our own arrays hold numbers and text; arrays of other types count as missing.
        own = {name: it for name, it in checkpoint.arrays.items() if it.dtype.kind in "biufU"}
        weighed = unpack(meta["weigher"], own)
        difference = self._parts.weigher.differs(weighed)
        remembered = meta["memory"] is not None
        if difference is None and remembered != (self.memory is not None):
            difference = f"it was written {'with' if remembered else 'without'} memory"
        if difference is not None:
            raise CheckpointError(
                f"the checkpoint in {self._folder} belongs to another run: {difference}"
            )
        saved.refuse_other_form(meta["form"], self._form)
        run.model = saved.unpack_model(meta["model"], checkpoint.arrays)
        saved.refuse_unusable(run.model, self._form, exact=self.memory is not None)
        self._state.load(meta["strategy"], checkpoint.arrays)
        self._parts.weigher.load_state_dict(weighed)
        for event in self._parts.weigher.events:
            _log.warning("FedAVOT: since the checkpoint was written, %s", event)
        self._parts.names.load_state_dict(unpack(meta["names"], own))
        self._parts.inspector.load_state_dict(unpack(meta["inspector"], own))
        run.number, run.evaluated = int(meta["round"]), bool(meta["evaluated"])
        if self.memory is not None:
            self.memory.load_state_dict(unpack(meta["memory"], own))
        self._log.cut(run.number)
        saved.set_rng_states(meta["random"])
        for kind in _HISTORIES:
            history = {at: MetricRecord(values) for at, values in meta["results"][kind]}
            getattr(run.result, kind).update(history)
        changes = unpack(meta["configs"], checkpoint.arrays)
        for config, (changed, removed) in zip(run.configs, changes, strict=True):
            config.update(changed)
            for key in removed:
                config.pop(key, None)

    def _changes(self, configs: tuple[ConfigRecord, ...]) -> list[Any]:
        """Return what a strategy changed in and removed from each configuration."""
        return [
            [
                {
                    key: value
                    for key, value in now.items()
                    if key not in before or value != before[key]
                },
                [key for key in before if key not in now],
            ]
            for before, now in zip(self._configs, configs, strict=True)
        ]
