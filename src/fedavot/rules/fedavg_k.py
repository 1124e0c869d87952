"""FedAvg(K) as defined in the FedAVOT paper: the weights of full participation, scaled up.

    θ ← Σ_{i∈S} (N/|S|) p_i θ_i

The weights sum to one only on average, and only if clients take part equally often: models, not
updates, are scaled, so their norm jumps from round to round. It knows the importance and stores
nothing. It is a weak baseline, kept because the paper compares with it.

Source: the FedAVOT paper, section "Experiments".
"""

from typing import Any

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    plus,
    scaled,
    scaled_importance,
    weighted,
)
from fedavot.rules.names import RuleName


def fedavg_k(importance: ArrayLike) -> Rule:
    """Return FedAvg(K).

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    choose = by_cohort(scaled_importance(shares))
    return Rule(
        RuleName.FEDAVG_K,
        "importance",
        "nothing",
        choose,
        add_models,
        moves=False,
        n_clients=shares.size,
    )


def add_models(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Return Σ w_i θ_i = (Σ w_i) θ + Σ w_i Δ_i; a round of total weight zero changes nothing."""
    import jax.numpy as jnp

    total: Any = report.weights.sum()
    kept = jnp.where(total > 0, total, 1.0)
    return plus(scaled(kept, params), weighted(report.weights, report.updates)), state
