"""What every stage of an audit needs to know: the log in parts, its totals, who was available."""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.federation import Federation
from fedavot.audit.participation import Totals
from fedavot.audit.statistics.estimates import (
    LEAST_BLOCKS,
    Resampling,
    blocks_of,
    resampling,
    rounds_per_observation,
)
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.rules import MOST_REPLAYED
from fedavot.audit.statistics.window import Window, whole
from fedavot.errors import OptionError

ENOUGH_BLOCKS = 8
"""Smallest number of blocks in a part of the log, even if presence outlasts them."""
OUTLASTS = 0.4
"""If the rounds per observation exceed this share of a block, presence may last as long as a
block."""
GROWING = 1.25
"""If blocks of twice the length differ this many times more, presence outlasts a block."""
ROOM = 1.5
"""Ratio of available clients to participants from which the server's selection matters."""
FITTED = 2 / 3
"""The share of rounds that laws are fitted to; the rest is held out to judge them."""
MOST_CHOSEN = 5_000_000
"""Number of entries of available clients beyond which selection is not replayed, to save time."""


@dataclass(frozen=True, eq=False)
class Case:
    """The federation, and what every stage needs.

    ``window`` has all rounds with participants, ``blocks`` says how they are resampled, ``length``
    is the smallest number of rounds in a block, and ``rounds_per_observation`` is as in
    `Behaviour`.
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

    @property
    def _cut(self) -> int:
        """Number of rounds before the held-out part; 0 if the log has one round, which is both."""
        return min(round(FITTED * self.window.n_rounds), self.window.n_rounds - 1)

    @cached_property
    def fitted(self) -> Fitting:
        """The first part of the rounds, which laws are fitted to."""
        return self.fitting(self.window.part(np.arange(max(self._cut, 1))))

    @cached_property
    def held_out(self) -> Window:
        """The last part of the rounds, on which laws are judged."""
        return self.last_part(self.window)

    @cached_property
    def held_out_blocks(self) -> Resampling:
        """How the last part of the rounds is resampled."""
        return self.resampling(self.held_out)

    def last_part(self, window: Window) -> Window:
        """Return the held-out rounds of a window with as many rounds as the log."""
        return window.part(np.arange(self._cut, window.n_rounds))

    @cached_property
    def totals(self) -> Totals:
        """Counts over all rounds of the log, including those that are not kept."""
        log, window = self.federation.participation, self.window
        times = log.times
        return log.totals or Totals(
            n_rounds=log.n_rounds,
            n_filled=window.n_rounds,
            n_entries=window.incidence.members.size,
            taken=window.taken,
            implied=window.mean_weights(window.plain()),
            span=None if times is None else (float(times.min()), float(times.max())),
        )

    @cached_property
    def hidden(self) -> Integers:
        """Clients that took part in the log but in none of the rounds that are kept."""
        return np.flatnonzero((self.totals.taken > 0) & (self.window.taken == 0))

    @cached_property
    def without_hidden(self) -> Fitting:
        """All rounds, with no importance for the hidden clients.

        Otherwise these would seem never to take part, and alignment to be infeasible.
        """
        importance = self.window.importance.copy()
        importance[self.hidden] = 0.0
        if not self.hidden.size or not importance.any():
            return self.whole
        return self.fitting(replace(self.window, importance=importance / importance.sum()))

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
        """Whether many more clients could have taken part than did, according to the log."""
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
        Name of the log, for messages.
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
    """Lengthen blocks for as long as longer blocks show longer persistence of presence.

    Returns
    -------
    int
        Number of rounds that a block should have; 1 if the default blocks are long enough.
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

    With x_ib for the share of its k_ib known rounds in block b in which client i took part, this is
    the median over b of Σ_i (x_ib − x_i,b+1)² / Σ_i π_i (1 − π_i) (1/k_ib + 1/k_i,b+1). It is not
    affected by slow drift or by a few sudden changes.
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
