"""A synthetic federation to try an audit on, as files.

Phones in three time zones charge at night, and a few important clinics are online in office hours
only. Every half hour up to ten clients are drawn uniformly among those online, and some of
them fail or are late. The same options give the same bytes.

`sample_truth` computes the true figures of the federation.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fedavot._checks import as_seed, as_size
from fedavot._files import PathLike, write_whole
from fedavot.audit.sample.page import readme
from fedavot.audit.sample.truth import (
    COHORT,
    GROUPS,
    HOURS,
    MOST_DAYS,
    PERIOD,
    ROUNDS_AN_HOUR,
    START,
    STATUSES,
    Truth,
    population,
    truth,
)
from fedavot.errors import OptionError


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
        # Row i is of client i, whoever else there is: is it online, when is its turn to be asked,
        # and what comes of it.
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
