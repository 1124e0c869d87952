"""Who took part in each round of a federation, in compressed form.

In a round, a client took part, did not take part, or its state is unknown. Unknown never means
absent: shares are taken over the rounds in which a client's state is known. `reading` reads and
checks the files.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, as_size
from fedavot._incidence import Incidence


@dataclass(frozen=True, eq=False)
class Participation:
    """A participation log as it was read.

    Attributes
    ----------
    clients : tuple of str
        The clients' names: client i is ``clients[i]``. In numerical order if all are numbers,
        otherwise in alphabetical order.
    offsets : int64 array, shape (n_rounds + 1,)
        ``members[offsets[t]:offsets[t + 1]]`` took part in round t.
    members : int32 array, shape (n_entries,)
        The cohorts, one after the other, ascending and distinct within each.
    times : float array, shape (n_rounds,), or None
        Times of the rounds: seconds since 1970 in UTC if the log has dates, otherwise on the log's
        own clock. None if the log has no times.
    available : Incidence or None
        The clients available in each round, if the log has them: those that were asked, whether or
        not they took part; if ``all_available``, all that took part or could have.
    unknown : Incidence or None
        The clients whose state is unknown in each round.
    applied : float array, shape (n_entries,), or None
        The weights that were used, if the log has them.
    examples : float array, shape (n_entries,), or None
        The number of examples that each participant trained on, if the log has it.
    notes : tuple of str
        What was unusual in the log, and how it was read.
    all_available : bool
        Whether ``available`` has all clients that could have been asked.
    """

    clients: tuple[str, ...]
    offsets: Integers
    members: NDArray[np.int32]
    times: Floats | None = None
    available: Incidence | None = None
    unknown: Incidence | None = None
    applied: Floats | None = None
    examples: Floats | None = None
    notes: tuple[str, ...] = ()
    all_available: bool = False

    @property
    def eligible(self) -> Incidence | None:
        """All clients that could have been asked in each round; None if the log does not say."""
        return self.available if self.all_available else None

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.clients)

    @property
    def n_rounds(self) -> int:
        """Number of rounds, including those without participants."""
        return self.offsets.size - 1

    @property
    def n_entries(self) -> int:
        """Sum of the cohorts' sizes."""
        return self.members.size

    @property
    def cohorts(self) -> Incidence:
        """The clients that took part in each round; a round may have none."""
        return Incidence(self.members, self.offsets, self.n_clients)

    def cohort(self, t: int) -> NDArray[np.int32]:
        """Return the clients that took part in round ``t``, in ascending order."""
        place = as_size(t, what="round", low=0, high=self.n_rounds - 1)
        return self.cohorts.row(place)

    def inclusion(self) -> Floats:
        """Return the share of rounds in which each client took part, of those with known state.

        Returns
        -------
        ndarray of shape (n_clients,)
            NaN for a client whose state is never known.
        """
        known = np.full(self.n_clients, self.n_rounds, dtype=np.int64)
        if self.unknown is not None:
            known -= self.unknown.counts()
        shares = np.full(self.n_clients, np.nan)
        taken = self.cohorts.counts()
        np.divide(taken, known, out=shares, where=known > 0)
        return shares

    def rounds_between(self, first: int, last: int) -> "Participation":
        """Return the rounds from ``first`` up to but not including ``last``, with all clients."""
        low = as_size(first, what="first", low=0, high=self.n_rounds)
        high = as_size(last, what="last", low=low, high=self.n_rounds)
        cohorts = self.cohorts.between(low, high)
        entries = slice(self.offsets[low], self.offsets[high])
        return replace(
            self,
            offsets=cohorts.offsets,
            members=cohorts.members,
            times=None if self.times is None else self.times[low:high],
            available=None if self.available is None else self.available.between(low, high),
            unknown=None if self.unknown is None else self.unknown.between(low, high),
            applied=None if self.applied is None else self.applied[entries],
            examples=None if self.examples is None else self.examples[entries],
        )
