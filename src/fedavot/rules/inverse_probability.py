"""Weights divided by how often a client takes part, which is known or counted.

**Horvitz–Thompson** divides each update by its client's inclusion probability:

    θ ← θ + Σ_{i∈S} (p_i/π_i) Δ_i,   π_i = P(i ∈ S)

The expected change is that of full participation under every law, even if no weights that sum to
one achieve that. The price is variance: the weights of a round sum to one only on average.

Source: Horvitz & Thompson, *A generalization of sampling without replacement from a finite
universe*, JASA 1952; applied to updates.

**Self-normalised** weights sum to one in every round, at the price of a bias: E w_i is not p_i.

    θ ← Σ_{i∈S} w_i θ_i,   w_i = (p_i/π_i) / Σ_{k∈S} p_k/π_k

For cohorts of equal size they are the first iterate, from equal weights, of the scaling that
FedAVOT iterates. A cohort whose clients all have importance zero gets equal weights.

Source: Hájek, comment on Basu, in *Foundations of Statistical Inference*, 1971.

**FedAU** weights updates by the mean interval between a client's participations:

    θ ← θ + Σ_{i∈S} p_i ω_i Δ_i,   ω_i the mean of client i's participation intervals so far

An interval ends when the client takes part or has waited K rounds, the *cutoff*; ω_i is 1 before
the first. Under a stationary law, intervals average 1/π_i, minus the effect of the cutoff: ω_i
tends to (1 − (1−π_i)^K)/π_i for independent rounds, and the expected change to that of full
participation. The weights of a round sum to one only on average. The rule stores two counts and one
number per client; a round in which no client reports counts as waiting. The published rule is for
p_i = 1/N; here 1/N is replaced by p_i.

Source: Wang & Ji, *A lightweight method for tackling unknown participation statistics in federated
averaging*, ICLR 2024, Algorithms 1 and 2.

**F3AST** asks the most under-represented clients, and weights them by how often they are asked:

    ask the K available clients with the largest p_i²/r_i²,
    r ← (1 − β) r + β 1_S,   θ ← θ + Σ_{i∈S} (p_i/r_i) Δ_i

r_i estimates how often client i is asked; p_i²/r_i² is −∂H/∂r_i of the variance H(r) = Σ p_i²/r_i
that the choice minimises. Weights use the rates after their update, as the authors' program does,
so that none exceeds p_i/β; the weights of a round sum to one only on average. The rule sees which
clients are available before it asks, and stores one number per client.

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

from fedavot._checks import Floats, as_amount, as_floats, as_size
from fedavot.errors import RuleError
from fedavot.rules._rule import Asked, Cohorts, Rule
from fedavot.rules._weights import as_part, as_shares, trained, weighing
from fedavot.rules.averages import normalised

KNOWN = "importance, inclusion probabilities"


def horvitz_thompson(importance: ArrayLike, inclusion: ArrayLike | None) -> Rule:
    """Return Horvitz–Thompson weighting of updates.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        Importance of each client, and the probability that it takes part.
    """
    ratios = inverse_inclusion("horvitz-thompson", importance, inclusion)[1]
    return weighing("horvitz-thompson", ratios, knows=KNOWN)


def self_normalised_ipw(importance: ArrayLike, inclusion: ArrayLike | None) -> Rule:
    """Return self-normalised inverse-probability weighting.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        Importance of each client, and the probability that it takes part.
    """
    name = "self-normalised-ipw"
    ratios = inverse_inclusion(name, importance, inclusion)[1]
    return weighing(name, ratios, lambda cohort: normalised(ratios[cohort]), knows=KNOWN)


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
    longest = np.inf if cutoff is None else as_size(cutoff, what="cutoff", low=1)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        asked, mean = [], np.ones(shares.size)
        waited, intervals = np.zeros((2, shares.size))
        for cohort in cohorts:
            asked.append(trained(cohort, shares[cohort] * mean[cohort]))
            waited += 1.0
            ends = waited >= longest
            ends[cohort] = True
            intervals[ends] += 1.0
            mean[ends] += (waited[ends] - mean[ends]) / intervals[ends]
            waited[ends] = 0.0
        return asked

    return weighing("fedau", shares, choose=choose, stores="three numbers per client")


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
    weight = as_part(as_amount(smoothing, what="smoothing", positive=True), what="smoothing")

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        rates: Floats | None = None
        asked = []
        for cohort in cohorts:
            if rates is None and cohort.size:
                count = min(cohort.size, cohort_size or cohort.size)
                rates = np.full(shares.size, count / shares.size)
            if rates is None:
                asked.append(Asked(cohort, np.zeros(0)))
                continue
            # Ratios order the clients in the same way as the utilities, which are their squares.
            behind = np.argsort(-shares[cohort] / rates[cohort], kind="stable")[:cohort_size]
            members = cohort[np.sort(behind)]
            rates *= 1.0 - weight
            rates[members] += weight
            asked.append(trained(members, shares[members] / rates[members]))
        return asked

    knows, stores = "importance, who is available", "one number per client"
    return weighing("f3ast", shares, choose=choose, knows=knows, stores=stores)


def inverse_inclusion(
    rule: str, importance: ArrayLike, inclusion: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Return p_i and p_i/π_i, shape (n_clients,), refusing clients that matter but never take part.

    Parameters
    ----------
    rule : str
        The rule's name, for messages.
    importance, inclusion : array-like of shape (n_clients,)
        p, and π with π_i = P(i ∈ S).
    """
    shares = as_shares(importance)
    if inclusion is None:
        raise RuleError(
            f"rule {rule!r} needs inclusion probabilities P(i ∈ S), and none were given; give a "
            "law's inclusion(), or use a rule that needs none, such as fedavot-online or fedau"
        )
    chances = as_floats(inclusion, what="inclusion", error=RuleError)
    if chances.size != shares.size:
        raise RuleError(
            f"inclusion has {chances.size} entries, but importance has {shares.size} clients"
        )
    bad = np.flatnonzero(~((chances >= 0) & (chances <= 1 + 1e-9)))
    if bad.size:
        raise RuleError(
            f"the inclusion probability of client {bad[0]} is {chances[bad[0]]}; it must be "
            "between 0 and 1"
        )
    never = np.flatnonzero((chances == 0) & (shares > 0))
    if never.size:
        raise RuleError(
            f"client {never[0]} has importance {shares[never[0]]:.4g} and inclusion probability 0, "
            f"by which rule {rule!r} would have to divide; set its importance to 0"
        )
    return shares, np.divide(shares, chances, out=np.zeros(shares.size), where=chances > 0)
