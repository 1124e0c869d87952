"""SCAFFOLD: local gradients corrected by control variates.

    clients step along ∇f_i(ϑ) − c_i + c,   θ ← θ + (1/|S|) Σ_{i∈S} N p_i Δ_i,
    c_i⁺ = c_i − c − Δ_i/(H η),   c ← c + Σ_{i∈S} p_i (c_i⁺ − c_i)

c_i estimates client i's gradient and c = Σ p_i c_i that of the objective, so that every client
steps along the common objective. The rule knows the importance and stores one model per client, on
the client, and one on the server; c_i and c are zero at first.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i. It assumes that clients are
sampled uniformly: the weights N p_i/|S| sum to one only on average, and only if clients take part
equally often.

Source: Karimireddy, Kale, Mohri, Reddi, Stich & Suresh, *SCAFFOLD: stochastic controlled averaging
for federated learning*, ICML 2020, Algorithm 1, option II, with server step 1.
"""

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import Floats
from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    minus,
    one_each,
    pick,
    plus,
    precision,
    put,
    scaled,
    scaled_importance,
    weighted,
    zeros_like,
)
from fedavot.rules.names import RuleName


class Controls(NamedTuple):
    """The control variates."""

    importance: Any
    """Shape (n_clients,)."""
    own: Params
    """c_i, with a leading axis of clients."""
    common: Params
    """c."""


def scaffold(importance: ArrayLike) -> Rule:
    """Return SCAFFOLD.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return Rule(
        RuleName.SCAFFOLD,
        "importance",
        "one model per client, on the client",
        by_cohort(scaled_importance(shares)),
        aggregate,
        init=lambda params, n_clients: no_controls(shares, params, n_clients),
        correct=correct,
        remembers=True,
        n_clients=shares.size,
    )


def no_controls(importance: Floats, params: Params, n_clients: int) -> Controls:
    """Return the control variates before the first round, all zero."""
    import jax.numpy as jnp

    shares = jnp.asarray(importance, dtype=precision(params))
    return Controls(shares, one_each(params, n_clients), zeros_like(params))


def correct(params: Params, state: State, client: Any) -> Params:
    """Return c − c_i."""
    return minus(state.common, pick(state.own, client))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates, and compute the next control variates from them."""
    old = pick(state.own, report.members)
    gradients = scaled(-1.0 / (report.local_steps * report.step), report.updates)
    change = minus(gradients, state.common)  # c_i⁺ − c_i
    shares = state.importance.at[report.members].get(mode="fill", fill_value=0)
    controls = Controls(
        state.importance,
        put(state.own, report.members, plus(old, change)),
        plus(state.common, weighted(shares, change)),
    )
    return plus(params, weighted(report.weights, report.updates)), controls
