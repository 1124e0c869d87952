"""Who took part in each round of a federation, in compressed form.

A client is in one of three states in a round: it took part, it did not, or its state is not known.
Not known is never read as absent: shares are taken over the rounds in which a client's state is
known. Nothing here reads files or checks what was read; `reading` does.
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
        The clients' names: client i is ``clients[i]``. Numbers in order of size, if all are
        numbers; else in order of their characters.
    offsets : int64 array, shape (n_rounds + 1,)
        ``members[offsets[t]:offsets[t + 1]]`` took part in round t.
    members : int32 array, shape (n_entries,)
        The cohorts, one after the other, ascending and distinct within each.
    times : float array, shape (n_rounds,), or None
        When the rounds were: seconds since 1970 in UTC where the log has dates, and on the log's
        own clock where it has numbers. None if the log has no times.
    available : Incidence or None
        Who was there in each round, where the log tells: those asked, whether or not they took
        part; if ``all_available``, those who took part or could have, had they been asked.
    unknown : Incidence or None
        Whose state in a round is not known: neither present nor absent.
    applied : float array, shape (n_entries,), or None
        The weights that were used, where the log tells.
    notes : tuple of str
        What was odd in the log, and how it was read.
    all_available : bool
        Whether ``available`` names everybody who could have been asked.
    """

    clients: tuple[str, ...]
    offsets: Integers
    members: NDArray[np.int32]
    times: Floats | None = None
    available: Incidence | None = None
    unknown: Incidence | None = None
    applied: Floats | None = None
    notes: tuple[str, ...] = ()
    all_available: bool = False

    @property
    def eligible(self) -> Incidence | None:
        """Everybody who could have been asked in each round; None if the log does not tell."""
        return self.available if self.all_available else None

    @property
    def n_clients(self) -> int:
        """How many clients the log names."""
        return len(self.clients)

    @property
    def n_rounds(self) -> int:
        """How many rounds there are, those nobody took part in included."""
        return self.offsets.size - 1

    @property
    def n_entries(self) -> int:
        """The sizes of all cohorts together."""
        return self.members.size

    @property
    def cohorts(self) -> Incidence:
        """The clients that took part in each round; a round may have none."""
        return Incidence(self.members, self.offsets, self.n_clients)

    def cohort(self, t: int) -> NDArray[np.int32]:
        """Return who took part in round ``t``, ascending."""
        place = as_size(t, what="round", low=0, high=self.n_rounds - 1)
        return self.cohorts.row(place)

    def inclusion(self) -> Floats:
        """Return the share of rounds each client took part in, of those it is known in.

        Returns
        -------
        ndarray of shape (n_clients,)
            NaN for a client whose state is known in no round.
        """
        known = np.full(self.n_clients, self.n_rounds, dtype=np.int64)
        if self.unknown is not None:
            known -= self.unknown.counts()
        shares = np.full(self.n_clients, np.nan)
        taken = self.cohorts.counts()
        np.divide(taken, known, out=shares, where=known > 0)
        return shares

    def rounds_between(self, first: int, last: int) -> "Participation":
        """Return the rounds from ``first`` to before ``last``, over the same clients."""
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
        )
