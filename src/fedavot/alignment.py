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

from fedavot._checks import Floats, Integers
from fedavot._clients import Clients, Members
from fedavot._files import PathLike, read_document, write_document
from fedavot._incidence import Incidence
from fedavot._simplex import level_weights, softmax, sparsemax, total_variation
from fedavot.errors import FileFormatError, UnavailableError
from fedavot.laws._law import SolvableLaw
from fedavot.laws.successive import explicit_cohorts

OBJECTIVES = ("entropy", "variance")
_FORMAT, _VERSION = "fedavot-alignment", 2
_ARRAYS = ("importance", "potentials", "levels", "attained")
_NUMBERS = ("residual", "softness", "iterations", "objective")


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
    Status.NEAREST: "the importance is not attainable; the expected weights equal the nearest "
    "attainable importance, within the tolerance",
    Status.SOFT: "the expected weights are a compromise between the importance and equal weights, "
    "as set by softness",
    Status.UNCONVERGED: "the solver stopped before it reached the tolerance; raise max_iter, raise "
    "tol, or use another method",
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
        return float(total_variation(self.importance, self.attained))

    @cached_property
    def effective_cohort_size(self) -> float:
        """1/E‖Y_A‖²: number of equally weighted clients with the same variance of the average."""
        if self.saved_effective_size is not None:
            return self.saved_effective_size
        assert self.law is not None
        if self.objective == "variance":
            weights, incidence, chances = self._entries()
            return float(1.0 / (chances @ np.add.reduceat(weights**2, incidence.offsets[:-1])))
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
        return level_weights(self.potentials[members], self.levels[members], share=self._share)

    @property
    def _share(self) -> Callable[[Floats, Integers | None], Floats]:
        return softmax if self.objective == "entropy" else sparsemax

    def plan(self) -> Any:
        """Return the transport plan T as a sparse array, shape (n_clients, n_cohorts).

        Its columns are the law's distinct cohorts, with T[i, A] = q(A) Y[i, A].
        """
        weights, incidence, chances = self._entries()
        return incidence.matrix(weights * incidence.spread_over_members(chances)).T.tocsr()

    def _entries(self) -> tuple[Floats, Incidence, Floats]:
        """Return weights of the members of the lowest level of every listed cohort.

        With them come those members, and the cohorts' probabilities.
        """
        if self.law is None:
            raise UnavailableError(
                "an alignment loaded from a file has no law, and hence no plan; align again to get "
                "it"
            )
        cohorts = explicit_cohorts(self.law)
        if cohorts is None:
            raise UnavailableError(
                f"a plan has one column per cohort, and {type(self.law).__name__} does not list "
                "its cohorts; use weights(cohort), or align with the cohorts listed, as "
                "fa.Cohorts(cohorts)"
            )
        incidence = cohorts.incidence.within(self.levels)
        weights = self._share(self.potentials[incidence.members], incidence.offsets)
        return weights, incidence, cohorts.probabilities

    def save(self, path: PathLike) -> None:
        """Write a JSON document, whole or not at all; `load` restores it bit for bit.

        The document has the keys ``format`` ("fedavot-alignment"), ``version`` (2), ``importance``,
        ``potentials``, ``levels``, ``attained`` (lists, one entry per client), ``residual``,
        ``iterations``, ``status``, ``objective``, ``softness``, ``effective_cohort_size``,
        ``clients`` (if they have names) and ``checksum`` (over all the others). The law is not
        stored; further keys are ignored on reading.
        """
        content: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        content |= {name: getattr(self, name).tolist() for name in _ARRAYS}
        content["status"] = str(self.status)
        content["effective_cohort_size"] = self.effective_cohort_size
        if self.clients is not None:
            content["clients"] = list(self.clients)
        write_document(path, format=_FORMAT, version=_VERSION, content=content)

    @classmethod
    def load(cls, path: PathLike) -> "Alignment":
        """Read an alignment that `save` wrote; refuse damaged files."""
        document = read_document(path, format=_FORMAT, version=_VERSION)
        kinds = {name: np.int64 if name == "levels" else np.float64 for name in _ARRAYS}
        try:
            arrays: Any = {name: np.array(document[name], kind) for name, kind in kinds.items()}
            return cls(
                **{name: document[name] for name in _NUMBERS},
                **arrays,
                status=Status(document["status"]),
                saved_effective_size=document["effective_cohort_size"],
                clients=tuple(document["clients"]) if "clients" in document else None,
            )
        except KeyError as cause:
            raise FileFormatError(f"{os.fspath(path)} has no {cause}; write it again") from None
