"""The folder of a run: participation log, checkpoint and memory."""

import copy
import logging
import os
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result

import fedavot.flower.kept.checkpoint as saved
from fedavot.errors import CheckpointError, FedavotError
from fedavot.flower.kept.log import ParticipationLog, Round
from fedavot.flower.kept.packing import Arrays, Packer, unpack
from fedavot.flower.kept.state import StrategyState
from fedavot.flower.rounds import Rounds
from fedavot.rules._rows import MARKS

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
    """The files of one run; opening them raises if they cannot be written or are of another run.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    rounds : Rounds
        The rounds of the run; with the wrapped strategy, their state is what a checkpoint holds.
    model : ArrayRecord
        The first model.
    checkpoints : bool
        Whether checkpoints are written; if not, there are only the log and the memory.
    resume : bool
        Whether the folder may hold the files of an earlier start of the run.
    """

    def __init__(
        self, folder: Path, rounds: Rounds, model: ArrayRecord, *, checkpoints: bool, resume: bool
    ) -> None:
        self._folder, self._rounds, self._resume = folder, rounds, resume
        self._form = saved.form_of(model)
        self._state: StrategyState | None = None
        self._configs: list[dict[str, Any]] = []
        self._best: saved.BestModel | None = None
        # Models and updates are confidential.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._unlock = weakref.finalize(self, os.close, lock(folder / LOCK))
        try:
            if not resume:
                self._refuse_other_files(checkpoints=checkpoints)
            if checkpoints:
                self._state = StrategyState(rounds.strategy)
            self._log = ParticipationLog(folder / LOG)
        except BaseException:
            self.close()
            raise

    def _refuse_other_files(self, *, checkpoints: bool) -> None:
        # A run that was stopped before its first round leaves an empty log, and nothing to resume.
        paths = {name: self._folder / name for name in (saved.FILE, LOG, MARKS, saved.BEST)}
        existing = [name for name, at in paths.items() if at.exists() and at.stat().st_size]
        if existing:
            or_resume = "continue that run with resume=True, or " if checkpoints else ""
            raise CheckpointError(
                f"{self._folder} holds {existing[0]} of an earlier run; {or_resume}choose another "
                "folder"
            )

    def close(self) -> None:
        """Release the folder for other runs."""
        self._unlock()

    def log(self, record: Round) -> None:
        """Append a round to the log."""
        self._log.append(record)
        if self._rounds.memory is not None and self._state is None:
            self._rounds.memory.saved()

    def keep_best(self, metric: str) -> None:
        """Keep the best model by a metric as well."""
        self._best = saved.BestModel(self._folder, metric)

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
        for kind in ("weigher", "names", "inspector", "memory"):
            part, packer = getattr(self._rounds, kind), Packer(kind)
            meta[kind] = None if part is None else packer.pack(part.state_dict(), kind)
            arrays |= packer.arrays
        saved.save(self._folder, meta, arrays)
        if self._rounds.memory is not None:
            self._rounds.memory.saved()

    def begin(self, run: Progress) -> None:
        """Begin a run, or restore it from its checkpoint, if it resumes and there is one."""
        self._configs = [copy.deepcopy(dict(config)) for config in run.configs]
        if not self._resume:
            return
        if not (self._folder / saved.FILE).exists():
            self._log.cut(0)
            if self._rounds.memory is not None:
                self._rounds.memory.clear()
            return
        meta, arrays = saved.load(self._folder)
        try:
            self._restore(run, meta, arrays)
        except FedavotError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as cause:
            raise CheckpointError(
                f"the checkpoint in {self._folder} lacks what this run needs ({cause!r}); start in "
                "another folder"
            ) from cause

    def _restore(self, run: Progress, meta: dict[str, Any], arrays: Arrays) -> None:
        """Restore the state from a checkpoint; raise if it belongs to another run."""
        assert self._state is not None
        rounds = self._rounds
        # Our own arrays hold numbers and text; arrays of other types count as missing.
        own = {name: it for name, it in arrays.items() if it.dtype.kind in "biufU"}
        weighed = unpack(meta["weigher"], own)
        difference = rounds.weigher.differs(weighed)
        remembered = meta["memory"] is not None
        if difference is None and remembered != (rounds.memory is not None):
            difference = f"it was written {'with' if remembered else 'without'} memory"
        if difference is not None:
            raise CheckpointError(
                f"the checkpoint in {self._folder} belongs to another run: {difference}; continue "
                "as it began, or start in another folder"
            )
        saved.refuse_other_form(meta["form"], self._form)
        run.model = saved.unpack_model(meta["model"], arrays)
        saved.refuse_unusable(run.model, self._form, exact=rounds.memory is not None)
        self._state.load(meta["strategy"], arrays)
        rounds.weigher.load_state_dict(weighed)
        for event in rounds.weigher.events:
            _log.warning("FedAVOT: since the checkpoint was written, %s", event)
        rounds.names.load_state_dict(unpack(meta["names"], own))
        rounds.inspector.load_state_dict(unpack(meta["inspector"], own))
        run.number, run.evaluated = int(meta["round"]), bool(meta["evaluated"])
        if rounds.memory is not None:
            rounds.memory.load_state_dict(unpack(meta["memory"], own))
        self._log.cut(run.number)
        saved.set_rng_states(meta["random"])
        for kind in _HISTORIES:
            history = {at: MetricRecord(values) for at, values in meta["results"][kind]}
            getattr(run.result, kind).update(history)
        changes = unpack(meta["configs"], arrays)
        for config, (changed, removed) in zip(run.configs, changes, strict=True):
            config.update(changed)
            for key in removed:
                config.pop(key, None)

    def _changes(self, configs: tuple[ConfigRecord, ...]) -> list[Any]:
        """Return what a strategy changed in and removed from each configuration."""
        found = []
        for before, now in zip(self._configs, configs, strict=True):
            same = {key for key in now if key in before and now[key] == before[key]}
            changed = {key: value for key, value in now.items() if key not in same}
            found.append([changed, [key for key in before if key not in now]])
        return found
