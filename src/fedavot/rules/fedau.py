"""FedAU: weight updates by the mean interval between a client's participations.

    θ ← θ + Σ_{i∈S} p_i ω_i Δ_i,   ω_i the mean of client i's participation intervals so far

An interval ends when the client takes part or has waited K rounds, the *cutoff*; ω_i is 1 before
the first. Under a stationary law, intervals average 1/π_i, minus the effect of the cutoff: ω_i
tends to (1 − (1−π_i)^K)/π_i for independent rounds, and the expected change to that of full
participation. The weights of a round sum to one only on average. The rule knows the importance and
stores two counts and one number per client; a round in which no client reports counts as waiting.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i.

Source: Wang & Ji, *A lightweight method for tackling unknown participation statistics in federated
averaging*, ICLR 2024, Algorithms 1 and 2.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_size
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained
from fedavot.rules.names import RuleName


class Intervals:
    """The mean participation interval of every client so far.

    Parameters
    ----------
    n_clients : int
        Number of clients.
    cutoff : int or None
        Number of rounds of waiting after which an interval ends anyway; no cutoff if None.

    Attributes
    ----------
    mean : float array of shape (n_clients,)
        ω, from intervals that have ended.
    """

    def __init__(self, n_clients: int, cutoff: int | None) -> None:
        self.mean: Floats = np.ones(n_clients)
        self._cutoff = np.inf if cutoff is None else cutoff
        self._waited = np.zeros(n_clients)
        self._ended = np.zeros(n_clients)

    def observe(self, cohort: Integers) -> None:
        """Count one round in which the cohort took part."""
        self._waited += 1.0
        ends = self._waited >= self._cutoff
        ends[cohort] = True
        counts = self._ended[ends]
        self.mean[ends] = (counts * self.mean[ends] + self._waited[ends]) / (counts + 1.0)
        self._ended[ends] += 1.0
        self._waited[ends] = 0.0


def fedau(importance: ArrayLike, *, cutoff: int | None = 50) -> Rule:
    """Return FedAU.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    cutoff : int or None
        K, the longest interval that counts, at least 1 (the paper's experiments use 50). It bounds
        the weights, at the price of a bias against clients that are absent for longer. None means
        no limit.
    """
    shares = as_shares(importance)
    if cutoff is not None:
        as_size(cutoff, what="cutoff", low=1)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        intervals = Intervals(shares.size, cutoff)
        asked = []
        for cohort in cohorts:
            asked.append(trained(cohort, shares[cohort] * intervals.mean[cohort]))
            intervals.observe(cohort)
        return asked

    return Rule(
        RuleName.FEDAU,
        "importance",
        "three numbers per client",
        choose,
        add_updates,
        n_clients=shares.size,
    )
