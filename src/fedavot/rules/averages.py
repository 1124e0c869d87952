"""Averages of the models of one round, by weights that need no availability law.

**FedAvg**, the plain average of the clients that report, is what most deployments do:

    θ ← (1/|S|) Σ_{i∈S} θ_i

It knows nothing and stores nothing, and optimises the objective weighted by E[1{i ∈ S}/|S|], that
is, by availability. The **average by importance**,

    θ ← Σ_{i∈S} p_i θ_i / Σ_{k∈S} p_k,

is FedAvg weighted by example counts if p_i ∝ n_i. It knows the importance; how often a client
reports still decides how much it counts.

Source: McMahan et al., *Communication-efficient learning of deep networks from decentralized
data*, AISTATS 2017, Algorithm 1; the plain average is that with clients of equal size.

**Full participation**, θ ← Σ_i p_i θ_i, is the reference for all other rules: it optimises the
objective itself, at the cost of N replies per round, and ignores availability.

Source: McMahan et al. with all clients; FedAvg(full) in the FedAVOT paper.

**FedAvg(K)** has the weights of full participation, scaled up:

    θ ← Σ_{i∈S} (N/|S|) p_i θ_i

The weights sum to one only on average, and only if clients take part equally often: models, not
updates, are scaled, so their norm jumps from round to round. It is a weak baseline, kept because
the paper compares with it.

Source: the FedAVOT paper, section "Experiments".

**FedProx** keeps clients near the model they started from by a proximal term:

    θ_i ≈ argmin f_i(ϑ) + (μ/2) ‖ϑ − θ‖²,   θ ← (1/|S|) Σ_{i∈S} θ_i

The term limits how far local models drift apart; it does not correct for availability. The paper
samples clients by p and takes their plain average; where availability decides which clients take
part, the plain average remains, and with it the bias. The authors' program weights the average by
the number of examples: pass the importance for that. Every client takes H steps here: the paper's
second part, devices that do only part of the work, is left out.

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith, *Federated optimization in heterogeneous
networks*, MLSys 2020, Algorithm 2.

None of them stores anything between rounds.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

import fedavot.rules._trees as tree
from fedavot._checks import Floats, as_amount
from fedavot.rules._rule import Report, Rule, State, add_updates
from fedavot.rules._trees import Params, jnp
from fedavot.rules._weights import as_shares, evenly, scaled_importance, trained, weighing


def full(importance: ArrayLike) -> Rule:
    """Return full participation.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients; clients of importance zero are not asked.
    """
    shares = as_shares(importance)
    everyone = trained(np.arange(shares.size), shares)
    rule = weighing("full", shares, knows="importance; asks everyone")
    return dataclasses.replace(rule, choose=lambda cohorts, rng: [everyone] * len(cohorts))


def fedavg() -> Rule:
    """Return FedAvg, the plain average."""
    return Rule("fedavg", "nothing", "nothing", evenly(), add_updates)


def importance_average(importance: ArrayLike) -> Rule:
    """Return the average weighted by importance.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients. A cohort whose members all have importance zero gets
        equal weights.
    """
    shares = as_shares(importance)
    return weighing("importance-average", shares, lambda cohort: normalised(shares[cohort]))


def normalised(values: Floats) -> Floats:
    """Return the values divided by their sum; equal shares if all are zero."""
    total = values.sum()
    return values / total if total > 0 else np.full(values.size, 1.0 / values.size)


def fedavg_k(importance: ArrayLike) -> Rule:
    """Return FedAvg(K).

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    weigh = scaled_importance(shares)
    return weighing("fedavg-k", shares, weigh, aggregate=add_models, moves=False)


def add_models(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Return Σ w_i θ_i = (Σ w_i) θ + Σ w_i Δ_i; a round of total weight zero changes nothing."""
    total = report.weights.sum()
    rest = tree.scaled(jnp.where(total > 0, total, 1.0), params)
    return tree.plus(rest, tree.weighted(report.weights, report.updates)), state


def fedprox(importance: ArrayLike | None = None, *, proximal: float = 1.0) -> Rule:
    """Return FedProx.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), optional
        A distribution over the clients, by which to weight the average; the plain average if not
        given.
    proximal : float
        μ, at least 0. The paper tunes it over .001, .01, .1 and 1, and finds 1 the best for three
        of its five datasets; 0 is the plain average.
    """
    average = fedavg() if importance is None else importance_average(importance)
    strength = as_amount(proximal, what="proximal")
    return dataclasses.replace(average, name="fedprox", proximal=strength)
