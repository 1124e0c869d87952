"""A synthetic federation to try an audit on: how its clients behave, its true figures, its files.

Phones in three time zones charge at night, and a few important clinics are online only in office
hours. Every half hour, up to ten clients are drawn uniformly from those online, and some of them
fail or are late. The same options give the same bytes.

Clients are online independently given the hour of the week, so the figures that an audit should
find are known exactly. With a_i(h) for the probability that client i is online in hour h, K for the
number of other clients online, and r for the probability that a client that is asked replies:

    P(i replies in h) = r a_i(h) E[min(1, 10 / (1 + K))]
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, as_seed, as_size
from fedavot._files import PathLike, write_whole
from fedavot._simplex import total_variation
from fedavot.errors import OptionError
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


README = """\
A synthetic federation
======================
{size} clients, {days} days, seed {seed}. Nothing here was measured: every number below is an
assumption, or follows from one. The same seed and sizes give the same files, byte for byte.

The files
---------
log.csv         round, client, time (UTC), status: one row for each client that was asked
importance.csv  client, importance, group: what each client should count; it sums to one
groups.csv      client, group
targets.csv     group, share: what each group should count
groups.csv and targets.csv together say the same as importance.csv: a group's share is split equally
among its clients.

What is assumed
---------------
Rounds.   Every 30 minutes, day and night, from {start}.
Places.   Europe (UTC+1), America (UTC-5) and Asia (UTC+8), without summer time. A client's name
          begins with its place: eu, am, as.
Phones.   Online while charging, mostly at night, with the probability below by local hour. That
          is for the first phone of a group: the second has {second} of it, the third {third}, the
          fourth all of it again, and so on.
Clinics.  In Europe. Online from Monday to Friday, {office} local time, with probability
          {in_office} in each round, and never else.
Chance.   Given the hour, clients are online independently of each other and of the round before.
Cohort.   Up to {cohort} of the clients online, drawn uniformly; all of them if they are fewer. A
          round in which nobody is online leaves no row.
Status.   Of those asked, {replied} replied and so took part, {late} were late, and {failed} failed,
          whoever they are. Clients that were online and not asked have no row.

    local   weekdays  weekend
{hours}

What is true
------------
Computed exactly from the assumptions, for logs of this length; a log drawn from them scatters
around it.

group             clients  importance  online  takes part  in average  reached
{table}

online      expected share of the time that a client of the group is online
takes part  probability that a client of the group takes part in a round
in average  the group's expected share in the plain average of the replies
reached     probability that at least one client of the group takes part in a round

The plain average gives {gap} of the weight to the wrong clients (the gap, in total variation).
The clinics hold {share} of the importance and get {average} of the plain average. At least one
of them takes part in {reach} of the rounds.
{verdict}
"""


def readme(facts: Truth, *, seed: int, days: int) -> str:
    """Write the page that explains a log of this seed and number of days."""
    of_group = {group.name: np.array(facts.groups) == group.name for group in GROUPS}
    table = [
        f"{group.name:17} {of.sum():7} {group.share:11.1%} {facts.online[of].mean():7.1%} "
        f"{facts.inclusion[of].mean():11.1%} {facts.average[of].sum():11.1%} "
        f"{facts.reach[group.name]:8.1%}"
        for group, of in zip(GROUPS, of_group.values(), strict=True)
    ]
    scarce = GROUPS[CLINICS]
    meets = facts.reach[scarce.name] >= scarce.share
    return README.format(
        size=len(facts.clients),
        days=days,
        seed=seed,
        start=f"Monday {START:%Y-%m-%d %H:%M} UTC",
        cohort=COHORT,
        **{word: f"{chance:.0%}" for word, chance in STATUSES.items()},
        office=f"{OFFICE_HOURS[0]}:00 to {OFFICE_HOURS[1]}:00",
        in_office=f"{IN_OFFICE:.0%}",
        second=f"{HABITS[1]:.0%}",
        third=f"{HABITS[2]:.0%}",
        hours="\n".join(
            f"    {hour:02d}:00  {weekday:8.0%} {weekend:8.0%}"
            for hour, (weekday, weekend) in enumerate(zip(WEEKDAY, WEEKEND, strict=True))
        ),
        table="\n".join(table),
        gap=f"{facts.gap:.1%}",
        share=f"{scarce.share:.0%}",
        average=f"{facts.average[of_group[scarce.name]].sum():.1%}",
        reach=f"{facts.reach[scarce.name]:.1%}",
        verdict=(
            "They are there often enough to be given their importance."
            if meets
            else "Weights that sum to one over a round's replies cannot give them more than that."
        ),
    )


class SampleFiles(NamedTuple):
    """Where the files of a sample are."""

    log: Path
    importance: Path
    groups: Path
    targets: Path
    readme: Path


NAMES = SampleFiles(
    *map(Path, ("log.csv", "importance.csv", "groups.csv", "targets.csv", "README.txt"))
)


def write_sample(
    folder: PathLike, *, seed: int = 0, days: int = 14, n_clients: int = 120
) -> SampleFiles:
    """Write a synthetic federation: its log, importance, groups, and a page that explains them.

    Parameters
    ----------
    folder : path
        Folder for the files; created if it does not exist. No file is overwritten.
    seed : int
        At least 0; the same seed and sizes give the same bytes.
    days : int
        Length of the log, from 1 to 366, with 48 rounds per day, starting on a Monday.
    n_clients : int
        Number of clients, from 20 to 500; about 1 in 13 is a clinic.

    Returns
    -------
    SampleFiles
        The paths of ``log.csv``, ``importance.csv``, ``groups.csv``, ``targets.csv`` and
        ``README.txt``.
    """
    start = as_seed(seed)
    length = as_size(days, what="days", low=1, high=MOST_DAYS)
    facts = truth(n_clients=n_clients, days=length)
    place = Path(folder)
    files = SampleFiles(*(place / name for name in NAMES))
    _refuse_what_is_there(place, files)
    shares = zip(facts.clients, facts.importance.tolist(), facts.groups, strict=True)
    contents = (
        _log(facts, start, length),
        _table("client,importance,group", shares),
        _table("client,group", zip(facts.clients, facts.groups, strict=True)),
        _table("group,share", ((group.name, group.share) for group in GROUPS)),
        readme(facts, seed=start, days=length),
    )
    place.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    try:
        for file, content in zip(files, contents, strict=True):
            write_whole(file, methodcaller("write", content.encode()))
            written.append(file)
    except BaseException:
        for file in written:
            file.unlink(missing_ok=True)
        raise
    return files


def _refuse_what_is_there(folder: Path, files: SampleFiles) -> None:
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file; name a folder to write the sample into")
    existing = [file.name for file in files if file.exists() or file.is_symlink()]
    if existing:
        raise OptionError(
            f"{folder} already has {', '.join(existing)}; choose another folder, or remove them"
        )


def _log(facts: Truth, seed: int, days: int) -> str:
    _, online = population(len(facts.clients))
    words, edges = list(STATUSES), np.cumsum(list(STATUSES.values()))[:-1]
    rows: list[tuple[object, ...]] = []
    for t in range(24 * ROUNDS_AN_HOUR * days):
        # Row i belongs to client i, whatever the other clients: whether it is online, its rank in
        # the order of asking, and its outcome.
        draws = np.random.default_rng([seed, t]).random((len(facts.clients), 3))
        there = np.flatnonzero(draws[:, 0] < online[t // ROUNDS_AN_HOUR % HOURS])
        asked = np.sort(there[np.argsort(draws[there, 1])[:COHORT]])
        outcomes = np.searchsorted(edges, draws[asked, 2], side="right")
        time = f"{START + t * PERIOD:%Y-%m-%dT%H:%M:%SZ}"
        rows += (
            (t + 1, facts.clients[client], time, words[outcome])
            for client, outcome in zip(asked, outcomes, strict=True)
        )
    return _table("round,client,time,status", rows)


def _table(header: str, rows: Iterable[tuple[object, ...]]) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows), ""])
