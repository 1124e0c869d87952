"""Soft alignment without knowing how available the clients are.

Soft alignment maximises D(x) − (ρ/2) Σ p_i (x_i − x̄)², with x̄ = Σ p_i x_i: potentials are held
together, so that no client takes whole rounds, at the price of a gap. Its stochastic ascent is

    z = x + η g   with g = p − Y_A,   then   x ← z − η ρ p ∘ (x − x̄),

where Y_A are the weights the cohort A was given, zero for the absent. The second half is the
penalty's step, taken implicitly, with x̄ that of the new x: x_i = x̄ + (z_i − x̄) / d_i, where
d_i = 1 + η ρ p_i and x̄ is the mean of z by the weights p_i / d_i. With the same means of x and of g
apart this is

    x_i ← x̄ + (x_i − mean x) / d_i + (g_i − mean g) η / d_i,   η / d_i = 1 / (1/η + ρ p_i),
    x̄ = mean x + η mean g,   η mean g = −Σ g_i η / d_i / Σ (η ρ p_i / d_i)   since Σ g_i = 0.

So computed nothing overflows and differences do not cancel: the step is stable for every η and ρ
that is a float. Potentials beyond ±1e300 are moved there. The point where the mean step rests is
the soft alignment's optimum. An absence by itself lifts a potential to x̄ + 1/ρ at most, however
long it is, so no bound is needed. The work of a round is in proportion to the clients.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._accounts import Accounts, as_given, as_new_shares
from fedavot._checks import Floats, Integers, as_amount
from fedavot._clients import Members
from fedavot._effective import within_reach
from fedavot._simplex import softmax
from fedavot._state import as_finite, as_state, reading_state

_COUNTS = ("rounds",)
_AMOUNTS = ("step", "softness")
_ARRAYS = ("importance", "potentials", "owed", "given")


class SoftOnlineAligner(Accounts):
    """Weigh cohorts as they come, trading closeness to the importance for evenness.

    Parameters
    ----------
    importance : array_like of shape (n_clients,), or mapping from client name to float
        A distribution over the clients.
    softness : float
        Price ρ on spread, above 0: the larger, the nearer the weights are to 1/|A|.
    step : float
        Step η of the ascent, above 0.
    potentials : array_like of shape (n_clients,), optional
        Where to start; zeros by default.
    clients : sequence of str, optional
        The clients' names in order; a mapping's own by default.

    Examples
    --------
    >>> aligner = SoftOnlineAligner([0.5, 0.25, 0.25], softness=1.0, step=0.25)
    >>> aligner.observe([0, 2]).tolist()
    [0.5, 0.5]
    >>> bool(aligner.weights([1, 2])[0] > 0.5)
    True
    """

    _format = "fedavot-soft-online-aligner"

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
        *,
        softness: float,
        step: float,
        potentials: ArrayLike | None = None,
        clients: Sequence[str] | None = None,
    ) -> None:
        super().__init__(importance, clients)
        self._softness = as_amount(softness, what="softness", positive=True)
        self._step = as_amount(step, what="step", positive=True)
        start = np.zeros(self.n_clients) if potentials is None else potentials
        self._potentials = within_reach(as_finite(start, self.n_clients, what="potentials"))

    @property
    def owed(self) -> Floats:
        """Importance summed over the rounds observed, shape (n_clients,)."""
        return self._owed.copy()

    @property
    def effective_potentials(self) -> Floats:
        """Potentials that weights follow from, shape (n_clients,)."""
        return self._potentials.copy()

    def weights(self, cohort: Members) -> Floats:
        """Return the weights of a cohort in its order, summing to one, without learning from it."""
        members = self._clients.cohort(cohort)
        important = self._importance[members] > 0
        if not important.any():
            return np.full(members.size, 1.0 / members.size)
        shares = np.zeros(members.size)
        shares[important] = softmax(self._potentials[members[important]])
        return shares

    def observe(self, cohort: Members, given: ArrayLike | None = None) -> Floats:
        """Take one step: the cohort reported and was given its weights.

        Parameters
        ----------
        cohort : sequence of int or str, of length n_members
            Distinct clients, by index or by name.
        given : array_like of shape (n_members,), optional
            The weights the members were given, where they were others than :meth:`weights` says.

        Returns
        -------
        ndarray of shape (n_members,)
            The weights given.
        """
        members = self._clients.cohort(cohort)
        shares = self.weights(members) if given is None else as_given(given, members)
        self._record(members, shares)
        self._owed += self._importance
        excess = self._importance.copy()
        excess[members] -= shares
        self._potentials = self._moved(excess)
        return shares

    def _moved(self, excess: Floats) -> Floats:
        """Return the potentials after a step along ``excess``, importance less weights given."""
        importance, x = self._importance, self._potentials
        with np.errstate(over="ignore", divide="ignore"):
            # In this order an importance of 0 meets no infinity.
            drag = 1.0 + self._step * importance * self._softness
            gain = 1.0 / (1.0 / self._step + self._softness * importance)
            # The weights p / d, times η ρ where that is above 1: then they do not vanish.
            scale = self._step * self._softness
            below = 1.0 / max(scale, 1.0) + min(scale, 1.0) * importance
            pull = np.divide(importance, below, out=np.zeros_like(x), where=importance > 0)
            total = pull.sum()
            pull /= total
            mean, drift = pull @ x, pull @ excess
            shift = self._step * drift if scale <= 1.0 else -(gain @ excess) / total
            moved = (x - mean) / drag + gain * (excess - drift)
            return within_reach(mean + shift + moved)

    def join(
        self,
        importance: ArrayLike,
        potentials: ArrayLike | None = None,
        *,
        clients: Sequence[str] | None = None,
    ) -> Integers:
        """Add clients, by default at the mean potential; see :meth:`OnlineAligner.join`."""
        shares = as_new_shares(importance)
        everyone = self._clients.joined(shares.size, clients)
        start = np.full(shares.size, self._importance @ self._potentials)
        if potentials is not None:
            start = as_finite(potentials, shares.size, what="potentials")
        self._potentials = np.concatenate([self._potentials, within_reach(start)])
        return self._enrol(shares, everyone)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for a checkpoint that holds more."""
        content: dict[str, Any] = {
            "step": self._step,
            "softness": self._softness,
            "rounds": self._rounds,
        }
        content |= {name: getattr(self, f"_{name}").tolist() for name in _ARRAYS}
        return content | self._names()

    @classmethod
    def from_state(cls, content: Mapping[str, Any], *, source: str = "the state") -> Self:
        """Return the aligner that :meth:`state_dict` was taken of; ``source`` is for messages."""
        with reading_state(source):
            held = as_state(content, counts=_COUNTS, amounts=_AMOUNTS, arrays=_ARRAYS)
            aligner = cls(
                held["importance"],
                softness=held["softness"],
                step=held["step"],
                clients=content.get("clients"),
            )
            aligner._restore(held, settled=held["rounds"])
            aligner._potentials = within_reach(held["potentials"])
        return aligner
