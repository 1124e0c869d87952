"""A participation log and the importance of its clients: the input of an audit."""

from dataclasses import dataclass

from fedavot._checks import Floats, Integers
from fedavot.audit.participation import Participation


@dataclass(frozen=True, eq=False)
class Federation:
    """Who took part, and the importance of each client.

    Attributes
    ----------
    participation : Participation
        The log, over all clients; clients with importance that are not in it are added.
    importance : float array, shape (n_clients,)
        The importance of each client; it sums to one.
    groups : tuple of str
        The groups' names; empty without groups.
    group_of : int array, shape (n_clients,), or None
        The group of each client, as a position in ``groups``.
    """

    participation: Participation
    importance: Floats
    groups: tuple[str, ...] = ()
    group_of: Integers | None = None

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self.importance.size
