"""A participation log, and what its clients should count: what an audit is of."""

from dataclasses import dataclass

from fedavot._checks import Floats, Integers
from fedavot.audit.participation import Participation


@dataclass(frozen=True, eq=False)
class Federation:
    """Who took part, and how much each client should count.

    Attributes
    ----------
    participation : Participation
        The log, over all clients: those with importance whom it never names are added.
    importance : float array, shape (n_clients,)
        What each client should count; it sums to one.
    groups : tuple of str
        The groups' names, where clients have groups; else empty.
    group_of : int array, shape (n_clients,), or None
        The group of each client, as a position in ``groups``.
    """

    participation: Participation
    importance: Floats
    groups: tuple[str, ...] = ()
    group_of: Integers | None = None

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        return self.importance.size
