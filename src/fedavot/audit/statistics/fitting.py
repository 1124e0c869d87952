"""Laws of availability, fitted to a stretch of a log.

Three laws are tried: the rounds themselves (explicit), independent clients, and a mixture of
independent clients by part of the day. A client's rate is its share of the rounds in which its
state is known, shrunk towards a broader rate: that of all clients or, for a part of the day, the
client's own overall rate:

    rate_i = (n_i π_i + n_0 broader) / (n_i + n_0),

with n_i for the rounds in which the state of i is known, divided by the rounds per observation.

n_0 is the prior sample size of a beta distribution of the clients' rates, estimated from the
variance that chance does not explain: the more alike clients are, the less weight their own share
gets (empirical Bayes). So no client has rate zero, and a client that was never seen is not assumed
to be never available.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.alignment import Alignment
from fedavot.audit.findings import LawName
from fedavot.audit.statistics.estimates import DAY
from fedavot.audit.statistics.window import Window
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture
from fedavot.solve import align

LAWS: tuple[LawName, ...] = ("explicit", "independent", "mixture")
LEAST_DAYS = 2
"""With fewer days, a part of the day was seen only once, and says nothing about later days."""
STATES = (24, 8, 4)
"""Numbers of parts of the day: of one hour, three hours or six hours each; the finest that the
numbers of rounds and clients allow is used."""
LEAST_ROUNDS = 20
"""Smallest number of rounds in a part of the day."""
MOST_RATES = 200_000
"""Number of clients times parts of the day beyond which a coarser division is used."""
MOST_PRIOR = 1e6
"""Largest number of observations that a broader rate counts for, if all clients are alike."""
TOLERANCE = 1e-7
"""L1 distance at which a plan for a log is exact enough: a log cannot resolve smaller ones."""


@dataclass(frozen=True, eq=False)
class Fitting:
    """What laws are fitted to.

    Attributes
    ----------
    window : Window
        The rounds.
    times : float array, shape (n_rounds,), or None
        The times of the rounds.
    rounds_per_observation : float
        Rounds per effectively independent observation of a client.
    """

    window: Window
    times: Floats | None
    rounds_per_observation: float

    @property
    def parts_of_day(self) -> int:
        """Number of parts of the day that the rounds can distinguish; 0 if none."""
        if self.times is None or self.times[-1] - self.times[0] < LEAST_DAYS * DAY:
            return 0
        for count in STATES:
            rounds = np.bincount(self._parts(count), minlength=count)
            enough = rounds[rounds > 0].min() >= LEAST_ROUNDS and np.count_nonzero(rounds) > 1
            if enough and count * self.window.n_clients <= MOST_RATES:
                return count
        return 0

    def laws(self) -> tuple[LawName, ...]:
        """Return the names of the laws that can be fitted."""
        return LAWS[1 if self.window.large else 0 : 3 if self.parts_of_day else 2]

    def law(self, name: LawName) -> Law:
        """Fit a law."""
        if name == "explicit":
            return self._explicit
        if name == "independent":
            return _independent(self.rates())
        laws, rounds = self._by_part()
        # A mixture counts a state by its rounds times its probability of a nonempty cohort.
        weights = rounds / np.array([law.nonempty for law in laws])
        return Mixture(laws, weights / weights.sum())

    def align(self, name: LawName, *, softness: float = 0.0) -> Alignment:
        """Return aligned weights under a law fitted to the rounds.

        With an explicit law, the target is the importance counted over known states only
        (``owed``); the other laws describe all clients at all times, and their target is the
        importance itself. Each alignment is computed only once.
        """
        if (name, softness) not in self._aligned:
            wanted = self.window.owed if name == "explicit" else self.window.importance
            aligned = align(wanted, self.law(name), softness=softness, tol=TOLERANCE)
            self._aligned[name, softness] = aligned
        return self._aligned[name, softness]

    @cached_property
    def _aligned(self) -> dict[tuple[LawName, float], Alignment]:
        return {}

    @cached_property
    def _explicit(self) -> Cohorts:
        return self.window.law()

    def rates(self) -> Floats:
        """Return how often each client takes part, shape (n_clients,); none is zero."""
        taken, known = self.window.counts()
        mean = np.full(taken.size, taken.sum() / max(known.sum(), 1.0))
        return _drawn(taken, known, mean, self.rounds_per_observation)

    def seen(self) -> Floats:
        """Return each client's share of its known rounds; one never seen counts as seen once."""
        taken, known = self.window.counts()
        return np.asarray(np.maximum(taken, 1.0) / np.maximum(known, 1.0))

    def _parts(self, count: int) -> Integers:
        assert self.times is not None
        return np.asarray(self.times % DAY * count // DAY, dtype=np.int64)

    def _by_part(self) -> tuple[list[IndependentClients], Floats]:
        part, overall = self._parts(self.parts_of_day), self.rates()
        laws, rounds = [], []
        for state in np.unique(part):
            chosen = np.flatnonzero(part == state)
            taken, known = self.window.part(chosen).counts()
            laws.append(_independent(_drawn(taken, known, overall, self.rounds_per_observation)))
            rounds.append(float(chosen.size))
        return laws, np.array(rounds)


def _drawn(taken: Floats, known: Floats, broader: Floats, rounds_per_observation: float) -> Floats:
    """Return shares shrunk towards broader ones, as far as chance explains their differences."""
    observations = known / rounds_per_observation
    share = taken / np.maximum(known, 1.0)
    chance = broader * (1.0 - broader)
    # Σ n_i (π_i − broader_i)² is Σ chance_i (1 + (n_i − 1)/(n_0 + 1)) on average.
    more = float((observations * (share - broader) ** 2).sum() - chance[observations > 0].sum())
    most = float((chance * np.maximum(observations - 1.0, 0.0)).sum())
    prior = most / more - 1.0 if more > 0 else np.inf
    prior = min(max(prior, 1.0), MOST_PRIOR)
    drawn = (observations * share + prior * broader) / (observations + prior)
    return np.clip(drawn, 0.0, 1.0)


def _independent(inclusion: Floats) -> IndependentClients:
    """Return the independent law with these inclusion probabilities, given a nonempty round.

    Before conditioning they are smaller by the factor P = P(A ≠ ∅) = 1 − Π (1 − inclusion_i P),
    which is solved for P.
    """
    low, high = 1e-6, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        with np.errstate(divide="ignore"):
            somebody = -np.expm1(np.log1p(-inclusion * middle).sum())
        low, high = (middle, high) if somebody > middle else (low, middle)
    return IndependentClients(inclusion * high)
