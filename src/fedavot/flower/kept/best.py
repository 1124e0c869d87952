"""The best model of a run by a metric, in a file of its own."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Result

from fedavot._files import ARCHIVE_FAILURES, PathLike, read_archive, write_archive
from fedavot.errors import FileFormatError, OptionError
from fedavot.flower.kept.checkpoint import pack_model, unpack_model

_log = logging.getLogger("flwr")

FILE = "best.npz"


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
    path = Path(folder) / FILE
    if not path.exists():
        raise FileFormatError(
            f"{Path(folder).resolve()} has no {FILE}: a run keeps its best model only if "
            "strategy.keep_best(metric) was called before start(), and evaluation has that metric"
        )
    try:
        arrays, _ = read_archive(path)
        meta = json.loads(arrays.pop("meta").tobytes())
        model = unpack_model(meta["model"], arrays)
        return Best(model, int(meta["round"]), str(meta["metric"]), float(meta["value"]))
    except ARCHIVE_FAILURES as cause:
        raise FileFormatError(f"{path} has no model, or is damaged: {cause}") from None


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
        self._path, self._metric = folder / FILE, metric
        self._value: float | None = None
        self._warned = False
        if self._path.exists():
            found = best_model(folder)
            if found.metric != metric:
                raise OptionError(
                    f"the best model in {folder} is by {found.metric!r}, not by {metric!r}; "
                    f"continue with that, or remove {FILE}"
                )
            self._value = found.value

    def consider(self, number: int, model: ArrayRecord, result: Result) -> None:
        """Keep the model of a round if it is the best so far."""
        sources = [
            result.evaluate_metrics_serverapp.get(number),
            result.evaluate_metrics_clientapp.get(number),
        ]
        value = _value_in(sources, self._metric.removeprefix("-"))
        if value is None and not self._warned:
            known = sorted({key for record in sources if record for key in record})
            _log.warning(
                "FedAVOT: round %d has no number under %r among the metrics of evaluation %s, so "
                "that no model is kept as the best",
                number,
                self._metric.removeprefix("-"),
                known,
            )
            self._warned = True
        if value is None or not self._surpasses(value):
            return
        names, arrays = pack_model(model)
        meta = {"model": names, "round": number, "metric": self._metric, "value": value}
        content = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        write_archive(self._path, {"meta": content, **arrays})
        self._value = value

    def _surpasses(self, value: float) -> bool:
        if self._value is None:
            return True
        return value < self._value if self._metric.startswith("-") else value > self._value


def _value_in(sources: Sequence[Mapping[str, Any] | None], metric: str) -> float | None:
    """Return the first finite number under a name."""
    for record in sources:
        value = (record or {}).get(metric)
        if isinstance(value, int | float) and np.isfinite(value):
            return float(value)
    return None
