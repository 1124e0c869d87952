"""A synthetic federation to try an audit on, as files.

Phones in three time zones charge at night, and a few important clinics are online only in office
hours. Every half hour, up to ten clients are drawn uniformly from those online, and some of them
fail or are late. The same options give the same bytes.

`sample_truth` computes the true figures of the federation.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fedavot._checks import as_seed, as_size
from fedavot._files import PathLike, write_whole
from fedavot.audit.sample.truth import (
    CLINICS,
    COHORT,
    GROUPS,
    HABITS,
    HOURS,
    IN_OFFICE,
    MOST_DAYS,
    OFFICE_HOURS,
    PERIOD,
    ROUNDS_AN_HOUR,
    START,
    STATUSES,
    WEEKDAY,
    WEEKEND,
    Truth,
    population,
    truth,
)
from fedavot.errors import OptionError

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
            write_whole(file, partial(_write, content.encode()))
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


def _write(content: bytes, stream: IO[bytes]) -> None:
    stream.write(content)


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
