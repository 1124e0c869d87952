"""Alignment without knowing how available the clients are.

After each round the potentials take one step of stochastic ascent on the dual,

    x ← x + η (p − Y_A),

where Y_A are the weights given to the cohort A, zero for absent clients. Summed over T rounds,

    p − (1/T) Σ_t Y_t = (x_T − x_0) / (η T)

for every sequence of cohorts, random or not: if the potentials stay bounded, the realised mean
weights tend to the importance.

Weights are the softmax over the cohort of x, plain weights being equal, or of log p + x, plain
weights being the importance divided by that of the cohort; x then holds only what is learnt about
availability.

**Softness.** Soft alignment maximises D(x) − (ρ/2) Σ p_i (x_i − x̄)², with x̄ = Σ p_i x_i:
potentials are kept close, so that no client dominates whole rounds, at the price of a gap. Its
stochastic ascent is z = x + η g with g = p − Y_A, then x ← z − η ρ p ∘ (x − x̄). The second half is
an implicit step of the penalty, with the mean x̄ of the new x: x_i = x̄ + (z_i − x̄) / d_i, where
d_i = 1 + η ρ p_i and x̄ is the mean of z with weights p_i / d_i. In terms of the same means of x and
of g this is

    x_i ← x̄ + (x_i − mean x) / d_i + (g_i − mean g) η / d_i,   η / d_i = 1 / (1/η + ρ p_i),
    x̄ = mean x + η mean g,   η mean g = −Σ g_i η / d_i / Σ (η ρ p_i / d_i)   since Σ g_i = 0.

In this form nothing overflows and differences do not cancel: the step is stable for all floats η
and ρ. The mean step vanishes at the optimum of soft alignment. An absence by itself raises a
potential to x̄ + 1/ρ at most, however long it is, so no bound is needed.

**Without softness** the potential of an absent client grows by η p_i per round; after a long
absence it would take all the weight of every round it is in. Weights therefore come from
*effective* potentials, to which one absence adds at most a bound. A client at its bound is set
aside: until it returns, its importance goes to the others in proportion, as if it had left. (If it
were only capped, the others would keep falling below it, because their weights would sum to more
than their importance.) Who is at the bound is decided once in as many reports as there are clients.
Under a stationary feasible law an absence adds η p_i / P(i ∈ A) ≤ η on average, with a geometric
tail: less than one absence in a hundred reaches the least bound, five steps, and practically none
reaches ten steps. As long as none does, raw and effective potentials are equal.

Potentials are clipped to ±1e300, so that they, their differences and the weights are finite for
every step. The work per round is proportional to the number of clients.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import (
    LARGEST_POTENTIAL,
    SUM_SLACK,
    Floats,
    Integers,
    as_amount,
    as_distribution,
    as_floats,
    as_importance,
    as_size,
    one_of,
)
from fedavot._clients import Clients, Members, in_client_order
from fedavot._files import PathLike, read_document, write_document
from fedavot._simplex import level_weights
from fedavot.errors import (
    CohortError,
    FileFormatError,
    ImportanceError,
    InputError,
    OptionError,
)

SOFTNESS, STEP = 2.0, 1.0
"""Default softness ρ, and step η with softness: the smallest softness that trained worse than the
plain average only where the average by importance did too (`benchmarks.softness`)."""
EXACT_STEP = 2.0
"""Default step η without softness, in log-odds per unit of weight."""
AROUND = ("equal", "importance")
LEAST_BOUND_IN_STEPS = 5.0
"""Bound below which ordinary absences, not only long ones, would be cut short."""
LEAST_ACTIVE = 1e-6
"""Least importance that counts as not set aside: others are owed at most a million times theirs."""

_FORMAT, _VERSION = "fedavot-online-aligner", 3
_SOFT = ("importance", "potentials", "owed", "totals")
_EXACT = (*_SOFT, "start", "credit", "absentees")


class OnlineAligner:
    """Weight cohorts as they come, and learn from which clients take part.

    Parameters
    ----------
    importance : array_like of shape (n_clients,), or mapping from client name to float
        A distribution over the clients. A client of importance zero gets weight only in cohorts in
        which no client has importance.
    softness : float
        Penalty ρ on the spread of the potentials: the larger it is, the closer the weights are to
        plain ones. 0 means that mean weights tend to the importance itself.
    step : float, optional
        Step η of the ascent, above 0; 1 if not given, and 2 without softness. A larger step
        forgets the initial potentials sooner; a smaller one makes the weights steadier.
    around : str
        Which weights are plain: "importance", each member's importance divided by that of the
        cohort, or "equal", 1/|A|.
    potentials : array_like of shape (n_clients,), optional
        Potentials x to start from; zeros by default, so that the first weights are plain.
    bound : float or None
        The most, in log-odds, that one absence adds to a client's effective potential if softness
        is 0. At least five steps, which ordinary absences may add. None means no limit: a client
        that returns from a long absence then dominates whole rounds until its mean weight has
        caught up with its importance.
    clients : sequence of str, optional
        The clients' names in order; those of the mapping by default.

    Examples
    --------
    >>> aligner = OnlineAligner([0.6, 0.2, 0.2])
    >>> aligner.observe([2, 0]).round(2).tolist()
    [0.25, 0.75]
    >>> exact = OnlineAligner([0.5, 0.25, 0.25], softness=0, step=0.25, around="equal")
    >>> exact.observe([2, 0]).tolist(), exact.potentials.tolist()
    ([0.5, 0.5], [0.0, 0.0625, -0.0625])
    """

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
        *,
        softness: float = SOFTNESS,
        step: float | None = None,
        around: str = "importance",
        potentials: ArrayLike | None = None,
        bound: float | None = 3.0,
        clients: Sequence[str] | None = None,
    ) -> None:
        if clients is None and isinstance(importance, Mapping):
            clients = tuple(importance)
        self._importance = as_distribution(
            in_client_order(importance, clients),
            what="importance",
            item="client",
            error=ImportanceError,
        )
        count = self._importance.size
        self._clients = Clients(count, clients)
        self._softness = as_amount(softness, what="softness")
        default = STEP if self._softness else EXACT_STEP
        self._step = default if step is None else as_amount(step, what="step", positive=True)
        self._around = one_of(around, AROUND, what="around")
        least = LEAST_BOUND_IN_STEPS * self._step
        limit = np.inf if bound is None else as_amount(bound, what="bound", positive=True)
        self._bound = min(max(limit, least), LARGEST_POTENTIAL) if limit < np.inf else limit
        first = np.zeros(count) if potentials is None else potentials
        self._start = _within_reach(_as_finite(first, count, what="potentials"))
        # Effective potentials are these and what the present absence has added, the credit.
        self._potentials, self._credit = self._start.copy(), np.zeros(count)
        self._absentees = np.zeros(count, dtype=bool)
        # Number of rounds, and of reports since clients at the bound were last set aside.
        self._rounds, self._reports = 0, 0
        self._owed, self._totals = np.zeros(count), np.zeros(count)

    @property
    def n_clients(self) -> int:
        """Number of clients, those who left included."""
        return self._importance.size

    @property
    def clients(self) -> tuple[str, ...] | None:
        """The clients' names, if they have any."""
        return self._clients.names

    def __repr__(self) -> str:
        return f"OnlineAligner({self.n_clients:,} clients, {self._rounds:,} rounds)"

    @property
    def softness(self) -> float:
        """Penalty on the spread of the potentials; 0 if there is none."""
        return self._softness

    @property
    def bound(self) -> float | None:
        """The most one absence adds to an effective potential; None if there is no limit."""
        return self._bound if self._bound < np.inf and not self._softness else None

    @property
    def rounds(self) -> int:
        """Number of rounds observed."""
        return self._rounds

    @property
    def importance(self) -> Floats:
        """Present importance, shape (n_clients,)."""
        return self._importance.copy()

    @property
    def owed(self) -> Floats:
        """Importance summed over the rounds observed, shape (n_clients,)."""
        return self._owed.copy()

    @property
    def realised(self) -> Floats:
        """Mean weight each client was given, shape (n_clients,); zeros before the first round."""
        return np.asarray(self._totals / max(self._rounds, 1))

    @property
    def initial_potentials(self) -> Floats:
        """Potential at which each client started, shape (n_clients,)."""
        return self._start.copy()

    @property
    def potentials(self) -> Floats:
        """Potentials x, shape (n_clients,); without softness before what absences are forgiven.

        They are then initial + step · (owed − rounds · realised).
        """
        if self._softness:
            return self._potentials.copy()
        with np.errstate(over="ignore"):
            return _within_reach(self._start + self._step * (self._owed - self._totals))

    @property
    def effective_potentials(self) -> Floats:
        """Potentials of which weights are the softmax, log p included, shape (n_clients,)."""
        return self._effective(np.arange(self.n_clients))

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
        return self._shares(self._clients.cohort(cohort))

    def observe(self, cohort: Members, weights: ArrayLike | None = None) -> Floats:
        """Take one step: the cohort reported and was given its weights.

        Parameters
        ----------
        cohort : sequence of int or str, of length n_members
            Distinct clients, by index or by name.
        weights : array_like of shape (n_members,), optional
            The weights that the members were given, if they differ from those that the method of
            that name returns, such as after a selection among the available. The realised mean
            weights count these.

        Returns
        -------
        ndarray of shape (n_members,)
            The weights given.
        """
        members = self._clients.cohort(cohort)
        if weights is None:
            shares = self._shares(members)
        else:
            shares = as_distribution(weights, what="weight", item="member", error=CohortError)
            if shares.size != members.size:
                raise CohortError(f"there are {shares.size} weights for a cohort of {members.size}")
        self._rounds += 1
        self._owed += self._importance
        self._totals[members] += shares
        self._absentees[members] = False
        active = self._importance[~self._absentees].sum() if self._absentees.any() else 1.0
        excess = self._importance / max(active, LEAST_ACTIVE)
        excess[members] -= shares
        with np.errstate(over="ignore", divide="ignore"):
            if self._softness:
                self._potentials = self._softly_moved(excess)
            else:
                self._move(members, self._step * excess)
        return shares

    def join(
        self,
        importance: ArrayLike,
        potentials: ArrayLike | None = None,
        *,
        clients: Sequence[str] | None = None,
    ) -> Integers:
        """Add clients, by default at the importance-weighted mean of the others' potentials.

        Parameters
        ----------
        importance : float or array_like of shape (n_new,)
            Shares of the new clients in the new total, summing to less than one; the others are
            scaled to share the rest.
        potentials : array_like of shape (n_new,), optional
            Potentials x at which the new clients start.
        clients : sequence of str, optional
            Names of the new clients; needed if and only if the others have names.

        Returns
        -------
        ndarray of int64, shape (n_new,)
            Indices of the new clients.
        """
        amounts = np.array([importance]) if np.isscalar(importance) else importance
        shares = as_floats(amounts, what="importance", error=ImportanceError)
        total = float(shares.sum())
        if not (total < 1.0 and (shares >= 0).all()):
            raise ImportanceError(
                f"importance of the new clients is {shares[:5].tolist()}, in all {total!r}; each "
                "must be at least 0 and their sum below 1"
            )
        everyone = self._clients.joined(shares.size, clients)
        if potentials is None:
            mean = _dot(self._importance, self._potentials + self._credit)
            start = np.full(shares.size, _within_reach(mean))
        else:
            start = _within_reach(_as_finite(potentials, shares.size, what="potentials"))
        self._clients = everyone
        self._importance = np.concatenate([self._importance * (1.0 - total), shares])
        self._start, self._potentials = (
            np.concatenate([array, start]) for array in (self._start, self._potentials)
        )
        self._credit, self._owed, self._totals = (
            np.pad(array, (0, shares.size)) for array in (self._credit, self._owed, self._totals)
        )
        self._set_aside()
        return np.arange(self.n_clients - shares.size, self.n_clients, dtype=np.int64)

    def reweigh(self, importance: ArrayLike, *, added: ArrayLike | None = None) -> None:
        """Change the importance of the clients from now on; earlier rounds stay as they were.

        Parameters
        ----------
        importance : array_like of shape (n_clients,)
            The new distribution over the clients.
        added : array_like of shape (n_clients,), optional
            What is added to the potentials; nothing by default.
        """
        shares = as_importance(importance, self.n_clients)
        change = np.zeros(shares.size) if added is None else added
        change = _as_finite(change, shares.size, what="added")
        self._importance = shares
        self._start = _within_reach(self._start + change)
        self._potentials = _within_reach(self._potentials + change)
        self._set_aside()

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

    def save(self, path: PathLike) -> None:
        """Write the state to ``path`` as versioned JSON, whole or not at all."""
        write_document(path, format=_FORMAT, version=_VERSION, content=self.state_dict())

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read what `save` wrote; the aligner continues as the saved one would."""
        content = read_document(path, format=_FORMAT, version=_VERSION)
        return cls.from_state(content, source=os.fspath(path))

    def state_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for use in a larger checkpoint.

        Parameters
        ----------
        arrays : bool
            Whether the lists are arrays instead, for a checkpoint that holds arrays.
        """
        content: dict[str, Any] = {"softness": self._softness, "step": self._step}
        content |= {"around": self._around, "rounds": self._rounds}
        if not self._softness:
            content |= {"bound": self.bound, "reports": self._reports}
        for name in _SOFT if self._softness else _EXACT:
            array = getattr(self, f"_{name}")
            content[name] = array.copy() if arrays else array.tolist()
        return content if self.clients is None else content | {"clients": list(self.clients)}

    @classmethod
    def from_state(cls, content: Mapping[str, Any], *, source: str = "the state") -> Self:
        """Return an aligner with the state that `state_dict` returned.

        Parameters
        ----------
        content : mapping
            What `state_dict` returned; further keys are ignored.
        source : str
            Where the state comes from, for messages.
        """
        try:
            options = {name: content[name] for name in ("softness", "step", "around")}
            if not options["softness"]:
                options["bound"] = content["bound"]
            aligner = cls(content["importance"], clients=content.get("clients"), **options)
            aligner._rounds = as_size(content["rounds"], what="rounds", low=0)
            aligner._reports = 0 if aligner._softness else content["reports"]
            for name in _SOFT if aligner._softness else _EXACT:
                array = _as_finite(content[name], aligner.n_clients, what=name)
                setattr(aligner, f"_{name}", array.astype(bool) if name == "absentees" else array)
            for name, sums in (("owed", aligner._owed), ("totals", aligner._totals)):
                off = abs(sums.sum() - aligner._rounds)
                if not ((sums >= 0).all() and off <= SUM_SLACK * aligner._rounds):
                    raise OptionError(f"{name} must be at least 0 and sum to the number of rounds")
        except KeyError as cause:
            raise FileFormatError(f"{source} has no {cause}; it was not written by save") from None
        except InputError as cause:
            raise FileFormatError(f"{source} was not written by save: {cause}") from None
        return aligner

    def _effective(self, members: Integers) -> Floats:
        """Return the potentials that determine the weights of some clients."""
        potentials = _within_reach(self._potentials[members] + self._credit[members])
        if self._around == "equal":
            return potentials
        # 0 for clients of importance 0, whose potential is never used.
        importance = self._importance[members]
        return np.asarray(potentials + np.log(np.where(importance > 0, importance, 1.0)))

    def _shares(self, members: Integers) -> Floats:
        """Return the softmax over members with importance; equal weights if nobody has any."""
        idle = self._importance[members] == 0
        return level_weights(np.where(idle, 0.0, self._effective(members)), idle)

    def _move(self, members: Integers, rise: Floats) -> None:
        """Move the members' potentials, and add to the absences of the others up to the bound."""
        here = self._potentials[members] + self._credit[members]
        self._potentials[members] = _within_reach(here + rise[members])
        self._credit = np.minimum(self._credit + rise, min(self._bound, LARGEST_POTENTIAL))
        self._credit[members] = 0.0
        self._reports += members.size
        if self._reports >= self.n_clients:
            self._set_aside()

    def _set_aside(self) -> None:
        """Set aside the clients whose absence has reached the bound."""
        self._absentees, self._reports = self._credit >= self._bound, 0

    def _softly_moved(self, excess: Floats) -> Floats:
        """Return the potentials after a soft step along importance minus weights given."""
        importance, x = self._importance, self._potentials
        # In this order, an importance of 0 is not multiplied by infinity.
        drag = 1.0 + self._step * importance * self._softness
        gain = 1.0 / (1.0 / self._step + self._softness * importance)
        # The weights p / d, times η ρ if that is above 1, so that they do not underflow.
        scale = self._step * self._softness
        below = 1.0 / max(scale, 1.0) + min(scale, 1.0) * importance
        pull = np.divide(importance, below, out=np.zeros_like(x), where=importance > 0)
        total = pull.sum()
        pull /= total
        mean, drift = _dot(pull, x), _dot(pull, excess)
        shift = self._step * drift if scale <= 1.0 else -_dot(gain, excess) / total
        moved = (x - mean) / drag + gain * (excess - drift)
        return _within_reach(mean + shift + moved)


def _as_finite(values: ArrayLike, n_clients: int, *, what: str) -> Floats:
    """Return one finite number per client, as a new array."""
    array = as_floats(values, what=what, error=OptionError)
    if array.size != n_clients:
        raise OptionError(f"{what} has {array.size} entries, but there are {n_clients} clients")
    for client in np.flatnonzero(~np.isfinite(array))[:1]:
        raise OptionError(f"{what} of client {client} is {array[client]}; it must be finite")
    return array.copy()


def _within_reach(potentials: ArrayLike) -> Floats:
    """Return potentials clipped to ±1e300."""
    # Two bounds in turn take half the time of np.clip on a cohort.
    return np.minimum(np.maximum(potentials, -LARGEST_POTENTIAL), LARGEST_POTENTIAL)


def _dot(left: Floats, right: Floats) -> float:
    """Return an inner product without BLAS, whose threads would take more time than the sum."""
    return float((left * right).sum())
