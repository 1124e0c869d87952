"""Outcomes: the results of one rule on one setting, as a file and as rows of results.

An outcome file is a versioned and sealed JSON document with the records of every seed. Rows have
the keys setting, rule, group (null for all clients), metric, mean, std and seeds (their number).
The standard deviation is that of a sample (n − 1), 0 for one seed. The metrics of a run that
diverged are null, and so is a metric that some seed never reached, such as a target loss. A run
has diverged if its model or loss is not finite, or its loss is above `LARGEST`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, enumerated
from fedavot._clients import Clients
from fedavot._files import PathLike, read_document, write_document
from fedavot.errors import FileFormatError, UnavailableError
from fedavot.training.run import Ending, Run

METRICS = {
    "tail_loss": "tail loss",
    "final_loss": "final loss",
    "excess": "excess",
    "accuracy": "accuracy",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "realised_gap": "realised gap",
    "rounds_to_target": "rounds to target",
    "seconds": "seconds",
}
"""The metrics in the order of tables, and their headings."""
LARGEST = 1e100
"""A run with a larger loss has diverged: its square overflows, and no axis holds it."""
_FORMAT = "fedavot-outcome"
_VERSION = 3

Metrics = dict[str, list[float]]
"""One value per seed, by metric; infinite for a seed that never reached it."""


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
        Why a run diverged, or which clients never trained; otherwise empty.
    fingerprint : str
        Digest of the data and options.
    groups : dict of str to metrics
        The metrics of each group of clients.
    steps : str
        The rule's own steps, in words, where each rule has its own.
    """

    setting: str
    rule: str
    knows: str
    stores: str
    seeds: tuple[int, ...]
    recorded: Integers
    losses: Floats
    optimum: Floats | None
    metrics: Metrics
    seconds: float
    message: str
    fingerprint: str
    groups: dict[str, Metrics] = field(default_factory=dict)
    steps: str = ""

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

    def values(self, metric: str, group: str | None = None) -> Floats | None:
        """Return a metric by seed, None if some seed has none or one above `LARGEST`."""
        if metric == "seconds":
            return np.array([self.seconds])
        held = self.metrics if group is None else self.groups.get(group, {})
        values = np.array(held.get(metric, []), dtype=np.float64)
        return values if values.size and (np.abs(values) <= LARGEST).all() else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per metric, and per group and metric."""
        # A run that diverged has rows without a value.
        held = {"seconds", *(self.metrics or ("tail_loss", "final_loss"))}
        keys: list[tuple[str, str | None]] = [(name, None) for name in METRICS if name in held]
        keys += [(metric, group) for group, own in self.groups.items() for metric in own]
        return [
            row(self.setting, self.rule, metric, self.values(metric, group), len(self.seeds), group)
            for metric, group in keys
        ]

    def save(self, path: PathLike) -> None:
        """Write the outcome, completely or not at all."""
        content = {name: _plain(getattr(self, name)) for name in _READ}
        write_document(path, format=_FORMAT, version=_VERSION, content=content)

    @classmethod
    def load(cls, path: PathLike) -> "Outcome":
        """Read an outcome that `save` wrote."""
        held = {"groups": {}, "steps": "", **read_document(path, format=_FORMAT, version=_VERSION)}
        try:
            outcome = cls(**{name: read(held[name]) for name, read in _READ.items()})
            outcome._refuse_if_ragged()
            return outcome
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
            raise FileFormatError(
                f"{path} is not a valid outcome ({cause!r}); remove it to run it again"
            ) from None

    def _refuse_if_ragged(self) -> None:
        """Refuse arrays whose shapes disagree, as in an edited file."""
        n_seeds = len(self.seeds)
        if self.losses.shape != (n_seeds, self.recorded.size):
            raise ValueError(f"losses of shape {self.losses.shape}")
        if self.optimum is not None and self.optimum.shape != (n_seeds,):
            raise ValueError(f"optimum of shape {self.optimum.shape}")
        metrics = (self.metrics, *self.groups.values())
        if any(len(values) != n_seeds for own in metrics for values in own.values()):
            raise ValueError(f"metrics not of {n_seeds} seeds")
        if not n_seeds or len(set(self.seeds)) < n_seeds or min(self.seeds) < 0:
            raise ValueError(f"seeds are {self.seeds[:5]}, not distinct numbers from 0")
        if not (np.diff(self.recorded, prepend=0) > 0).all():
            raise ValueError("recorded rounds do not increase from 1")
        if self.seconds < 0:
            raise ValueError(f"seconds are {self.seconds}")


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


def omission(run: Run, importance: Floats) -> str:
    """Return which clients with importance never trained, in the seed that missed most of it."""
    missed = run.unseen @ importance
    seed = int(missed.argmax())
    if not missed[seed] > 0:
        return ""
    clients = Clients(importance.size, run.clients)
    unseen = np.flatnonzero(run.unseen[seed]).tolist()
    who = f"client{'s' * (len(unseen) > 1)} {enumerated(map(clients.label, unseen))}"
    most = "" if len(run.seeds) == 1 else f", the most of {len(run.seeds)} seeds"
    return (
        f"never trained: {who}, with {100 * missed[seed]:.2g} % of the importance "
        f"(seed {run.seeds[seed]}{most})"
    )


def row(
    setting: str,
    rule: str,
    metric: str,
    values: Floats | None,
    seeds: int,
    group: str | None = None,
) -> dict[str, Any]:
    """Return one row of results."""
    spread = 0.0 if values is None or len(values) < 2 else float(np.std(values, ddof=1))
    return {
        "setting": setting,
        "rule": rule,
        "group": group,
        "metric": metric,
        "mean": None if values is None else float(np.mean(values)),
        "std": None if values is None else spread,
        "seeds": seeds,
    }


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


def _metrics(held: Any) -> Metrics:
    return {
        name: as_numbers([np.inf if value is None else value for value in values]).tolist()
        for name, values in held.items()
    }


def _plain(value: Any) -> Any:
    """Return a field of an outcome as JSON has it, with null for infinity."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [inner if np.isfinite(inner) else None for inner in value]
    return list(value) if isinstance(value, tuple) else value


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("setting", "rule", "knows", "stores", "steps"), as_text),
    "seeds": lambda held: tuple(_integers(held)),
    "recorded": lambda held: np.array(_integers(held), dtype=np.int64),
    "losses": lambda held: np.array([as_numbers(own) for own in held], dtype=np.float64),
    "optimum": lambda held: None if held is None else as_numbers(held),
    "metrics": _metrics,
    "seconds": lambda held: float(as_numbers([held])[0]),
    "message": as_text,
    "fingerprint": as_text,
    "groups": lambda held: {name: _metrics(own) for name, own in held.items()},
}
"""How each field of an outcome is read from a document."""
