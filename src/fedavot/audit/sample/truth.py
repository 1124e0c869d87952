"""The synthetic federation of `sample`: how its clients behave, and its true figures.

Clients are online independently given the hour of the week, so the figures that an audit should
find are known exactly. With a_i(h) for the probability that client i is online in hour h, K for the
number of other clients online, and r for the probability that a client that is asked replies:

    P(i replies in h) = r a_i(h) E[min(1, 10 / (1 + K))]

Drawing a log is left to `sample`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, as_size
from fedavot._simplex import total_variation
from fedavot.importance import by_group

START = datetime(2024, 1, 8, tzinfo=UTC)
"""The first round: a Monday at midnight, so that hour 0 of the week is hour 0 of the log."""
PERIOD = timedelta(minutes=30)
ROUNDS_AN_HOUR = 2
COHORT = 10
MOST_DAYS = 366
HOURS = 7 * 24
STATUSES = {"replied": 0.88, "late": 0.07, "failed": 0.05}
"""The outcomes for a client that is asked, and their probabilities: the same for all clients."""


class Group(NamedTuple):
    """Clients with the same habits: the prefix of their names, hours ahead of UTC, importance."""

    name: str
    prefix: str
    ahead: int
    share: float


GROUPS = (
    Group("phones in Europe", "eu-phone", 1, 0.30),
    Group("phones in America", "am-phone", -5, 0.25),
    Group("phones in Asia", "as-phone", 8, 0.20),
    Group("clinics", "eu-clinic", 1, 0.25),
)
CLINICS = 3
OFFICE_HOURS = (8, 17)
IN_OFFICE = 0.30
"""The probability that a clinic is online in office hours from Monday to Friday, local time."""
HABITS = (1.0, 0.7, 0.4)
"""How often the phones of a group are plugged in, relative to the first and repeating in turn."""
WEEKDAY = np.array([*[0.75] * 6, 0.50, 0.25, *[0.08] * 13, 0.20, 0.45, 0.65])
WEEKEND = np.array([*[0.60] * 6, 0.55, 0.45, 0.30, *[0.12] * 12, 0.20, 0.35, 0.50])
"""The probability that the first phone of a group is charging, by local hour."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The true figures of the federation, whatever the seed.

    Attributes
    ----------
    clients : tuple of str
        The clients' names.
    groups : tuple of str
        The group of each client.
    importance : float array, shape (n_clients,)
        The importance of each client; equal within a group.
    online : float array, shape (n_clients,)
        The expected share of the time that each is online.
    inclusion : float array, shape (n_clients,)
        The probability that each takes part (is asked, and replies) in a round with any client
        online.
    average : float array, shape (n_clients,)
        The expected share of each in the plain average of the replies: what 1/|S| optimises.
    reach : dict from str to float
        The probability that at least one client of a group takes part in such a round.
    """

    clients: tuple[str, ...]
    groups: tuple[str, ...]
    importance: Floats
    online: Floats
    inclusion: Floats
    average: Floats
    reach: dict[str, float]

    @property
    def gap(self) -> float:
        """Total variation between the importance and what the plain average optimises."""
        return float(total_variation(self.average, self.importance))


def truth(*, n_clients: int = 120, days: int = 14) -> Truth:
    """Compute the expected figures of a sample, without drawing one.

    Parameters
    ----------
    n_clients : int
        Number of clients, from 20 to 500; about 1 in 13 is a clinic.
    days : int
        Length of the log, from 1 to 366, starting on a Monday.
    """
    group_of, online = population(n_clients)
    size = group_of.size
    n_hours = 24 * as_size(days, what="days", low=1, high=MOST_DAYS)
    often = np.bincount(np.arange(n_hours) % HOURS, minlength=HOURS) / n_hours
    happens = often @ (1 - np.prod(1 - online, axis=1))
    others = np.arange(size)
    asked = np.minimum(1.0, COHORT / (others + 1))
    silent = (1 - STATUSES["replied"]) ** np.minimum(COHORT, others + 1)
    inclusion, average = np.empty(size), np.empty(size)
    _, first, kinds = np.unique(online, axis=1, return_index=True, return_inverse=True)
    for kind, client in enumerate(first):
        alike = kinds.ravel() == kind
        law = online[:, client, None] * _count_law(np.delete(online, client, axis=1))
        inclusion[alike] = STATUSES["replied"] * (often @ (law @ asked)) / happens
        # Each of the m clients asked has the same expected share of the replies, and
        # min(1, 10 / (K + 1)) / m = 1 / (K + 1).
        average[alike] = often @ (law @ ((1 - silent) / (others + 1)))
    missed = [often @ _missed(online, group_of == at) for at in range(len(GROUPS))]
    groups = tuple(GROUPS[at].name for at in group_of)
    return Truth(
        clients=client_names(group_of),
        groups=groups,
        importance=by_group(groups, {group.name: group.share for group in GROUPS}),
        online=often @ online,
        inclusion=inclusion,
        average=average / average.sum(),
        reach={
            group.name: float((1 - miss) / happens)
            for group, miss in zip(GROUPS, missed, strict=True)
        },
    )


def population(n_clients: int) -> tuple[Integers, Floats]:
    """Return each client's group, and its probability to be online by hour of the week in UTC.

    Returns
    -------
    group_of : int array, shape (n_clients,)
    online : float array, shape (168, n_clients)
    """
    size = as_size(n_clients, what="n_clients", low=20, high=500)
    clinics = (3 * size + 20) // 40
    america, asia = ((size - clinics) * part // 100 for part in (35, 25))
    sizes = (size - clinics - america - asia, america, asia, clinics)
    group_of = np.repeat(np.arange(len(GROUPS)), sizes)
    habit = np.concatenate([np.resize(HABITS, count) for count in sizes])
    ahead = np.array([group.ahead for group in GROUPS])[group_of]
    local = (np.arange(HOURS)[:, None] + ahead) % HOURS
    hour, weekend = local % 24, local >= 5 * 24
    charging = np.where(weekend, WEEKEND[hour], WEEKDAY[hour]) * habit
    at_work = ~weekend & (hour >= OFFICE_HOURS[0]) & (hour < OFFICE_HOURS[1])
    return group_of, np.where(group_of == CLINICS, IN_OFFICE * at_work, charging)


def client_names(group_of: Integers) -> tuple[str, ...]:
    """Name every client, from its group."""
    return tuple(
        f"{group.prefix}-{number:03d}"
        for group, count in zip(GROUPS, np.bincount(group_of), strict=True)
        for number in range(1, count + 1)
    )


def _count_law(online: Floats) -> Floats:
    """Return the law of the number of these clients online, shape (168, n_clients + 1)."""
    law = np.zeros((HOURS, online.shape[1] + 1))
    law[:, 0] = 1.0
    for chance in online.T[:, :, None]:
        law[:, 1:] = law[:, 1:] * (1 - chance) + law[:, :-1] * chance
        law[:, :1] *= 1 - chance
    return law


def _missed(online: Floats, within: NDArray[np.bool_]) -> Floats:
    """Return the probability that no client of a group takes part, shape (168,)."""
    inside, outside = _count_law(online[:, within]), _count_law(online[:, ~within])
    # With c clients of the group and k others online, one more of them is asked at each step.
    c, k = np.arange(inside.shape[1])[:, None], np.arange(outside.shape[1])
    missed = np.ones((c.size, k.size))
    for _ in range(COHORT):
        fewer_c, fewer_k = np.roll(missed, 1, axis=0), np.roll(missed, 1, axis=1)
        drawn = c * (1 - STATUSES["replied"]) * fewer_c + k * fewer_k
        missed = np.where(c + k > 0, drawn / np.maximum(c + k, 1), 1.0)
    return np.asarray(((inside @ missed) * outside).sum(axis=1))
