"""Alignment without knowing how available the clients are.

After each round the potentials take one step of stochastic ascent on the dual,

    x ← x + η (p - Y_A),

where Y_A are the weights given to the cohort A, zero for absent clients. Summed over T rounds,

    p - (1/T) Σ_t Y_t = (x_T - x_0) / (η T)

for every sequence of cohorts, random or not: if the potentials stay bounded, the realised mean
weights tend to the importance. So x need not be stored: it is x_0 + η (owed - given), where owed is
a client's importance and given is its weight, both summed over the rounds so far.

Weights follow from the *effective* potentials, to which an absence adds at most a bound.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._accounts import Accounts
from fedavot._checks import Floats, Integers
from fedavot._clients import Members
from fedavot._effective import EffectivePotentials, as_bound
from fedavot._state import as_finite, refuse_disagreeing, within_reach
from fedavot.errors import ImportanceError

STEP = 2.0
"""Default step η, which suits most federations, in log-odds per unit of weight."""


class OnlineAligner(Accounts):
    """Weight cohorts as they come, and learn the potentials from which clients take part.

    Parameters
    ----------
    importance : array_like of shape (n_clients,), or mapping from client name to float
        A distribution over the clients. A client of importance zero gets weight only in cohorts in
        which no client has importance.
    step : float
        Step η of the ascent, above 0. A larger step forgets the initial potentials sooner; a
        smaller one makes the weights steadier.
    potentials : array_like of shape (n_clients,), optional
        Potentials to start from, such as those of an offline alignment; zeros by default.
    bound : float or None
        The most, in log-odds, that one absence adds to a client's effective potential. At least
        five steps, which ordinary absences may add. None means no limit: a client that returns
        from a long absence then dominates whole rounds until its mean weight has caught up with
        its importance.
    clients : sequence of str, optional
        The clients' names in order; those of the mapping by default.

    Examples
    --------
    >>> aligner = OnlineAligner([0.5, 0.25, 0.25], step=0.25)
    >>> aligner.weights([2, 0]).tolist()
    [0.5, 0.5]
    >>> _ = aligner.observe([2, 0])
    >>> aligner.potentials.tolist()
    [0.0, 0.0625, -0.0625]
    """

    _format = "fedavot-online-aligner"
    _options = ("importance", "step", "bound")
    _counts = ("rounds", "settled", "touches")
    _amounts = ("step", "clock", "active")
    _arrays = ("importance", "start", "owed", "given", "standing", "credit", "clock_at")

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
        *,
        step: float,
        potentials: ArrayLike | None = None,
        bound: float | None = 3.0,
        clients: Sequence[str] | None = None,
    ) -> None:
        super().__init__(importance, step, clients)
        limit = as_bound(bound, step=self._step)
        start = np.zeros(self.n_clients) if potentials is None else potentials
        # Raw potentials follow from start, owed and given.
        self._start = as_finite(start, self.n_clients, what="potentials")
        self._effective = EffectivePotentials(self._start, step=self._step, bound=limit)

    @property
    def bound(self) -> float | None:
        """The most one absence adds to an effective potential; None if there is no limit."""
        return None if np.isinf(self._effective.bound) else self._effective.bound

    @property
    def initial_potentials(self) -> Floats:
        """Potential at which each client started, shape (n_clients,)."""
        return self._start.copy()

    @property
    def potentials(self) -> Floats:
        """Raw potentials, shape (n_clients,): initial + step · (owed - rounds · realised)."""
        with np.errstate(over="ignore"):
            return within_reach(self._start + self._step * (self.owed - self._given))

    @property
    def forgiven(self) -> Floats:
        """Raw minus effective potentials, shape (n_clients,).

        Positive for clients whose absences exceeded the bound, negative for those that were given
        their share instead; zero up to rounding if the bound was never reached.
        """
        return np.asarray(self.potentials - self.effective_potentials)

    def leave(self, clients: Members) -> None:
        """Set the importance of clients to zero, and scale that of the others to sum to one.

        Indices do not change: a client that left is a client of importance zero.

        Parameters
        ----------
        clients : sequence of int or str, of length n_leaving
            Distinct clients, which together must not have all the importance.
        """
        leaving = self._clients.cohort(clients)
        remaining = self._importance.copy()
        remaining[leaving] = 0.0
        total = float(remaining.sum())
        if not total > 0.0:
            raise ImportanceError(
                f"clients {self._clients.labels(leaving[:5])} ({leaving.size} in all) have all "
                "the importance; a client with importance above 0 must stay"
            )
        self.reweigh(remaining / total)

    def state_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for use in a larger checkpoint.

        Parameters
        ----------
        arrays : bool
            Whether the lists are arrays instead, for a checkpoint that holds arrays.
        """
        return super().state_dict(arrays=arrays) | {"bound": self.bound}

    def _state(self) -> dict[str, Any]:
        return super()._state() | vars(self._effective)

    def _restore(self, held: dict[str, Any], content: Mapping[str, Any]) -> None:
        bound, effective = content["bound"], vars(self._effective)
        super()._restore({name: held[name] for name in held.keys() - effective}, content)
        effective.update({name: held[name] for name in held.keys() & effective})
        refuse_disagreeing(
            {
                "bound": self.bound != bound or isinstance(bound, bool),
                "settled": self._settled > self._rounds,
            }
        )
        self._effective.refuse_inconsistent()

    def _effective_of(self, members: Integers, due: Floats) -> Floats:
        return self._effective.of(members, due)

    def _move(self, members: Integers, due: Floats, effective: Floats, shares: Floats) -> None:
        self._effective.move(members, due, effective=effective, shares=shares)
        # All clients are settled once every n_clients reports, so the amortised work per round is
        # proportional to the cohort.
        if self._effective.is_due:
            self._settle()

    def _shift(self, added: Floats) -> None:
        self._start = within_reach(self._start + added)
        self._effective.shift(added)
        self._effective.count_active(self._importance)

    def _extend(self, start: Floats) -> None:
        self._start = np.concatenate([self._start, start])
        self._effective.enrol(start)
        self._effective.count_active(self._importance)

    def _settle(self) -> None:
        """Bring every client's ``owed`` and effective potential up to date."""
        super()._settle()
        self._effective.settle(self._importance)
