"""F3AST: ask those who are owed most, and weigh them by how often they were asked.

    of the available ask the K with the largest p_i²/r_i²,
    r ← (1 − β) r + β 1_S,   θ ← θ + Σ_{i∈S} (p_i/r_i) Δ_i

r_i estimates how often client i is asked; p_i²/r_i² is −∂H/∂r_i of the variance H(r) = Σ p_i²/r_i
that the choice minimises. Weights use the rates after their update, as the authors' program does,
so that none exceeds p_i/β; the weights of a round sum to one only on average. It knows the
importance, sees who is available before asking, and stores one number a client.

The paper leaves the first rates open (its program offers p and 1/N, far too low for larger
cohorts, for the 1/β rounds the estimate needs to forget them). Here they are the even rate of the
first round that asks anybody, |S|/N. Rounds without anybody lower all rates. Equal utilities are
asked in the order of the cohort.

Source: Ribero, Vikalo & de Veciana, *Federated learning under intermittent client availability and
time-varying communication constraints*, IEEE JSTSP 2023 (arXiv 2205.06730), Algorithm 1.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount, as_size
from fedavot.errors import OptionError
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained


def f3ast(importance: ArrayLike, *, size: int | None = None, smoothing: float = 0.01) -> Rule:
    """Return F3AST.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    size : int, optional
        How many of the available to ask at most; all if not given.
    smoothing : float
        β, above 0 and at most 1: how fast the rates follow. The authors' program has .01 as its
        default and .001 in its longer runs.
    """
    shares = as_shares(importance)
    if size is not None:
        as_size(size, what="size", low=1)
    weight = as_amount(smoothing, what="smoothing", positive=True)
    if weight > 1.0:
        raise OptionError(f"smoothing is {weight}; it must be above 0 and at most 1")

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        rates: Floats | None = None
        asked = []
        for cohort in cohorts:
            if rates is None:
                count = cohort.size if size is None else min(size, cohort.size)
                rates = np.full(shares.size, count / shares.size) if count else None
            if rates is None:
                asked.append(Asked(cohort, np.zeros(0)))
                continue
            members = cohort[most_owed(shares[cohort] / rates[cohort], size)]
            rates *= 1.0 - weight
            rates[members] += weight
            asked.append(trained(members, shares[members] / rates[members]))
        return asked

    knows = "importance, who is available"
    return Rule("f3ast", knows, "one number a client", choose, add_updates, n_clients=shares.size)


def most_owed(ratios: Floats, size: int | None) -> Integers:
    """Return the places of the largest ratios p_i/r_i, at most ``size``, in their order.

    The ratios order the clients as their squares do, the utilities.
    """
    if size is None or size >= ratios.size:
        return np.arange(ratios.size)
    return np.sort(np.argsort(-ratios, kind="stable")[:size])
