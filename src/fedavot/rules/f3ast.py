"""F3AST: ask the most under-represented clients, and weight them by how often they are asked.

    ask the K available clients with the largest p_i²/r_i²,
    r ← (1 − β) r + β 1_S,   θ ← θ + Σ_{i∈S} (p_i/r_i) Δ_i

r_i estimates how often client i is asked; p_i²/r_i² is −∂H/∂r_i of the variance H(r) = Σ p_i²/r_i
that the choice minimises. Weights use the rates after their update, as the authors' program does,
so that none exceeds p_i/β; the weights of a round sum to one only on average. The rule knows the
importance, sees which clients are available before it asks, and stores one number per client.

The paper leaves the initial rates open (its program offers p and 1/N, which for larger cohorts are
far too low during the 1/β rounds that the estimate needs to forget them). Here they are the uniform
rate of the first round that asks any client, |S|/N. Rounds without participants lower all rates.
Ties are broken by the order of the cohort. The authors' program divides the sum by K, which is a
server step of 1/K: ``server_step`` in `build`, or `with_server`.

Source: Ribero, Vikalo & de Veciana, *Federated learning under intermittent client availability and
time-varying communication constraints*, IEEE JSTSP 2023 (arXiv 2205.06730), Algorithm 1.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount, as_size
from fedavot.errors import OptionError
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained
from fedavot.rules.names import RuleName


def f3ast(
    importance: ArrayLike, *, cohort_size: int | None = None, smoothing: float = 0.01
) -> Rule:
    """Return F3AST.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    cohort_size : int, optional
        Largest number of available clients to ask per round; all of them if not given.
    smoothing : float
        β, above 0 and at most 1: weight of the latest round in the rates. The authors'
        program has .01 as its default and .001 in its longer runs.
    """
    shares = as_shares(importance)
    if cohort_size is not None:
        as_size(cohort_size, what="cohort_size", low=1, high=shares.size)
    weight = as_amount(smoothing, what="smoothing", positive=True)
    if weight > 1.0:
        raise OptionError(f"smoothing is {weight}; it must be above 0 and at most 1")

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        rates: Floats | None = None
        asked = []
        for cohort in cohorts:
            if rates is None:
                count = min(cohort.size, cohort_size or cohort.size)
                rates = np.full(shares.size, count / shares.size) if count else None
            if rates is None:
                asked.append(Asked(cohort, np.zeros(0)))
                continue
            members = cohort[most_owed(shares[cohort] / rates[cohort], cohort_size)]
            rates *= 1.0 - weight
            rates[members] += weight
            asked.append(trained(members, shares[members] / rates[members]))
        return asked

    knows = "importance, who is available"
    return Rule(
        RuleName.F3AST, knows, "one number per client", choose, add_updates, n_clients=shares.size
    )


def most_owed(ratios: Floats, count: int | None) -> Integers:
    """Return the places of the largest ratios p_i/r_i, at most ``count``, in their order.

    The ratios order the clients in the same way as the utilities, which are their squares.
    """
    if count is None or count >= ratios.size:
        return np.arange(ratios.size)
    return np.sort(np.argsort(-ratios, kind="stable")[:count])
