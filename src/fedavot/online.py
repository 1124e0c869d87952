"""Alignment without knowing how available the clients are.

After each round the potentials take one step of stochastic ascent on the dual,

    x ← x + η (p - Y_A),

where Y_A are the weights the cohort A was given, zero for the absent. Summed over T rounds,

    p - (1/T) Σ_t Y_t = (x_T - x_0) / (η T)

for every sequence of cohorts, random or not: the realised mean weights are as close to the
importance as the potentials are bounded. So x need not be stored: it is x_0 + η (owed - given),
the importance a client is owed and the weight it was given over the rounds so far.

Weights follow from the *effective* potentials: these, less what an absence adds beyond a bound.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._accounts import Accounts, as_given, as_new_shares
from fedavot._checks import Floats, Integers, as_amount
from fedavot._clients import Members
from fedavot._effective import EffectivePotentials, as_bound, within_reach
from fedavot._state import as_finite, as_state, reading_state, refuse_disagreeing
from fedavot.errors import ImportanceError

STEP = 2.0
"""A step η that serves most federations, in log-odds per unit of weight."""

_COUNTS = ("rounds", "settled", "touches")
_AMOUNTS = ("clock", "active")
_ARRAYS = ("importance", "start", "owed", "given", "standing", "credit", "clock_at")
_EFFECTIVE = ("touches", "clock", "active", "standing", "credit", "clock_at")


class OnlineAligner(Accounts):
    """Weigh cohorts as they come, and learn the potentials from who came.

    Parameters
    ----------
    importance : array_like of shape (n_clients,), or mapping from client name to float
        A distribution over the clients. A client of importance zero gets weight only in cohorts
        where nobody has any.
    step : float
        Step η of the ascent, above 0. A larger one forgets the start sooner, a smaller one makes
        the weights steadier.
    potentials : array_like of shape (n_clients,), optional
        Where to start, such as an offline alignment's potentials; zeros by default.
    bound : float or None
        The most, in log-odds, that one absence adds to a client's effective potential; raised to
        five steps if less, for ordinary absences add as much. None is no limit: a client back
        from a long absence then takes whole rounds until it was given what it is owed.
    clients : sequence of str, optional
        The clients' names in order; a mapping's own by default.

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

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
        *,
        step: float,
        potentials: ArrayLike | None = None,
        bound: float | None = 3.0,
        clients: Sequence[str] | None = None,
    ) -> None:
        super().__init__(importance, clients)
        self._step = as_amount(step, what="step", positive=True)
        limit = as_bound(bound, step=self._step)
        start = np.zeros(self.n_clients) if potentials is None else potentials
        self._start = as_finite(start, self.n_clients, what="potentials")
        # Raw potentials follow from start, owed and given; owed counts the rounds up to this one.
        self._settled = 0
        self._effective = EffectivePotentials(self._start, step=self._step, bound=limit)

    @property
    def n_clients(self) -> int:
        """Number of clients, those who left included."""
        return super().n_clients

    @property
    def bound(self) -> float | None:
        """The most one absence adds to an effective potential; None if there is no limit."""
        return None if np.isinf(self._effective.bound) else self._effective.bound

    @property
    def owed(self) -> Floats:
        """Importance summed over the rounds observed, shape (n_clients,)."""
        return np.asarray(self._owed + self._importance * (self._rounds - self._settled))

    @property
    def initial_potentials(self) -> Floats:
        """Potentials each client started from, shape (n_clients,)."""
        return self._start.copy()

    @property
    def potentials(self) -> Floats:
        """Raw potentials now, shape (n_clients,): initial + step · (owed - rounds · realised)."""
        with np.errstate(over="ignore"):
            return within_reach(self._start + self._step * (self.owed - self._given))

    @property
    def effective_potentials(self) -> Floats:
        """Potentials that weights follow from, shape (n_clients,)."""
        return self._effective.of_all(self._importance)

    @property
    def forgiven(self) -> Floats:
        """Raw less effective potentials, shape (n_clients,).

        Above zero for clients who were set aside, below for those who were given their share;
        zero to rounding where the bound was never met.
        """
        return np.asarray(self.potentials - self.effective_potentials)

    def weights(self, cohort: Members) -> Floats:
        """Return the weights of a cohort, without learning from it.

        Parameters
        ----------
        cohort : sequence of int or str, of length n_members
            Distinct clients, by index or by name.

        Returns
        -------
        ndarray of shape (n_members,)
            Weights in the order of the cohort; they sum to one.
        """
        members = self._clients.cohort(cohort)
        return self._softmax(members, self._effective.of(members, self._importance))

    def observe(self, cohort: Members, given: ArrayLike | None = None) -> Floats:
        """Take one step: the cohort reported and was given its weights.

        The work is in proportion to the cohort, all clients being settled once in n_clients
        reports.

        Parameters
        ----------
        cohort : sequence of int or str, of length n_members
            Distinct clients, by index or by name.
        given : array_like of shape (n_members,), optional
            The weights the members were given, where they were others than :meth:`weights` says,
            such as after a selection among the available. The realised mean weights count these.

        Returns
        -------
        ndarray of shape (n_members,)
            The weights given; by default as :meth:`weights` returned them before the step.
        """
        members = self._clients.cohort(cohort)
        effective = self._effective.of(members, self._importance)
        shares = self._softmax(members, effective) if given is None else as_given(given, members)
        self._record(members, shares)
        self._effective.move(members, self._importance, effective=effective, shares=shares)
        if self._effective.is_due:
            self._settle()
        return shares

    def join(
        self,
        importance: ArrayLike,
        potentials: ArrayLike | None = None,
        *,
        clients: Sequence[str] | None = None,
    ) -> Integers:
        """Add clients, by default at the importance-weighted mean of the effective potentials.

        Parameters
        ----------
        importance : float or array_like of shape (n_new,)
            Shares of the new clients in the new total, summing to less than one; the others are
            scaled to share the rest.
        potentials : array_like of shape (n_new,), optional
            Where the new clients start.
        clients : sequence of str, optional
            Names of the new clients; needed if and only if the others have names.

        Returns
        -------
        ndarray of int64, shape (n_new,)
            The new clients' indices.
        """
        shares = as_new_shares(importance)
        everyone = self._clients.joined(shares.size, clients)
        if potentials is not None:
            start = as_finite(potentials, shares.size, what="potentials")
        self._settle()
        if potentials is None:
            mean = within_reach(self._importance @ self._effective.standing)
            start = np.full(shares.size, mean)
        self._start = np.concatenate([self._start, start])
        self._effective.enrol(start)
        joined = self._enrol(shares, everyone)
        self._effective.count_active(self._importance)
        return joined

    def leave(self, clients: Members) -> None:
        """Take the importance of clients away and scale the others' to sum to one.

        Every index stays valid; a client who left is one of importance zero.

        Parameters
        ----------
        clients : sequence of int or str, of length n_leaving
            Distinct clients, who do not carry all importance between them.
        """
        leaving = self._clients.cohort(clients)
        remaining = self._importance.copy()
        remaining[leaving] = 0.0
        total = float(remaining.sum())
        if not total > 0.0:
            raise ImportanceError(
                f"clients {self._clients.labels(leaving[:5])} ({leaving.size} in all) carry all "
                "importance; "
                "somebody with importance above 0 must stay"
            )
        self._settle()
        self._importance = remaining / total
        self._effective.count_active(self._importance)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for a checkpoint that holds more."""
        kept = vars(self._effective) | {
            "rounds": self._rounds,
            "settled": self._settled,
            "importance": self._importance,
            "start": self._start,
            "owed": self._owed,
            "given": self._given,
        }
        content: dict[str, Any] = {"step": self._step, "bound": self.bound}
        content |= {name: kept[name] for name in _COUNTS + _AMOUNTS}
        content |= {name: kept[name].tolist() for name in _ARRAYS}
        return content | self._names()

    @classmethod
    def from_state(cls, content: Mapping[str, Any], *, source: str = "the state") -> Self:
        """Return the aligner that :meth:`state_dict` was taken of.

        Parameters
        ----------
        content : mapping
            What :meth:`state_dict` returned; further keys are ignored.
        source : str
            Where it comes from, for messages.
        """
        with reading_state(source):
            held = as_state(content, counts=_COUNTS, amounts=("step", *_AMOUNTS), arrays=_ARRAYS)
            bound = content["bound"]
            names = content.get("clients")
            aligner = cls(held["importance"], step=held["step"], bound=bound, clients=names)
            for name in _EFFECTIVE:
                setattr(aligner._effective, name, held.pop(name))
            aligner._restore(held, settled=held["settled"])
            refuse_disagreeing(
                {
                    "bound": aligner.bound != bound or isinstance(bound, bool),
                    "settled": aligner._settled > aligner._rounds,
                }
            )
            aligner._effective.refuse_inconsistent()
        return aligner

    def _softmax(self, members: Integers, effective: Floats) -> Floats:
        ranked = np.where(self._importance[members] > 0, effective, -np.inf)
        highest = ranked.max()
        if highest == -np.inf:
            return np.full(members.size, 1.0 / members.size)
        odds = np.exp(ranked - highest)
        return np.asarray(odds / odds.sum())

    def _settle(self) -> None:
        """Bring what every client is owed and its effective potential up to now."""
        self._owed = self.owed
        self._settled = self._rounds
        self._effective.settle(self._importance)
