"""What every stage of an audit needs of a federation."""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.advice import ROOM
from fedavot.audit.behaviour import look
from fedavot.audit.estimates import Resampling, resampling
from fedavot.audit.federation import Federation
from fedavot.audit.fitting import Fitting
from fedavot.audit.participation import Ragged
from fedavot.audit.window import Window, rows_of, whole
from fedavot.errors import OptionError

MOST_CHOSEN = 5_000_000
"""Entries of those available beyond which a choice among them is not replayed, for time."""


@dataclass(frozen=True, eq=False)
class Case:
    """The federation, and what every stage needs of it.

    ``window`` is all rounds with anybody in them, ``blocks`` how they are resampled; ``look`` is as
    in `Behaviour`.
    """

    federation: Federation
    window: Window
    blocks: Resampling
    look: float
    rng: np.random.Generator

    def times(self, window: Window) -> Floats | None:
        """Return when the rounds of a window were."""
        times = self.federation.participation.times
        return None if times is None else times[window.rounds]

    def resampling(self, window: Window) -> Resampling:
        """Return how the rounds of a window are resampled."""
        return resampling(self.times(window), window.n_rounds, self.rng)

    def fitting(self, window: Window) -> Fitting:
        """Return what laws are fitted to."""
        return Fitting(window, self.times(window), self.look)

    def available(self, window: Window) -> Ragged | None:
        """Return who could have taken part in the rounds of a window."""
        everyone = self.federation.participation.eligible
        if everyone is None:
            return None
        return Ragged(*rows_of(everyone.offsets, everyone.members, window.rounds))

    @property
    def mean_available(self) -> float:
        """How many could have taken part in a round on average; 0 if the log does not tell."""
        everyone = self.available(self.window)
        return 0.0 if everyone is None else everyone.members.size / self.window.n_rounds

    def choice(self) -> Ragged | None:
        """Return who could have taken part in each round, if that left the server a choice."""
        cohort = self.window.incidence.sizes.mean()
        everyone = self.available(self.window)
        small = everyone is not None and everyone.members.size <= MOST_CHOSEN
        return everyone if small and self.mean_available >= ROOM * cohort else None


def opened(federation: Federation, source: str, rng: np.random.Generator) -> Case:
    """Make ready what every stage needs.

    Parameters
    ----------
    federation : Federation
    source : str
        What the log is called, for messages.
    rng : Generator
        Of every bootstrap.
    """
    window = whole(federation)
    if not window.n_rounds:
        raise OptionError(f"{source}: nobody took part in any round; there is nothing to audit")
    times = federation.participation.times
    blocks = resampling(None if times is None else times[window.rounds], window.n_rounds, rng)
    return Case(federation, window, blocks, look(window, blocks.block), rng)
