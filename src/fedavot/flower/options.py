"""Options of the strategy, checked: importance, weights, admission and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike as PathLikeType
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fedavot._checks import as_amount, as_seed, as_size, one_of, shown
from fedavot._clients import agreed_names
from fedavot._files import PathLike
from fedavot.alignment import Alignment, Status
from fedavot.errors import FileFormatError, ImportanceError, OptionError
from fedavot.flower.who.asking import too_long
from fedavot.importance import read_mapping
from fedavot.online import SOFTNESS, STEP
from fedavot.rules.ours import constants_of

Importance = Literal["uniform", "examples"] | Mapping[str, float] | PathLike

KINDS = ("uniform", "examples")
IDENTITIES = ("auto", "registered", "asked", "node-id")

MOST_EXAMPLES = 1e12
"""Largest number of examples that a client may report."""


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """How the weights of a cohort are found.

    Attributes
    ----------
    alignment : Alignment or None
        Weights computed beforehand, from an audit or a known law. If None, an online aligner
        learns them during the run.
    clients : sequence of str or None
        Names of the alignment's clients, in its order; the alignment's own names by default.
    softness : float or None
        Penalty on the distance of learnt weights from those of a plain average by importance: 0
        learns until mean weights equal the importance; large values keep the plain average. None
        means 2; docs/flower.md compares training with it and with the plain average.
    cohort_size : int or None
        Number of available clients to ask in each round. They are chosen so that the aggregate is
        unbiased for that of all available clients, provided that those chosen reply; the online
        aligner compensates for clients that do not reply, which an alignment cannot. None leaves
        the choice to the wrapped strategy.
    step : float
        Step size of the online aligner.
    seed : int
        Seed for choosing which clients to ask.
    evaluation : bool
        Whether the metrics of federated evaluation are averaged by the importance of the clients
        that took part in it, as the objective is; otherwise by the metric of the wrapped strategy.
    weight_limit : float or None
        Largest ratio of a client's odds in a round to the odds of its plain share (its importance
        divided by that of the cohort), so that no client that was absent or excluded for long
        dominates a round: with 10, its weight is at most .91 of a pair and .092 of a hundred equal
        clients. The rest goes to the other clients, and the gap includes the effect. None for no
        limit. It applies to learnt weights, not to those of an alignment.
    """

    alignment: Alignment | None = None
    clients: Sequence[str] | None = None
    softness: float | None = None
    cohort_size: int | None = None
    step: float = STEP
    seed: int = 0
    evaluation: bool = False
    weight_limit: float | None = 10.0

    def __post_init__(self) -> None:
        limit = self.weight_limit
        if limit is not None and as_amount(limit, what="weight_limit") < 1:
            raise OptionError(f"weight_limit is {limit}; it must be at least 1, or None")
        if self.softness is not None:
            as_amount(self.softness, what="softness")
        as_amount(self.step, what="step", positive=True)
        as_seed(self.seed)
        if self.cohort_size is not None:
            as_size(self.cohort_size, what="cohort_size", low=1)
        if self.alignment is not None:
            self._check_alignment(self.alignment)
        elif self.clients is not None:
            raise OptionError(
                "clients are the names of an alignment's clients; pass alignment= as well"
            )

    @property
    def price(self) -> float:
        """Softness of learnt weights."""
        return SOFTNESS if self.softness is None else self.softness

    def _check_alignment(self, alignment: Alignment) -> None:
        if not isinstance(alignment, Alignment):
            raise OptionError(f"alignment is {alignment!r}; it must be a fedavot.Alignment")
        names = agreed_names(
            alignment.n_clients, self.clients, alignment.clients, what="the alignment"
        )
        if names is None:
            raise OptionError(
                f"the {alignment.n_clients} clients of the alignment have no names; pass "
                "clients=[...], in the alignment's order"
            )
        object.__setattr__(self, "clients", names)
        if alignment.status is Status.UNCONVERGED:
            raise OptionError(f"the alignment cannot be used: {alignment.message}")
        if self.softness:
            raise OptionError(
                "softness applies to the online aligner; for a soft alignment use "
                "align(..., softness=...)"
            )

    @classmethod
    def load(cls, path: PathLike, *, cohort_size: int | None = None) -> Self:
        """Take the weights from a saved alignment with client names, such as that of an audit.

        Parameters
        ----------
        path : path
            File written by `Alignment.save`.
        cohort_size
            As above.
        """
        alignment = Alignment.load(path)
        if alignment.clients is None:
            raise FileFormatError(
                f"{path} has no client names; load it with Alignment.load and pass alignment= and "
                "clients= to Weighting"
            )
        return cls(alignment=alignment, cohort_size=cohort_size)


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Which nodes are admitted, under which names, and which of their updates are accepted.

    Attributes
    ----------
    identity : str
        Where client names come from: "registered" under node authentication, "asked" of each new
        node once, "node-id" (stable only under node authentication), or "auto", which is
        "registered" as soon as any node has a registered name, and "asked" until then.
    key : str
        Key of the node configuration that holds the name of a node that is asked.
    unlisted : float or None
        Importance of clients that are missing from a mapping, on the scale of the mapping; None
        refuses them.
    enough : int or None
        Number of usable updates after which a round is closed; clients that have not replied by
        then are late. None waits for all clients that were asked, or for the timeout.
    norm_limit : float or None
        An update is excluded if its norm is more than this many times the median of recent norms;
        None accepts every finite update.
    """

    identity: str = "auto"
    key: str = "partition-id"
    unlisted: float | None = None
    norm_limit: float | None = 100.0
    enough: int | None = None

    def __post_init__(self) -> None:
        one_of(self.identity, IDENTITIES, what="identity")
        if not isinstance(self.key, str) or not self.key:
            raise OptionError(f"key is {self.key!r}; it must be a key of the node configuration")
        if self.enough is not None:
            as_size(self.enough, what="enough", low=1)
        if self.unlisted is not None:
            as_amount(self.unlisted, what="unlisted")
        if self.norm_limit is not None and as_amount(self.norm_limit, what="norm_limit") <= 1:
            raise OptionError(f"norm_limit is {self.norm_limit}; it must be above 1, or None")


def as_weighting(given: Weighting | None) -> Weighting:
    """Return the weighting, or one with default options if none is given."""
    if given is not None and not isinstance(given, Weighting):
        raise OptionError(
            f"weighting is {shown(given)}; it must be a Weighting: Weighting(softness=...) has "
            "options, and Weighting.load('alignment.json') reads an alignment"
        )
    return given or Weighting()


def as_admission(given: Admission | None) -> Admission:
    """Return the admission options, or the defaults if none are given."""
    if given is not None and not isinstance(given, Admission):
        raise OptionError(
            f"admission is {shown(given)}; it must be an Admission, such as "
            "Admission(identity='registered')"
        )
    return given or Admission()


def as_switch(given: Any, *, what: str) -> bool:
    """Return True or False; words such as "false" are refused, because they would count as true."""
    if not isinstance(given, bool | np.bool_):
        raise OptionError(f"{what} is {shown(given)}; it must be True or False")
    return bool(given)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """How clients' last updates are remembered on the server; see `fedavot.rules.steady`.

    Attributes
    ----------
    correction : float
        κ, from 0 to 1: how far clients that call `fedavot.flower.correction` follow the mean in
        their local steps. It helps where problems are convex and steps constant, and harms
        networks.
    damping : float or None
        c, in rounds, at least 0: averages out the noise of memories. 10 with a correction and 0
        without if None.
    trust : float or None
        α, from 0 to 1: how far memories are trusted. Learnt if None, with the tilt, which is 1
        if a trust is given.
    """

    correction: float = 0.0
    damping: float | None = None
    trust: float | None = None

    def __post_init__(self) -> None:
        constants_of(correction=self.correction, damping=self.damping, trust=self.trust)


def as_memory(given: Memory | bool | None) -> Memory | None:
    """Return the options for a keyword; None for no memory."""
    if isinstance(given, Memory):
        return given
    if isinstance(given, str):
        raise OptionError(
            f"memory is {given!r}; the memory is on the server: memory=True, or Memory(...)"
        )
    if given is not None and not isinstance(given, bool | np.bool_):
        raise OptionError(f"memory is {shown(given)}; it must be True, False or Memory(...)")
    return Memory() if given else None


def listed_by(importance: Importance, weighting: Weighting) -> tuple[str, dict[str, float]]:
    """Return the kind of importance, and the importance of clients known from the start."""
    if weighting.alignment is not None:
        if not isinstance(importance, str) or importance not in KINDS:
            raise OptionError(
                "an alignment has its own importance; leave out either importance or the alignment"
            )
        assert weighting.clients is not None
        shares = weighting.alignment.importance.tolist()
        return "listed", dict(zip(weighting.clients, shares, strict=True))
    if isinstance(importance, Mapping):
        return "listed", _checked(importance)
    if isinstance(importance, str) and importance in KINDS:
        return importance, {}
    if not isinstance(importance, str | PathLikeType) or not Path(importance).suffix:
        raise ImportanceError(
            f"importance is {importance!r}; it must be 'uniform', 'examples', a mapping from "
            "client name to number, or a .csv or .json file"
        )
    path = Path(importance)
    if not path.exists():
        start = f"; a relative path begins at {Path.cwd()}, where this process was started"
        raise FileNotFoundError(
            f"there is no importance file {path.resolve()}{'' if path.is_absolute() else start}"
        )
    return "listed", _relative(read_mapping(path))


def _checked(mapping: Mapping[str, float]) -> dict[str, float]:
    amounts = {}
    if not mapping:
        raise ImportanceError("importance is empty; give a number for every client")
    for name, value in mapping.items():
        if not isinstance(name, str) or not name:
            write = f"; write {str(name)!r}" if isinstance(name, int | np.integer) else ""
            raise ImportanceError(f"client names must be non-empty text, found {name!r}{write}")
        if wrong := too_long(name):
            raise ImportanceError(wrong)
        if isinstance(value, str | bytes):
            raise ImportanceError(
                f"importance of client {name!r} must be a number, found {shown(value)}"
            )
        try:
            amounts[name] = as_amount(value, what=f"importance of client {name!r}")
        except OptionError as cause:
            raise ImportanceError(str(cause)) from None
    if not any(amounts.values()):
        raise ImportanceError(
            f"importance is 0 for all {len(amounts)} clients; at least one must be above 0"
        )
    return _relative(amounts)


def _relative(amounts: dict[str, float]) -> dict[str, float]:
    """Return amounts whose sum is finite: unchanged, or divided by the largest."""
    largest = max(amounts.values())
    if np.isfinite(largest * len(amounts)):
        return amounts
    return {name: amount / largest for name, amount in amounts.items()}
