"""A log over more clients than it names: they get their places among the others, and no round."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Integers
from fedavot._incidence import Incidence
from fedavot.audit.participation import Participation
from fedavot.audit.reading.names import keys, ordered


def with_clients(log: Participation, added: Sequence[str]) -> Participation:
    """Return a log over more clients, who took part in no round.

    Parameters
    ----------
    log : Participation
        A log.
    added : sequence of str
        Names that it does not have.
    """
    clients, place = ordered([*log.clients, *sorted(added)])
    place = place[: log.n_clients]
    cohorts, order = _moved(log.cohorts, place, len(clients))
    applied = log.applied
    if applied is not None and order is not None:
        applied = applied[order]
    return replace(
        log,
        clients=clients,
        members=cohorts.members,
        available=log.available and _moved(log.available, place, len(clients))[0],
        unknown=log.unknown and _moved(log.unknown, place, len(clients))[0],
        applied=applied,
    )


def _moved(
    sets: Incidence, place: NDArray[np.int32], n_clients: int
) -> tuple[Incidence, Integers | None]:
    """Return the sets with each client at its new place, and the entries' new order if any."""
    members = place[sets.members]
    if np.all(np.diff(place) > 0):
        return Incidence(members, sets.offsets, n_clients), None
    rounds = sets.spread_over_members(np.arange(sets.n_cohorts, dtype=np.int32))
    order = np.argsort(keys(rounds, members, n_clients))
    return Incidence(members[order], sets.offsets, n_clients), order
