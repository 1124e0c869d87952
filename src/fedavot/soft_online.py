"""Soft alignment without knowing how available the clients are.

Soft alignment maximises D(x) − (ρ/2) Σ p_i (x_i − x̄)², with x̄ = Σ p_i x_i: potentials are kept
close, so that no client dominates whole rounds, at the price of a gap. Its stochastic ascent is

    z = x + η g   with g = p − Y_A,   then   x ← z − η ρ p ∘ (x − x̄),

where Y_A are the weights given to the cohort A, zero for absent clients. The second half is an
implicit step of the penalty, with the mean x̄ of the new x: x_i = x̄ + (z_i − x̄) / d_i, where
d_i = 1 + η ρ p_i and x̄ is the mean of z with weights p_i / d_i. In terms of the same means of x and
of g this is

    x_i ← x̄ + (x_i − mean x) / d_i + (g_i − mean g) η / d_i,   η / d_i = 1 / (1/η + ρ p_i),
    x̄ = mean x + η mean g,   η mean g = −Σ g_i η / d_i / Σ (η ρ p_i / d_i)   since Σ g_i = 0.

In this form nothing overflows and differences do not cancel: the step is stable for all floats η
and ρ. Potentials are clipped to ±1e300. The mean step vanishes at the optimum of soft alignment. An
absence by itself raises a potential to x̄ + 1/ρ at most, however long it is, so no bound is needed.
The work per round is proportional to the number of clients.

Weights are the softmax over the cohort of x, which tends to equal weights for large ρ; or of
log p + x, which tends to the importance divided by that of the cohort, so that x holds only what is
learnt about availability. The second, with the constants below, is what `fedavot.flower` learns by
default and what an audit replays.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedavot._accounts import Accounts
from fedavot._checks import Floats, Integers, as_amount, one_of
from fedavot._state import as_finite, within_reach

SOFTNESS, STEP = 2.0, 1.0
"""Default softness ρ and step η around the importance: the smallest softness that trained worse
than the plain average only where the average by importance did too (`benchmarks.softness`)."""
AROUND = ("equal", "importance")


class SoftOnlineAligner(Accounts):
    """Weight cohorts as they come, as a compromise between the importance and plain weights.

    Parameters
    ----------
    importance : array_like of shape (n_clients,), or mapping from client name to float
        A distribution over the clients.
    softness : float
        Penalty ρ on the spread of the potentials, above 0: the larger it is, the closer the weights
        are to plain ones.
    step : float
        Step η of the ascent, above 0.
    around : str
        Which weights are plain: "equal", 1/|A|, or "importance", each member's importance divided
        by that of the cohort.
    potentials : array_like of shape (n_clients,), optional
        Potentials x to start from; zeros by default, so that the first weights are plain.
    clients : sequence of str, optional
        The clients' names in order; those of the mapping by default.

    Examples
    --------
    >>> aligner = SoftOnlineAligner([0.5, 0.25, 0.25], softness=1.0, step=0.25)
    >>> aligner.observe([0, 2]).tolist()
    [0.5, 0.5]
    >>> bool(aligner.weights([1, 2])[0] > 0.5)
    True
    >>> by_importance = {"softness": SOFTNESS, "step": STEP, "around": "importance"}
    >>> SoftOnlineAligner([0.6, 0.2, 0.2], **by_importance).observe([0, 2]).round(2).tolist()
    [0.75, 0.25]
    """

    _format = "fedavot-soft-online-aligner"
    _version = 3
    _earlier: ClassVar[dict[str, Any]] = {"around": "equal"}
    _options = ("importance", "softness", "step", "potentials", "around")
    _counts = ("rounds",)
    _amounts = ("step", "softness")
    _arrays = ("importance", "potentials", "owed", "given")

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
        *,
        softness: float,
        step: float,
        around: str = "equal",
        potentials: ArrayLike | None = None,
        clients: Sequence[str] | None = None,
    ) -> None:
        super().__init__(importance, step, clients)
        self._softness = as_amount(softness, what="softness", positive=True)
        self._around = one_of(around, AROUND, what="around")
        start = np.zeros(self.n_clients) if potentials is None else potentials
        self._potentials = within_reach(as_finite(start, self.n_clients, what="potentials"))

    def state_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for use in a larger checkpoint.

        Parameters
        ----------
        arrays : bool
            Whether the lists are arrays instead, for a checkpoint that holds arrays.
        """
        return super().state_dict(arrays=arrays) | {"around": self._around}

    def _restore(self, held: dict[str, Any], content: Mapping[str, Any]) -> None:
        super()._restore(held | {"potentials": within_reach(held["potentials"])}, content)
        self._settled = self._rounds

    def _effective_of(self, members: Integers, due: Floats) -> Floats:
        learnt = self._potentials[members]
        if self._around == "equal":
            return learnt
        # 0 for clients of importance 0, whose potential is never used.
        return np.asarray(learnt + np.log(np.where(due > 0, due, 1.0)))

    def _usual(self) -> float:
        return _dot(self._importance, self._potentials)

    def _move(self, members: Integers, due: Floats, effective: Floats, shares: Floats) -> None:
        self._settle()
        excess = self._importance.copy()
        excess[members] -= shares
        self._potentials = self._moved(excess)

    def _shift(self, added: Floats) -> None:
        self._potentials = within_reach(self._potentials + added)

    def _extend(self, start: Floats) -> None:
        self._potentials = np.concatenate([self._potentials, within_reach(start)])

    def _moved(self, excess: Floats) -> Floats:
        """Return the potentials after a step along ``excess``, importance minus weights given."""
        importance, x = self._importance, self._potentials
        with np.errstate(over="ignore", divide="ignore"):
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
            return within_reach(mean + shift + moved)


def _dot(left: Floats, right: Floats) -> float:
    """Return an inner product without BLAS, whose threads would take more time than the sum."""
    return float((left * right).sum())
