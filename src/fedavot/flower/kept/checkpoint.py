"""Checkpoints: the state of a Flower run in one file, written atomically after every round.

The best model by a metric is kept in a file of its own. Both are archives of arrays, one of which,
"meta", is JSON.

Flower itself cannot resume a run. A checkpoint holds the model, the state of the wrapped strategy
(see `fedavot.flower.kept.state`), the aligner, Python's and NumPy's global random states (from
which Flower samples nodes and draws noise), the configurations and the metrics so far.
"""

import json
import logging
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Result

from fedavot._files import PathLike, read_archive, write_archive
from fedavot.errors import CheckpointError, FileFormatError, OptionError
from fedavot.flower.kept.packing import Arrays
from fedavot.flower.worth.records import view

_log = logging.getLogger("flwr")

FILE = "checkpoint.npz"
BEST = "best.npz"
FORMAT = "fedavot-flower-checkpoint"
VERSION = 3


def save(folder: Path, meta: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a checkpoint, atomically: arrays, and everything else as JSON in ``meta``."""
    _write(folder / FILE, {"format": FORMAT, "version": VERSION, **meta}, arrays)


def load(folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Read the file that `save` wrote."""
    path = folder / FILE
    meta, arrays = _read(path)
    version = meta.get("version")
    if meta.get("format") != FORMAT or version != VERSION:
        raise FileFormatError(
            f"{path} holds {meta.get('format')!r} version {version!r}, and this release reads "
            f"{FORMAT!r} version {VERSION}; finish that run with the release that began it, or "
            "start in another folder"
        )
    return meta, arrays


def _write(path: Path, meta: Mapping[str, Any], arrays: Arrays) -> None:
    content = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    write_archive(path, {"meta": content, **arrays})


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return what `_write` wrote."""
    arrays = read_archive(path)
    return dict(json.loads(arrays.pop("meta", np.frombuffer(b"{}", np.uint8)).tobytes())), arrays


def pack_model(model: ArrayRecord) -> tuple[list[str], Arrays]:
    """Return the names of a model's arrays, and the arrays numbered for the file."""
    arrays = {f"model/{number}": view(array) for number, array in enumerate(model.values())}
    return list(model), arrays


def unpack_model(names: list[str], arrays: Arrays) -> ArrayRecord:
    """Return the model of a checkpoint."""
    saved = {name: arrays[f"model/{number}"] for number, name in enumerate(names)}
    return ArrayRecord({key: Array(np.asarray(values)) for key, values in saved.items()})


def form_of(model: ArrayRecord) -> dict[str, list[Any]]:
    """Return the shapes and number types of a model's arrays."""
    return {key: [list(array.shape), array.dtype] for key, array in model.items()}


def refuse_other_form(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise if a run began with a different model, given the forms of both.

    The model in the checkpoint may have other arrays: a strategy may add and remove them.
    """
    for key in [*wanted, *found]:
        if found.get(key) != wanted.get(key):
            raise CheckpointError(
                f"the checkpoint holds another model: array {key!r} is "
                f"{found.get(key, 'missing')} in the checkpoint and {wanted.get(key, 'missing')} "
                "in this run; continue with that model, or start in another folder"
            )


def refuse_unusable(model: ArrayRecord, form: Mapping[str, Any], *, exact: bool) -> None:
    """Raise if a model in a checkpoint is not finite, or has an array of a different form.

    If ``exact``, it must have exactly the arrays of that form.
    """
    if exact and (odd := sorted(model.keys() ^ form.keys())):
        raise CheckpointError(
            f"the checkpoint was damaged or edited: array {odd[0]!r} is in its model or in this "
            "run's, and not in both; start in another folder"
        )
    for key, found in form_of(model).items():
        values = view(model[key])
        if form.get(key, found) != found or not (
            values.dtype.kind in "fiub" and np.isfinite(values).all()
        ):
            raise CheckpointError(
                f"the checkpoint was damaged or edited: array {key!r} of its model is {found}, and "
                f"must be finite and as {form.get(key, found)}; start in another folder"
            )


def rng_states() -> dict[str, Any]:
    """Return the states of the global random generators that Flower uses."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    numbers = [kind, np.asarray(keys).tolist(), position, has_gauss, cached]
    return {"python": [version, list(internal), gauss], "numpy": numbers}


def set_rng_states(state: Mapping[str, Any]) -> None:
    """Restore what `rng_states` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002


class Best(NamedTuple):
    """The best model of a run.

    Attributes
    ----------
    arrays : ArrayRecord
        The model.
    round : int
        The round after which it was the global model.
    metric : str
        The metric by which it is best; with "-" in front, the smallest value is the best.
    value : float
        The value of that metric.
    """

    arrays: ArrayRecord
    round: int
    metric: str
    value: float


def best_model(folder: PathLike) -> Best:
    """Read the best model of a run with `FedAVOT.keep_best`.

    Parameters
    ----------
    folder : path
        Folder of the run.
    """
    path = Path(folder) / BEST
    if not path.exists():
        raise FileFormatError(
            f"{Path(folder).resolve()} has no {BEST}: a run keeps its best model only if "
            "strategy.keep_best(metric) was called before start(), and evaluation has that metric"
        )
    meta, arrays = _read(path)
    try:
        model = unpack_model(meta["model"], arrays)
        return Best(model, int(meta["round"]), str(meta["metric"]), float(meta["value"]))
    except (LookupError, TypeError, ValueError) as cause:
        raise FileFormatError(f"{path} has no model, or was edited: {cause}") from None


class BestModel:
    """Keep the best model so far.

    Parameters
    ----------
    folder : Path
        Folder of the file. If it already has a best model, a new one has to surpass it.
    metric : str
        Metric of the evaluation on the server or, if that has none of this name, on clients.
    """

    def __init__(self, folder: Path, metric: str) -> None:
        self._path, self._metric = folder / BEST, metric
        self._value: float | None = None
        self._warned = False
        if self._path.exists():
            found = best_model(folder)
            if found.metric != metric:
                raise OptionError(
                    f"the best model in {folder} is by {found.metric!r}, not by {metric!r}; "
                    f"continue with that, or remove {BEST}"
                )
            self._value = found.value

    def consider(self, number: int, model: ArrayRecord, result: Result) -> None:
        """Keep the model of a round if it is the best so far."""
        histories = (result.evaluate_metrics_serverapp, result.evaluate_metrics_clientapp)
        found: list[Mapping[str, Any]] = [history.get(number) or {} for history in histories]
        name = self._metric.removeprefix("-")
        values = [metrics[name] for metrics in found if name in metrics]
        numbers = (float(it) for it in values if isinstance(it, int | float) and np.isfinite(it))
        value = next(numbers, None)
        if value is None and not self._warned:
            _log.warning(
                "FedAVOT: round %d has no number under %r among the metrics of evaluation %s, so "
                "that no model is kept as the best",
                number,
                name,
                sorted(set().union(*found)),
            )
            self._warned = True
        if value is None or (self._value is not None and not self._surpasses(value, self._value)):
            return
        names, arrays = pack_model(model)
        meta = {"model": names, "round": number, "metric": self._metric, "value": value}
        _write(self._path, meta, arrays)
        self._value = value

    def _surpasses(self, value: float, best: float) -> bool:
        return value < best if self._metric.startswith("-") else value > best
