"""Alignment without knowing how available the clients are.

After each round the potentials take one step of stochastic ascent on the dual,

    x ← x + η (p - Y_A),

where Y_A are the weights the cohort A was given, zero for the absent. Summed over T rounds,

    p - (1/T) Σ_t Y_t = (x_T - x_0) / (η T)

for every sequence of cohorts, random or not: the realised mean weights are as close to the
importance as the potentials are bounded. So x need not be stored: it is x_0 + η (owed - given),
the importance a client is owed and the weight it was given over the rounds so far.

An absent client's potential grows by η p_i a round; after a long absence it would win every round
it is in. Weights therefore come from *effective* potentials, to which one absence adds at most
``bound``. A client at its bound is set aside: until it is back its importance goes to the others
in proportion, as if it had left. (Were it merely capped, the others would go on sinking below it,
charged for weights that nobody is owed.) Under a stationary feasible law an absence adds
η p_i / P(i ∈ A) ≤ η on average, with a geometric tail: the least bound, five steps, is met by less
than one absence in a hundred, ten steps by none to speak of, and then both potentials are equal.

Potentials stop at ±1e300, so that for every step they, their differences and the weights are
finite. That far apart they are all or nothing in any case.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import (
    Floats,
    Integers,
    as_amount,
    as_cohort,
    as_distribution,
    as_floats,
    as_size,
)
from fedavot._files import PathLike, read_document, write_document
from fedavot.errors import (
    CohortError,
    FileFormatError,
    ImportanceError,
    InputError,
    OptionError,
)

FORMAT = "fedavot-online-aligner"
VERSION = 2

LEAST_BOUND_IN_STEPS = 5.0
"""Bound below which ordinary absences, not only long ones, would be cut short."""

LEAST_ACTIVE = 1e-6
"""Importance not set aside below which no more is shared out: it keeps the clock precise."""

LARGEST = 1e300
"""Where potentials stop: sums and differences of a few such numbers are still finite."""

MOST_ROUNDS = 2**53
"""Most rounds that a float counts."""

STATE_SLACK = 1e-6
"""How far, in proportion, sums over the rounds of a saved state may be off by rounding."""

_COUNTS = ("rounds", "settled", "touches")
_AMOUNTS = ("clock", "active")
_ARRAYS = ("importance", "start", "owed", "given", "standing", "credit", "clock_at")


class OnlineAligner:
    """Weigh cohorts as they come, and learn the potentials from who came.

    Parameters
    ----------
    importance : array_like of shape (n_clients,)
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

    Examples
    --------
    >>> aligner = OnlineAligner([0.5, 0.25, 0.25], step=0.25)
    >>> aligner.weights([2, 0]).tolist()
    [0.5, 0.5]
    >>> _ = aligner.observe([2, 0])
    >>> aligner.potentials.tolist()
    [0.0, 0.0625, -0.0625]
    """

    def __init__(
        self,
        importance: ArrayLike,
        *,
        step: float,
        potentials: ArrayLike | None = None,
        bound: float | None = 3.0,
    ) -> None:
        self._importance = as_distribution(
            importance, what="importance", item="client", error=ImportanceError
        )
        n_clients = self._importance.size
        self._step = as_amount(step, what="step", positive=True)
        self._bound = np.inf
        if bound is not None:
            least = LEAST_BOUND_IN_STEPS * self._step
            wanted = max(as_amount(bound, what="bound", positive=True), least)
            self._bound = min(wanted, LARGEST)
        start = np.zeros(n_clients) if potentials is None else potentials
        self._start = as_finite(start, n_clients, what="potentials")
        # What the raw potentials follow from; owed counts the rounds up to the settled one.
        self._rounds = 0
        self._settled = 0
        self._owed = np.zeros(n_clients)
        self._given = np.zeros(n_clients)
        # Effective potentials when the clock stood at clock_at, and what the absence under way
        # had by then added to them. The clock counts rounds, and runs faster while clients are
        # set aside: importance times clock is then what the others are owed.
        self._standing = within_reach(self._start)
        self._credit = np.zeros(n_clients)
        self._clock = 0.0
        self._clock_at = np.zeros(n_clients)
        # Importance of the clients not set aside, and clients touched since that was counted.
        self._active = 1.0
        self._touches = 0

    @property
    def n_clients(self) -> int:
        """Number of clients, those who left included."""
        return self._importance.size

    @property
    def rounds(self) -> int:
        """Number of rounds observed."""
        return self._rounds

    @property
    def bound(self) -> float | None:
        """The most one absence adds to an effective potential; None if there is no limit."""
        return None if np.isinf(self._bound) else self._bound

    @property
    def importance(self) -> Floats:
        """Importance now, shape (n_clients,)."""
        return self._importance.copy()

    @property
    def owed(self) -> Floats:
        """Importance summed over the rounds observed, shape (n_clients,)."""
        return np.asarray(self._owed + self._importance * (self._rounds - self._settled))

    @property
    def realised(self) -> Floats:
        """Mean weight each client was given, shape (n_clients,); zeros before the first round."""
        return np.asarray(self._given / max(self._rounds, 1))

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
        return self._effective(np.arange(self.n_clients))

    @property
    def forgiven(self) -> Floats:
        """Raw less effective potentials, shape (n_clients,).

        Above zero for clients who were set aside, below for those who were given their share;
        zero to rounding where the bound was never met.
        """
        return np.asarray(self.potentials - self.effective_potentials)

    def weights(self, cohort: ArrayLike) -> Floats:
        """Return the weights of a cohort, without learning from it.

        Parameters
        ----------
        cohort : array_like of int, shape (n_members,)
            Distinct clients.

        Returns
        -------
        ndarray of shape (n_members,)
            Weights in the order of the cohort; they sum to one.
        """
        members = as_cohort(cohort, self.n_clients)
        return self._softmax(members, self._effective(members))

    def observe(self, cohort: ArrayLike, given: ArrayLike | None = None) -> Floats:
        """Take one step: the cohort reported and was given its weights.

        The work is in proportion to the cohort, all clients being settled once in n_clients
        reports.

        Parameters
        ----------
        cohort : array_like of int, shape (n_members,)
            Distinct clients.
        given : array_like of shape (n_members,), optional
            The weights the members were given, where they were others than :meth:`weights` says,
            such as after a selection among the available. The realised mean weights count these.

        Returns
        -------
        ndarray of shape (n_members,)
            The weights given; by default as :meth:`weights` returned them before the step.
        """
        members = as_cohort(cohort, self.n_clients)
        importance = self._importance[members]
        effective = self._effective(members)
        shares = self._softmax(members, effective) if given is None else as_given(given, members)
        self._active += float(importance[self._credit[members] >= self._bound].sum())
        rate = 1.0 / max(self._active, LEAST_ACTIVE)
        self._clock += rate
        self._rounds += 1
        self._touches += members.size
        self._given[members] += shares
        with np.errstate(over="ignore"):
            moved = effective + self._step * (importance * rate - shares)
        self._standing[members] = within_reach(moved)
        self._credit[members] = 0.0
        self._clock_at[members] = self._clock
        if self._touches >= self.n_clients and self._bound < np.inf:
            self._settle()
        return shares

    def join(self, importance: ArrayLike, potentials: ArrayLike | None = None) -> Integers:
        """Add clients, by default at the importance-weighted mean of the effective potentials.

        Parameters
        ----------
        importance : float or array_like of shape (n_new,)
            Shares of the new clients in the new total, summing to less than one; the others are
            scaled to share the rest.
        potentials : array_like of shape (n_new,), optional
            Where the new clients start.

        Returns
        -------
        ndarray of int64, shape (n_new,)
            The new clients' indices.
        """
        shares = as_new_shares(importance)
        if potentials is not None:
            start = as_finite(potentials, shares.size, what="potentials")
        self._settle()
        if potentials is None:
            mean = within_reach(self._importance @ self._standing)
            start = np.full(shares.size, mean)
        self._start = np.concatenate([self._start, start])
        self._standing = np.concatenate([self._standing, start])
        for name in ("_owed", "_given", "_credit", "_clock_at"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(shares.size)]))
        self._importance = np.concatenate([self._importance * (1.0 - shares.sum()), shares])
        self._count_active()
        return np.arange(self.n_clients - shares.size, self.n_clients, dtype=np.int64)

    def leave(self, clients: ArrayLike) -> None:
        """Take the importance of clients away and scale the others' to sum to one.

        Every index stays valid; a client who left is one of importance zero.

        Parameters
        ----------
        clients : array_like of int, shape (n_leaving,)
            Distinct clients, who do not carry all importance between them.
        """
        leaving = as_cohort(clients, self.n_clients)
        remaining = self._importance.copy()
        remaining[leaving] = 0.0
        total = float(remaining.sum())
        if not total > 0.0:
            raise ImportanceError(
                f"clients {leaving[:5].tolist()} ({leaving.size} in all) carry all importance; "
                "somebody with importance above 0 must stay"
            )
        self._settle()
        self._importance = remaining / total
        self._count_active()

    def save(self, path: PathLike) -> None:
        """Write the state to ``path`` as versioned JSON, whole or not at all."""
        write_document(path, format=FORMAT, version=VERSION, content=self.state_dict())

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read what :meth:`save` wrote; the aligner goes on bit for bit as the saved one would."""
        content = read_document(path, format=FORMAT, version=VERSION)
        return cls.from_state(content, source=os.fspath(path))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for a checkpoint that holds more."""
        content: dict[str, Any] = {"step": self._step, "bound": self.bound}
        content |= {name: getattr(self, f"_{name}") for name in _COUNTS + _AMOUNTS}
        content |= {name: getattr(self, f"_{name}").tolist() for name in _ARRAYS}
        return content

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
        try:
            held = as_state(content, counts=_COUNTS, amounts=("step", *_AMOUNTS), arrays=_ARRAYS)
            aligner = cls(held["importance"], step=held["step"], bound=content["bound"])
            for name in _COUNTS + _AMOUNTS + _ARRAYS:
                setattr(aligner, f"_{name}", held[name])
            refuse_sums(held["given"], held["rounds"], what="given")
            refuse_sums(held["owed"], held["settled"], what="owed")
            aligner._refuse_inconsistent(content["bound"])
        except KeyError as cause:
            raise FileFormatError(f"{source} has no {cause}; it was not written by save") from None
        except (InputError, OverflowError) as cause:
            raise FileFormatError(f"{source} was not written by save: {cause}") from None
        return aligner

    def _refuse_inconsistent(self, bound: Any) -> None:
        """Refuse a state that no sequence of rounds leads to."""
        wrong = (
            ("bound", self.bound != bound or isinstance(bound, bool)),
            ("settled", self._settled > self._rounds),
            ("touches", self._bound < np.inf and self._touches >= self.n_clients),
            ("active", self._active > 1.0 + STATE_SLACK),
            ("credit", not ((self._credit >= 0) & (self._credit <= self._bound)).all()),
            ("clock_at", not ((self._clock_at >= 0) & (self._clock_at <= self._clock)).all()),
            ("standing", not (np.abs(self._standing) <= LARGEST).all()),
        )
        for name, is_wrong in wrong:
            if is_wrong:
                raise OptionError(f"{name} does not agree with the other numbers")

    def _effective(self, members: Integers) -> Floats:
        added = self._grown(members) - self._credit[members]
        return within_reach(self._standing[members] + added)

    def _grown(self, members: Integers) -> Floats:
        """Return what the absence under way has added by now."""
        elapsed = self._clock - self._clock_at[members]
        with np.errstate(over="ignore"):
            grown = self._credit[members] + self._step * self._importance[members] * elapsed
        return np.minimum(grown, min(self._bound, LARGEST))

    def _softmax(self, members: Integers, effective: Floats) -> Floats:
        ranked = np.where(self._importance[members] > 0, effective, -np.inf)
        highest = ranked.max()
        if highest == -np.inf:
            return np.full(members.size, 1.0 / members.size)
        odds = np.exp(ranked - highest)
        return np.asarray(odds / odds.sum())

    def _settle(self) -> None:
        """Bring every client up to now, and start the clock anew."""
        self._owed = self.owed
        self._settled = self._rounds
        self._standing = self.effective_potentials
        self._credit = self._grown(np.arange(self.n_clients))
        self._clock = 0.0
        self._clock_at = np.zeros(self.n_clients)
        self._count_active()

    def _count_active(self) -> None:
        aside = self._credit >= self._bound
        # Exactly one while nobody is aside, so that the clock then counts rounds exactly.
        self._active = float(self._importance[~aside].sum()) if aside.any() else 1.0
        self._touches = 0


def as_given(given: ArrayLike, members: Integers) -> Floats:
    """Return the weights that members were given: non-negative, summing to one."""
    weights = as_distribution(given, what="given weight", item="member", error=CohortError)
    if weights.size != members.size:
        raise CohortError(f"given has {weights.size} weights for a cohort of {members.size}")
    return weights


def as_finite(values: ArrayLike, n_clients: int, *, what: str) -> Floats:
    """Return one finite number a client."""
    array = as_floats(values, what=what, error=OptionError)
    if array.size != n_clients:
        raise OptionError(f"{what} has {array.size} entries, but there are {n_clients} clients")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise OptionError(f"{what} of client {bad[0]} is {array[bad[0]]}; it must be finite")
    return array.copy()


def as_state(
    content: Mapping[str, Any],
    *,
    counts: Sequence[str],
    amounts: Sequence[str],
    arrays: Sequence[str],
) -> dict[str, Any]:
    """Return the numbers of a saved state by name: JSON's own numbers, and no text for them."""
    held: dict[str, Any] = {}
    for name in (*counts, *amounts):
        if not _is_number(content[name]):
            raise OptionError(f"{name} must be a number, found {content[name]!r}")
    for name in counts:
        held[name] = as_size(content[name], what=name, low=0, high=MOST_ROUNDS)
    for name in amounts:
        held[name] = as_amount(content[name], what=name)
    for name in arrays:
        values = content[name]
        if not isinstance(values, list) or not all(map(_is_number, values)):
            raise OptionError(f"{name} must be a sequence of numbers")
        held[name] = as_finite(values, len(content[arrays[0]]), what=name)
    return held


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refuse_sums(values: Floats, rounds: int, *, what: str) -> None:
    """Refuse shares over some rounds that are negative, or are not one in all for each round."""
    if not ((values >= 0).all() and abs(values.sum() - rounds) <= STATE_SLACK * rounds):
        raise OptionError(f"{what} must be at least 0 and in all {rounds}, one for each round")


def within_reach(potentials: Any) -> Floats:
    """Return potentials with those beyond ±1e300 moved there."""
    return np.asarray(np.clip(potentials, -LARGEST, LARGEST))


def as_new_shares(importance: ArrayLike) -> Floats:
    """Return the shares of new clients, which leave some for the others."""
    listed = np.array([importance]) if np.isscalar(importance) else importance
    shares = as_floats(listed, what="importance", error=ImportanceError)
    total = float(shares.sum())
    if not (total < 1.0 and (shares >= 0).all()):
        raise ImportanceError(
            f"importance of the new clients is {shares[:5].tolist()}, in all {total!r}; each must "
            "be at least 0 and all together below 1"
        )
    return shares
