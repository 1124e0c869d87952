"""SCAFFOLD: local gradients corrected by control variates.

    clients step along ∇f_i(ϑ) − c_i + c,   θ ← θ + (1/|S|) Σ_{i∈S} N p_i Δ_i,
    c_i⁺ = c_i − c − Δ_i/(H η),   c ← c + Σ_{i∈S} p_i (c_i⁺ − c_i)

c_i estimates client i's gradient and c = Σ p_i c_i that of the objective, so that every client
steps along the common objective. The rule knows the importance and stores one model per client, on
the client, and one on the server; c_i and c start at zero.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i. It assumes that clients are
sampled uniformly: the weights N p_i/|S| sum to one only on average, and only if clients take part
equally often.

Source: Karimireddy, Kale, Mohri, Reddi, Stich & Suresh, *SCAFFOLD: stochastic controlled averaging
for federated learning*, ICML 2020, Algorithm 1, option II, with server step 1.
"""

import dataclasses

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._memory import aggregate as remember
from fedavot.rules._memory import remembering
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    plus,
    scaled_importance,
    weighted,
)
from fedavot.rules.names import RuleName


def scaffold(importance: ArrayLike) -> Rule:
    """Return SCAFFOLD.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    choose = by_cohort(scaled_importance(shares))
    rule = remembering(RuleName.SCAFFOLD, "importance", choose, shares, correction=1.0)
    return dataclasses.replace(rule, aggregate=aggregate)


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates, and compute the next control variates from them."""
    memory = remember(params, state, report)[1]
    return plus(params, weighted(report.weights, report.updates)), memory
