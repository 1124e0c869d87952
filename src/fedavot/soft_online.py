"""Soft alignment without knowing how available the clients are.

Soft alignment maximises D(x) − (ρ/2) Σ p_i (x_i − x̄)², with x̄ = Σ p_i x_i: potentials are held
together, so that no client takes whole rounds, at the price of a gap. Its stochastic ascent is

    z = x + η (p − Y_A),   then   x ← z − η ρ p ∘ (x − x̄),

where Y_A are the weights the cohort A was given, zero for the absent. The second half is the
penalty's step, taken implicitly, with x̄ that of the new x: x_i = x̄ + (z_i − x̄) / (1 + η ρ p_i), and
x̄ = Σ a_i z_i / Σ a_i with a_i = p_i / (1 + η ρ p_i). It is stable for every η and ρ, and the point
where the mean step rests is the soft alignment's optimum. An absence by itself lifts a potential to
x̄ + 1/ρ at most, however long it is, so no bound is needed. The work of a round is in proportion to
the clients.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount, as_cohort, as_distribution, as_size
from fedavot._files import PathLike, read_document, write_document
from fedavot._simplex import softmax
from fedavot.errors import FileFormatError, ImportanceError, InputError
from fedavot.online import as_finite, as_given, as_new_shares

FORMAT = "fedavot-soft-online-aligner"
VERSION = 1

_ARRAYS = ("importance", "potentials", "owed", "given")


class SoftOnlineAligner:
    """Weigh cohorts as they come, trading closeness to the importance for evenness.

    Parameters
    ----------
    importance : array_like of shape (n_clients,)
        A distribution over the clients.
    softness : float
        Price ρ on spread, above 0: the larger, the nearer the weights are to 1/|A|.
    step : float
        Step η of the ascent, above 0.
    potentials : array_like of shape (n_clients,), optional
        Where to start; zeros by default.

    Examples
    --------
    >>> aligner = SoftOnlineAligner([0.5, 0.25, 0.25], softness=1.0, step=0.25)
    >>> aligner.observe([0, 2]).tolist()
    [0.5, 0.5]
    >>> bool(aligner.weights([1, 2])[0] > 0.5)
    True
    """

    def __init__(
        self,
        importance: ArrayLike,
        *,
        softness: float,
        step: float,
        potentials: ArrayLike | None = None,
    ) -> None:
        self._importance = as_distribution(
            importance, what="importance", item="client", error=ImportanceError
        )
        self._softness = as_amount(softness, what="softness", positive=True)
        self._step = as_amount(step, what="step", positive=True)
        self._rounds = 0
        start = np.zeros(self.n_clients) if potentials is None else potentials
        self._potentials = as_finite(start, self.n_clients, what="potentials")
        self._owed = np.zeros(self.n_clients)
        self._given = np.zeros(self.n_clients)

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self._importance.size

    @property
    def rounds(self) -> int:
        """Number of rounds observed."""
        return self._rounds

    @property
    def importance(self) -> Floats:
        """Importance now, shape (n_clients,)."""
        return self._importance.copy()

    @property
    def owed(self) -> Floats:
        """Importance summed over the rounds observed, shape (n_clients,)."""
        return self._owed.copy()

    @property
    def realised(self) -> Floats:
        """Mean weight each client was given, shape (n_clients,); zeros before the first round."""
        return np.asarray(self._given / max(self._rounds, 1))

    @property
    def effective_potentials(self) -> Floats:
        """Potentials that weights follow from, shape (n_clients,)."""
        return self._potentials.copy()

    def weights(self, cohort: ArrayLike) -> Floats:
        """Return the weights of a cohort in its order, summing to one, without learning from it."""
        members = as_cohort(cohort, self.n_clients)
        important = self._importance[members] > 0
        if not important.any():
            return np.full(members.size, 1.0 / members.size)
        shares = np.zeros(members.size)
        shares[important] = softmax(self._potentials[members[important]])
        return shares

    def observe(self, cohort: ArrayLike, given: ArrayLike | None = None) -> Floats:
        """Take one step: the cohort reported and was given its weights.

        Parameters
        ----------
        cohort : array_like of int, shape (n_members,)
            Distinct clients.
        given : array_like of shape (n_members,), optional
            The weights the members were given, where they were others than :meth:`weights` says.

        Returns
        -------
        ndarray of shape (n_members,)
            The weights given.
        """
        members = as_cohort(cohort, self.n_clients)
        shares = self.weights(members) if given is None else as_given(given, members)
        self._rounds += 1
        self._owed += self._importance
        self._given[members] += shares
        moved = self._potentials + self._step * self._importance
        moved[members] -= self._step * shares
        drag = 1.0 + self._step * self._softness * self._importance
        pull = self._importance / drag
        centre = pull @ moved / pull.sum()
        self._potentials = centre + (moved - centre) / drag
        return shares

    def join(self, importance: ArrayLike, potentials: ArrayLike | None = None) -> Integers:
        """Add clients, by default at the mean potential; see :meth:`OnlineAligner.join`."""
        shares = as_new_shares(importance)
        start = np.full(shares.size, self._importance @ self._potentials)
        if potentials is not None:
            start = as_finite(potentials, shares.size, what="potentials")
        nothing = np.zeros(shares.size)
        self._potentials = np.concatenate([self._potentials, start])
        self._owed = np.concatenate([self._owed, nothing])
        self._given = np.concatenate([self._given, nothing])
        self._importance = np.concatenate([self._importance * (1.0 - shares.sum()), shares])
        return np.arange(self.n_clients - shares.size, self.n_clients, dtype=np.int64)

    def save(self, path: PathLike) -> None:
        """Write the state to ``path`` as versioned JSON, whole or not at all."""
        write_document(path, format=FORMAT, version=VERSION, content=self.state_dict())

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read what :meth:`save` wrote; the aligner goes on bit for bit as the saved one would."""
        return cls.from_state(read_document(path, format=FORMAT, version=VERSION), source=str(path))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for a checkpoint that holds more."""
        content: dict[str, Any] = {
            "step": self._step,
            "softness": self._softness,
            "rounds": self._rounds,
        }
        return content | {name: getattr(self, f"_{name}").tolist() for name in _ARRAYS}

    @classmethod
    def from_state(cls, content: Mapping[str, Any], *, source: str = "the state") -> Self:
        """Return the aligner that :meth:`state_dict` was taken of; ``source`` is for messages."""
        try:
            aligner = cls(content["importance"], softness=content["softness"], step=content["step"])
            aligner._rounds = as_size(content["rounds"], what="rounds", low=0)
            for name in _ARRAYS:
                values = as_finite(content[name], aligner.n_clients, what=name)
                setattr(aligner, f"_{name}", values)
        except KeyError as cause:
            raise FileFormatError(f"{source} has no {cause}; it was not written by save") from None
        except InputError as cause:
            raise FileFormatError(f"{source} was not written by save: {cause}") from None
        return aligner
