"""What every stage of an audit needs to know about a federation."""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.federation import Federation
from fedavot.audit.statistics.behaviour import rounds_per_observation
from fedavot.audit.statistics.estimates import LEAST_BLOCKS, Resampling, blocks_of, resampling
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.online_weights import MOST_REPLAYED
from fedavot.audit.statistics.window import Window, whole
from fedavot.errors import OptionError

ENOUGH_BLOCKS = 8
"""A part of the log has at least so many blocks, even if presence outlasts them."""
OUTLASTS = 0.4
"""Where more rounds than this share of a block amount to one observation, presence may last as long
as a block."""
GROWING = 1.25
"""Where blocks of twice the length differ this many times more, presence outlasts a block."""
ROOM = 1.5
"""Ratio of available clients to participants from which on it matters whom the server selects."""
MOST_CHOSEN = 5_000_000
"""Entries of those available beyond which a choice among them is not replayed, for time."""


@dataclass(frozen=True, eq=False)
class Case:
    """The federation, and what every stage needs.

    ``window`` has all rounds with participants, ``blocks`` how they are resampled, ``length`` the
    smallest number of rounds of a block; ``rounds_per_observation`` is as in `Behaviour`.
    """

    federation: Federation
    window: Window
    blocks: Resampling
    length: int
    rounds_per_observation: float
    rng: np.random.Generator

    def times(self, window: Window) -> Floats | None:
        """Return the times of the rounds of a window."""
        times = self.federation.participation.times
        return None if times is None else times[window.rounds]

    def resampling(self, window: Window) -> Resampling:
        """Return how the rounds of a window are resampled."""
        times = self.times(window)
        length = min(self.length, window.n_rounds // ENOUGH_BLOCKS)
        block = blocks_of(times, window.n_rounds, length=length)
        return replace(resampling(block, self.rng), lasting=self.blocks.lasting)

    def fitting(self, window: Window) -> Fitting:
        """Return the rounds of a window, to fit laws to."""
        return Fitting(window, self.times(window), self.rounds_per_observation)

    @cached_property
    def whole(self) -> Fitting:
        """All rounds, to fit laws to."""
        return self.fitting(self.window)

    def available(self, window: Window) -> Incidence | None:
        """Return the clients that could have taken part in the rounds of a window."""
        everyone = self.federation.participation.eligible
        if everyone is None:
            return None
        return everyone.rows(window.rounds)

    @property
    def mean_available(self) -> float:
        """Mean number of clients that could have taken part; 0 if the log does not say."""
        everyone = self.available(self.window)
        return 0.0 if everyone is None else everyone.members.size / self.window.n_rounds

    @property
    def has_choice(self) -> bool:
        """Whether many more clients could have taken part than did, if the log says so."""
        return bool(self.mean_available >= ROOM * self.window.incidence.sizes.mean())

    @property
    def replays_choice(self) -> bool:
        """Whether the log is small enough to replay server selection."""
        available = self.mean_available * self.window.n_rounds
        return available <= MOST_CHOSEN and self.window.n_rounds <= MOST_REPLAYED

    def choice(self) -> Incidence | None:
        """Return the clients that could have taken part, if server selection is replayed."""
        return self.available(self.window) if self.has_choice and self.replays_choice else None


def opened(federation: Federation, source: str, rng: np.random.Generator) -> Case:
    """Prepare what every stage needs.

    Parameters
    ----------
    federation : Federation
    source : str
        What the log is called, for messages.
    rng : Generator
        Generator for every bootstrap.
    """
    window = whole(federation)
    if not window.n_rounds:
        raise OptionError(
            f"{source}: nobody took part in any round, so there is nothing to audit; give a log "
            "with participants"
        )
    times = federation.participation.times
    of_rounds = None if times is None else times[window.rounds]
    length = _length(window, of_rounds)
    block = blocks_of(of_rounds, window.n_rounds, length=length)
    alike = rounds_per_observation(window, block)
    blocks = resampling(block, rng)
    lasting = alike > OUTLASTS * float(blocks.sizes.mean())
    return Case(federation, window, replace(blocks, lasting=lasting), length, alike, rng)


def _length(window: Window, times: Floats | None) -> int:
    """Lengthen blocks as long as presence seems to last longer the longer they are.

    Returns
    -------
    int
        How many rounds a block should have; 1 if the usual blocks will do.
    """
    block, length = blocks_of(times, window.n_rounds), 1
    lasting = _lasting(window, block)
    while True:
        twice = 2 * int(np.bincount(block).max())
        longer = blocks_of(times, window.n_rounds, length=twice)
        if longer[-1] + 1 < LEAST_BLOCKS:
            return length
        further = _lasting(window, longer)
        if further <= GROWING * lasting:
            return length
        block, length, lasting = longer, twice, further


def _lasting(window: Window, block: Integers) -> float:
    """Return how much more clients differ from one block to the next than by chance.

    With x_ib for the share of its k_ib known rounds in block b that client i took part in, that is
    the median over b of Σ_i (x_ib − x_i,b+1)² / Σ_i π_i (1 − π_i) (1/k_ib + 1/k_i,b+1). Neither
    slow drift nor a few sudden changes count.
    """
    taken, known = window.counts()
    rates = taken / np.maximum(known, 1.0)
    chance = rates * (1.0 - rates)
    edges = np.flatnonzero(np.diff(block, prepend=-1, append=block[-1] + 1))
    ratios = [1.0]
    before: tuple[Floats, Floats] | None = None
    for first, last in itertools.pairwise(edges.tolist()):
        taken, known = window.part(np.arange(first, last)).counts()
        share = taken / np.maximum(known, 1.0)
        if before is not None:
            both = (known > 0) & (before[1] > 0)
            differ = float(((share - before[0]) ** 2)[both].sum())
            expected = float((chance[both] * (1.0 / known[both] + 1.0 / before[1][both])).sum())
            ratios += [differ / expected] if expected > 0 else []
        before = share, known
    return max(1.0, float(np.median(ratios)))
