"""The charging log of 300 phones (FLASH, Yang et al., WWW 2021), as rounds in their order.

A round every ten minutes asks up to ten of the phones that are charging. A phone whose state is no
longer known counts as away. The files are not part of the library: flash300_intervals.csv has
client, state, start_s and end_s, flash300_coverage.csv client, obs_start_s and last_event_s. They
are read as an audit reads them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit import read_log
from fedavot.errors import InputError

INTERVALS, COVERAGE = "flash300_intervals.csv", "flash300_coverage.csv"
STATE, PERIOD, COHORT_SIZE = "charging", 600, 10
FLOOR = 0.05
"""Smallest share of charging time that the skewed importance uses."""


@dataclass(frozen=True, eq=False)
class PhoneLog:
    """Who was charging when: a bool array of shape (n_rounds, n_clients)."""

    charging: np.ndarray

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return int(self.charging.shape[0])

    @property
    def n_clients(self) -> int:
        """Number of phones."""
        return int(self.charging.shape[1])

    @property
    def shares(self) -> Floats:
        """The share of rounds in which each phone is charging, shape (n_clients,)."""
        return np.asarray(self.charging.mean(axis=0))

    @property
    def skewed(self) -> Floats:
        """An importance in proportion to 1/share: phones that seldom charge count most."""
        inverse = 1.0 / np.maximum(self.shares, FLOOR)
        return np.asarray(inverse / inverse.sum())

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw those asked in each round; a log that ends starts again."""
        found = []
        for number in range(rounds):
            there = np.flatnonzero(self.charging[number % self.n_rounds])
            asked = rng.choice(there, min(COHORT_SIZE, there.size), replace=False)
            found.append(np.sort(asked))
        return found


def read(folder: Path) -> PhoneLog:
    """Read the log from a folder with its two files."""
    for name in (INTERVALS, COVERAGE):
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}; give the folder of the phones' log")
    log = read_log(folder / INTERVALS, period=PERIOD // 2, state=STATE, observed=folder / COVERAGE)
    # The first reading of every period after the one in which the log begins.
    assert log.times is not None
    period = log.times // PERIOD
    first = np.flatnonzero(np.diff(period, prepend=period[0]))
    rounds = log.cohorts.rows(first[np.diff(log.offsets)[first] > 0])
    return PhoneLog(rounds.matrix(np.ones(rounds.members.size)).toarray() > 0)
