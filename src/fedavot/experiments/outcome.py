"""Outcomes: the results of one rule on one setting, as a file and as rows of results.

An outcome file is a versioned and sealed JSON document with the records of every seed.
``results.json`` is a plain list of rows with the keys setting, rule, metric, mean, std and seeds
(their number). The standard deviation is that of a sample (n − 1), 0 for one seed. The metrics of a
run that diverged are null, and so is a metric that some seed never reached, such as a target loss.
A run has diverged if its model or loss is not finite, or its loss is above `LARGEST`.
"""

import json
import re
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
"""A run with a larger loss has diverged: its square overflows, and no axis holds it."""
_FORMAT = "fedavot-outcome"
_VERSION = 2


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of one rule on one setting.

    Attributes
    ----------
    setting, rule, knows, stores : str
        Names of the setting and the rule, and what the rule knows and stores.
    seeds : tuple of int
        One run per seed.
    recorded : int array, shape (n_records,)
        Rounds after which the objective was recorded, thinned for figures.
    losses : float array, shape (n_seeds, n_records)
        The objective at those rounds.
    optimum : float array, shape (n_seeds,), or None
        Its least value, if known.
    metrics : dict of str to list of float
        One value per seed; empty if a run diverged.
    seconds : float
        Wall-clock time of all seeds together, compilation included.
    message : str
        Why a run diverged, or empty.
    fingerprint : str
        Digest of the data and options.
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
    def diverged(self) -> bool:
        """Whether a run has no metrics, as its model or loss was no longer finite."""
        return bool(self.message) and not self.metrics

    @property
    def excess_curve(self) -> Floats:
        """Losses over the optimum, shape (n_seeds, n_records)."""
        if self.optimum is None:
            raise UnavailableError(
                f"the optimum of setting {self.setting!r} is not known; use its losses instead"
            )
        with np.errstate(over="ignore"):  # of a run that diverged
            return np.asarray(self.losses - self.optimum[:, None])

    def mean(self, metric: str) -> float | None:
        """Return a metric's mean over seeds, None if it has none."""
        values = self.values(metric)
        return None if values is None else float(np.mean(values))

    def values(self, metric: str) -> Floats | None:
        """Return a metric by seed, None if some seed has none or one above `LARGEST`."""
        if metric == "seconds":
            return np.array([self.seconds])
        values = np.array(self.metrics.get(metric, []), dtype=np.float64)
        return values if values.size and (np.abs(values) <= LARGEST).all() else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per metric."""
        return [
            row(self.setting, self.rule, metric, self.values(metric), len(self.seeds))
            for metric in METRICS
            if metric in self.metrics or metric == "seconds" or self._missing(metric)
        ]

    def _missing(self, metric: str) -> bool:
        """Whether a diverged run lacks this metric."""
        return not self.metrics and metric in ("tail_loss", "final_loss")

    def _refuse_if_ragged(self) -> None:
        """Refuse arrays whose shapes disagree, as in an edited file."""
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
        """Write the outcome, completely or not at all."""
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
        """Read an outcome that `save` wrote."""
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


def file_name(setting: str, rule: str) -> str:
    """Return the name of an outcome's file."""
    return f"{slug(f'{setting} {rule}')}.json"


def slug(words: str) -> str:
    """Return words as a file name: letters, digits and dots, in lower case, joined by dashes."""
    return re.sub(r"[^\w.]+", "-", words.lower()).strip("-")


def divergence(run: Run) -> str:
    """Return why a run diverged; empty if it did not."""
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
    """Return text from a document, or raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]} is not text")
    return value


def as_numbers(values: Any) -> Floats:
    """Return a list of numbers from a document, or raise TypeError."""
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
    """Write rows as ``results.json``, one per line, completely or not at all."""
    lines = ",\n".join(json.dumps(one, allow_nan=False, ensure_ascii=False) for one in rows)
    write_whole(path, lambda stream: stream.write(f"[\n{lines}\n]\n".encode()))
