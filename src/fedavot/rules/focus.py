"""FOCUS: clients push the change of their gradients, and the server sums these up.

    clients step along ∇f_i(ϑ) − g_i,   g_i⁺ = the mean of their gradients in this round,
    Y ← Y + Σ_{i∈S} p_i (g_i⁺ − g_i),   θ ← θ − H η Y,   g_i ← g_i⁺ for i ∈ S

Y is Σ p_i g_i, the sum of the last known gradients of all clients, in one model on the server; each
client keeps g_i, which starts at zero. The bias vanishes if every client returns within bounded
time, whatever the law. Without its correction of the local steps the rule would be MIFA. The rule
knows the importance. A round in which no client reports changes nothing.

Here g_i⁺ − g_i is recovered from the update as −Δ_i/(H η). With one local step this is the
published rule, and the model moves as if all clients had taken part. With more steps, the paper
pushes the last gradient of a round instead of their mean, and moves by η Y instead of H η Y, which
``server_step`` changes. The published rule is for equal importance and sums without weights.

Source: Ying, Li & Yang, *Exact and linear convergence for federated learning under arbitrary client
participation is attainable*, NeurIPS 2025 (arXiv 2503.20117).
"""

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    one_each,
    pick,
    plus,
    put,
    scaled,
    weighted,
    zeros_like,
)
from fedavot.rules.names import RuleName


class Pushed(NamedTuple):
    """The gradients that the clients last pushed."""

    own: Params
    """g_i, with a leading axis of clients."""
    total: Params
    """Y."""
    n_clients: Any


def focus(importance: ArrayLike) -> Rule:
    """Return FOCUS.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return Rule(
        RuleName.FOCUS,
        "importance",
        "one model per client, on the client",
        by_cohort(lambda cohort: shares[cohort]),
        aggregate,
        init=nothing_pushed,
        correct=correct,
        remembers=True,
        n_clients=shares.size,
    )


def nothing_pushed(params: Params, n_clients: int) -> Pushed:
    """Return the state before the first round."""
    import jax.numpy as jnp

    return Pushed(one_each(params, n_clients), zeros_like(params), jnp.asarray(n_clients))


def correct(params: Params, state: State, client: Any) -> Params:
    """Return −g_i."""
    return scaled(-1.0, pick(state.own, client))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add up the pushed changes, and step along the sum."""
    import jax.numpy as jnp

    span = report.local_steps * report.step
    news = scaled(-1.0 / span, report.updates)
    total = plus(state.total, weighted(report.weights, news))
    own = put(state.own, report.members, plus(pick(state.own, report.members), news))
    someone = (report.members < state.n_clients).any()
    moved = plus(params, scaled(jnp.where(someone, -span, 0.0), total))
    return moved, Pushed(own, total, state.n_clients)
