"""Outcomes: what one rule did on one setting, as a file and as rows of results.

An outcome file is a versioned and sealed JSON document with the records of every seed.
``results.json`` is a plain list of rows with the keys setting, rule, metric, mean, std and seeds
(how many). The standard deviation is that of a sample (n − 1), 0 for one seed. Where a run diverged
its metrics are null. A metric that some seed never reached, such as a target loss, is null as well.
A run diverged if its model or loss is no longer finite, or its loss is beyond `LARGEST`.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._files import PathLike, read_document, write_document, write_whole
from fedavot.errors import FileFormatError, UnavailableError
from fedavot.training.run import Ending, Run

METRICS = ("tail_loss", "final_loss", "excess", "realised_gap", "rounds_to_target", "seconds")
LARGEST = 1e100
"""A loss beyond is that of a run that diverged: its square overflows, and no axis holds it."""
_FORMAT = "fedavot-outcome"
_VERSION = 2


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one rule did on one setting.

    Attributes
    ----------
    setting, rule, knows, stores : str
        Which, and what the rule assumes and keeps.
    seeds : tuple of int
        One run each.
    recorded : int array, shape (n_records,)
        Rounds after which the objective was recorded, thinned for figures.
    losses : float array, shape (n_seeds, n_records)
        The objective there.
    optimum : float array, shape (n_seeds,), or None
        Its least value, where known.
    metrics : dict of str to list of float
        One value a seed; empty if a run diverged.
    seconds : float
        Wall-clock time of all seeds together, compilation included.
    message : str
        What went wrong, if anything.
    fingerprint : str
        Of the data and options.
    """

    setting: str
    rule: str
    knows: str
    stores: str
    seeds: tuple[int, ...]
    recorded: Integers
    losses: Floats
    optimum: Floats | None
    metrics: dict[str, list[float]]
    seconds: float
    message: str
    fingerprint: str

    @property
    def excess_curve(self) -> Floats:
        """Losses over the optimum, shape (n_seeds, n_records)."""
        if self.optimum is None:
            raise UnavailableError(
                f"the optimum of setting {self.setting!r} is not known; take its losses instead"
            )
        with np.errstate(over="ignore"):  # of a run that diverged
            return np.asarray(self.losses - self.optimum[:, None])

    def mean(self, metric: str) -> float | None:
        """Return a metric's mean over seeds, None if it has none."""
        values = self.values(metric)
        return None if values is None else float(np.mean(values))

    def values(self, metric: str) -> Floats | None:
        """Return a metric by seed, None if some seed has none or one beyond `LARGEST`."""
        if metric == "seconds":
            return np.array([self.seconds])
        values = np.array(self.metrics.get(metric, []), dtype=np.float64)
        return values if values.size and (np.abs(values) <= LARGEST).all() else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a metric."""
        return [
            row(self.setting, self.rule, metric, self.values(metric), len(self.seeds))
            for metric in METRICS
            if metric in self.metrics or metric == "seconds" or self._missing(metric)
        ]

    def _missing(self, metric: str) -> bool:
        """Whether a diverged run owes this metric."""
        return not self.metrics and metric in ("tail_loss", "final_loss")

    def _refuse_if_ragged(self) -> None:
        """Refuse arrays that do not belong together, as an edited file may have them."""
        n_seeds = len(self.seeds)
        if self.losses.shape != (n_seeds, self.recorded.size):
            raise ValueError(f"losses of shape {self.losses.shape}")
        if self.optimum is not None and self.optimum.shape != (n_seeds,):
            raise ValueError(f"optimum of shape {self.optimum.shape}")
        if any(len(values) != n_seeds for values in self.metrics.values()):
            raise ValueError(f"metrics not of {n_seeds} seeds")
        if not n_seeds or len(set(self.seeds)) < n_seeds or min(self.seeds) < 0:
            raise ValueError(f"seeds are {self.seeds[:5]}, not distinct numbers from 0")
        if not (np.diff(self.recorded, prepend=0) > 0).all():
            raise ValueError("recorded rounds do not increase from 1")
        if self.seconds < 0:
            raise ValueError(f"seconds are {self.seconds}")

    def save(self, path: PathLike) -> None:
        """Write it, whole or not at all."""
        content = {
            "setting": self.setting,
            "rule": self.rule,
            "knows": self.knows,
            "stores": self.stores,
            "seeds": list(self.seeds),
            "recorded": self.recorded.tolist(),
            "losses": self.losses.tolist(),
            "optimum": None if self.optimum is None else self.optimum.tolist(),
            "metrics": {
                name: [value if np.isfinite(value) else None for value in values]
                for name, values in self.metrics.items()
            },
            "seconds": self.seconds,
            "message": self.message,
            "fingerprint": self.fingerprint,
        }
        write_document(path, format=_FORMAT, version=_VERSION, content=content)

    @classmethod
    def load(cls, path: PathLike) -> "Outcome":
        """Read what `save` wrote."""
        held = read_document(path, format=_FORMAT, version=_VERSION)
        try:
            optimum = held["optimum"]
            outcome = cls(
                setting=as_text(held["setting"]),
                rule=as_text(held["rule"]),
                knows=as_text(held["knows"]),
                stores=as_text(held["stores"]),
                seeds=tuple(_integers(held["seeds"])),
                recorded=np.array(_integers(held["recorded"]), dtype=np.int64),
                losses=np.array([as_numbers(row) for row in held["losses"]], dtype=np.float64),
                optimum=None if optimum is None else as_numbers(optimum),
                metrics={
                    name: [
                        np.inf if value is None else float(as_numbers([value])[0])
                        for value in values
                    ]
                    for name, values in held["metrics"].items()
                },
                seconds=float(as_numbers([held["seconds"]])[0]),
                message=as_text(held["message"]),
                fingerprint=as_text(held["fingerprint"]),
            )
            outcome._refuse_if_ragged()
            return outcome
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
            raise FileFormatError(
                f"{path} is not a valid outcome ({cause!r}); remove it to run it again"
            ) from None


def divergence(run: Run) -> str:
    """Return how a run diverged, in words; empty if it did not."""
    if run.ending is Ending.DIVERGED:
        return run.message
    # Losses that grow without bound may still be finite after the last round.
    beyond = np.argwhere(run.losses.T > LARGEST)
    if not beyond.size:
        return ""
    record, seed = beyond[0]
    return (
        f"rule {run.rule!r} diverged: the loss after round {run.recorded[record]} is "
        f"{run.losses[seed, record]:.3g} (seed {run.seeds[seed]}); lower the step size"
    )


def as_text(value: Any) -> str:
    """Return what a document has for text, or raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]} is not text")
    return value


def as_numbers(values: Any) -> Floats:
    """Return what a document has for a list of numbers, or raise TypeError."""
    if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
        raise TypeError(f"{str(values)[:40]} is not a list of numbers")
    return np.array(values, dtype=np.float64)


def _integers(values: Any) -> list[int]:
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise TypeError(f"{str(values)[:40]} is not a list of integers")
    return values


def row(setting: str, rule: str, metric: str, values: Floats | None, seeds: int) -> dict[str, Any]:
    """Return one row of results."""
    mean = None if values is None else float(np.mean(values))
    std = None if values is None else float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {
        "setting": setting,
        "rule": rule,
        "metric": metric,
        "mean": mean,
        "std": std,
        "seeds": seeds,
    }


def write_results(path: PathLike, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as ``results.json``, one a line, whole or not at all."""
    lines = ",\n".join(json.dumps(one, allow_nan=False, ensure_ascii=False) for one in rows)
    write_whole(path, lambda stream: stream.write(f"[\n{lines}\n]\n".encode()))
