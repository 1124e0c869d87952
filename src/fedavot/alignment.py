"""An alignment: a potential and a level per client, which give weights for every cohort.

In a cohort all weight goes to the members of the lowest-numbered level present, shared among them
by a softmax of the potentials (entropy) or their projection onto the simplex (variance). An
alignment also has the importance that its weights attain, and whether the solver reached its
tolerance. This module applies and stores alignments; `solve` finds them.
"""

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, as_distribution, one_of
from fedavot._clients import Clients, Members
from fedavot._columns import read_columns, remove_other_columns, write_columns
from fedavot._device import DeviceVector
from fedavot._files import PathLike, read_document, write_document
from fedavot._incidence import Incidence
from fedavot._simplex import level_weights, softmax, sparsemax, total_variation
from fedavot._state import as_state, reading_state, saved_names
from fedavot.errors import OptionError, UnavailableError
from fedavot.laws._law import Law, SolvableLaw
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import explicit_cohorts

OBJECTIVES = ("entropy", "variance")
_FORMAT = "fedavot-alignment"
_VERSION = 2
_IN_COLUMNS = 3
"""The version whose arrays are in a binary file beside the document."""
_MOST_LISTED = 1_000_000
"""Largest number of clients whose arrays are lists in the document itself."""

_ARRAYS = ("importance", "potentials", "levels", "attained")
_AMOUNTS = ("residual", "softness", "effective_cohort_size")
_SIZE_SLACK = 1e-6
"""Relative rounding error allowed in a saved effective cohort size."""


class Status(enum.StrEnum):
    """What a solver has reached."""

    EXACT = "exact"
    NEAREST = "nearest"
    SOFT = "soft"
    UNCONVERGED = "unconverged"

    @property
    def message(self) -> str:
        """What the status means for the weights, in words."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.EXACT: "the expected weights equal the importance, within the tolerance",
    Status.NEAREST: (
        "the importance is not attainable; the expected weights equal the nearest attainable "
        "importance, within the tolerance"
    ),
    Status.SOFT: (
        "the expected weights are a compromise between the importance and equal weights, as set "
        "by softness"
    ),
    Status.UNCONVERGED: (
        "the solver stopped before it reached the tolerance; raise max_iter, raise tol, or use "
        "another method"
    ),
}


@dataclass(frozen=True, eq=False)
class Alignment:
    """Aggregation weights for every cohort, and the importance that they attain.

    Attributes
    ----------
    importance : float array, shape (n_clients,)
        The importance that was asked for.
    potentials : float array, shape (n_clients,)
        Potential of each client; within a level only differences matter.
    levels : int array, shape (n_clients,)
        Level of each client, 0 being the most deficient; a single level if every set of clients
        has slack.
    attained : float array, shape (n_clients,)
        The expected weights.
    residual : float
        L1 distance from the expected weights to the best attainable ones (for soft alignment, L1
        norm of the gradient).
    iterations : int
        Number of times the law's expected weights were computed.
    status : Status
        What the solver has reached; its ``message`` says it in words.
    objective : str
        "entropy" or "variance".
    softness : float
        Penalty on the spread of the potentials; 0 for exact alignment.
    law : Law or None
        The law it was computed for; None after loading from a file.
    unmet : int or None
        If the solver stopped early, the client furthest from its target; None otherwise, and after
        loading from a file.
    clients : tuple of str or None
        The clients' names, if they have any.
    """

    importance: Floats
    potentials: Floats
    levels: Integers
    attained: Floats
    residual: float
    iterations: int
    status: Status
    objective: str = "entropy"
    softness: float = 0.0
    law: SolvableLaw | None = None
    unmet: int | None = None
    clients: tuple[str, ...] | None = None
    saved_effective_size: float | None = None

    def __repr__(self) -> str:
        return (
            f"Alignment({self.n_clients:,} clients, {self.status}, gap {self.gap:.2%}, "
            f"residual {self.residual:.1e})"
        )

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self.potentials.size

    @property
    def message(self) -> str:
        """What the status means, and, if the solver stopped early, which client is furthest off."""
        if self.unmet is None:
            return self.status.message
        return (
            f"{self.status.message}; client {self._clients.label(self.unmet)} has the largest "
            f"share of the remaining error of {self.residual:.2g}"
        )

    @cached_property
    def _clients(self) -> Clients:
        return Clients(self.n_clients, self.clients)

    @cached_property
    def gap(self) -> float:
        """Total variation distance between the importance and the attained importance."""
        if isinstance(self.importance, DeviceVector) and self.status is Status.EXACT:
            return self.residual / 2
        return float(total_variation(self.importance, self.attained))

    @cached_property
    def effective_cohort_size(self) -> float:
        """1/E‖Y_A‖²: number of equally weighted clients with the same variance of the average."""
        if self.saved_effective_size is not None:
            return self.saved_effective_size
        assert self.law is not None
        if self.objective == "variance":
            weights, incidence = self._entries()
            squares = np.add.reduceat(weights**2, incidence.offsets[:-1])
            return float(1.0 / (_explicit(self.law).probabilities @ squares))
        levels = self.levels if self.levels.any() else None
        return float(1.0 / self.law.system(levels).curvature(self.potentials).squares.sum())

    def weights(self, cohort: Members) -> Floats:
        """Return the weights of a cohort's members, in the order given, summing to one.

        Parameters
        ----------
        cohort : sequence of int or str
            Distinct clients by index or by name; the law need not have this cohort.
        """
        members = self._clients.cohort(cohort)
        if self._has_one_level:
            return self._share(self.potentials[members], None)
        return level_weights(self.potentials[members], self.levels[members], share=self._share)

    @cached_property
    def _has_one_level(self) -> bool:
        # Levels of very many clients may be a single number, repeated.
        return self.levels.strides == (0,) or not self.levels.any()

    @property
    def _share(self) -> Callable[[Floats, Integers | None], Floats]:
        return softmax if self.objective == "entropy" else sparsemax

    def plan(self) -> Any:
        """Return the transport plan T as a sparse array, shape (n_clients, n_cohorts).

        Its columns are the law's distinct cohorts, with T[i, A] = q(A) Y[i, A].
        """
        weights, incidence = self._entries()
        mass = weights * incidence.spread_over_members(_explicit(self.law).probabilities)
        return incidence.matrix(mass).T.tocsr()

    def _entries(self) -> tuple[Floats, Incidence]:
        """Return weights of the members of every listed cohort's lowest level, and the members."""
        incidence = _explicit(self.law).incidence.within(self.levels)
        return self._share(self.potentials[incidence.members], incidence.offsets), incidence

    def save(self, path: PathLike) -> None:
        """Write a JSON document, whole or not at all; `load` restores it bit for bit.

        The document has the keys ``format`` ("fedavot-alignment"), ``version`` (2), ``importance``,
        ``potentials``, ``levels``, ``attained`` (lists, one entry per client), ``residual``,
        ``iterations``, ``status``, ``objective``, ``softness``, ``effective_cohort_size``,
        ``clients`` (if they have names) and ``checksum`` (over all the others). The law is not
        stored; further keys are ignored on reading.

        For more than a million clients the version is 3, and the four arrays are in a binary file
        beside the document: one after the other, as little-endian 64-bit numbers, without levels
        if there is one only. The key ``arrays`` has its ``file`` name, ``sha256``, ``length`` (the
        number of clients) and ``columns`` (names and types, in order).
        """
        content: dict[str, Any] = {
            name: getattr(self, name) for name in (*_AMOUNTS, "iterations", "objective")
        }
        content["status"] = str(self.status)
        if self.clients is not None:
            content["clients"] = list(self.clients)
        if self.n_clients <= _MOST_LISTED:
            content |= {name: np.asarray(getattr(self, name)).tolist() for name in _ARRAYS}
            write_document(path, format=_FORMAT, version=_VERSION, content=content)
            return
        one_level = not self.levels.any()
        names = [name for name in _ARRAYS if name != "levels" or not one_level]
        content["arrays"] = write_columns(path, {name: getattr(self, name) for name in names})
        write_document(path, format=_FORMAT, version=_IN_COLUMNS, content=content)
        remove_other_columns(path, content["arrays"])

    @classmethod
    def load(cls, path: PathLike) -> "Alignment":
        """Read an alignment that `save` wrote; refuse damaged files.

        Arrays in a binary file are checked as a stream and then mapped, not read. A file of version
        1 has no checksum and is read with a `fedavot.errors.FedavotWarning`.
        """
        document = read_document(path, format=_FORMAT, version=_IN_COLUMNS)
        with reading_state(os.fspath(path)):
            if document["version"] == _IN_COLUMNS:
                held = _from_columns(path, document)
            else:
                held = as_state(document, counts=("iterations",), amounts=_AMOUNTS, arrays=_ARRAYS)
                held["levels"] = _as_levels(document["levels"])
                for name in ("importance", "attained"):
                    as_distribution(held[name], what=name, item="client", error=OptionError)
            n_clients = held["importance"].size
            size = held.pop("effective_cohort_size")
            if not 1 - _SIZE_SLACK <= size <= n_clients * (1 + _SIZE_SLACK):
                raise OptionError(
                    f"effective_cohort_size is {size}; it must be from 1 to {n_clients}"
                )
            return cls(
                **held,
                status=Status(one_of(document["status"], tuple(Status), what="status")),
                objective=one_of(document["objective"], OBJECTIVES, what="objective"),
                clients=saved_names(document, n_clients),
                saved_effective_size=size,
            )


def _from_columns(path: PathLike, document: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an alignment whose arrays are mapped; the checksum vouches for them."""
    held = as_state(document, counts=("iterations",), amounts=_AMOUNTS, arrays=())
    held |= read_columns(path, document["arrays"])
    if missing := {*_ARRAYS, "levels"} - {*held, "levels"}:
        raise OptionError(f"its columns lack {min(missing)!r}")
    held.setdefault("levels", np.broadcast_to(np.int64(0), held["importance"].size))
    return held


def _as_levels(levels: list[Any]) -> Integers:
    """Return levels, which are integers from 0 without gaps."""
    if set(levels) != set(range(len(set(levels)))) or any(type(one) is not int for one in levels):
        raise OptionError(f"levels must be numbered from 0 without gaps, found {max(levels)}")
    return np.array(levels, dtype=np.int64)


def _explicit(law: Law | None) -> Cohorts:
    cohorts = explicit_cohorts(law)
    if cohorts is not None:
        return cohorts
    if law is None:
        raise UnavailableError(
            "an alignment loaded from a file has no law, and hence no plan; align again to get it"
        )
    raise UnavailableError(
        f"a plan has one column per cohort, and {type(law).__name__} does not list its cohorts; "
        "use weights(cohort), or align with the cohorts listed, as fa.Cohorts(cohorts)"
    )
