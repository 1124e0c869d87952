"""FedStale: fresh updates by inverse probability, stale ones with a weight of their own.

    θ ← θ + β Σ_i p_i η y_i + Σ_{i∈S} (p_i/π_i) (Δ_i − β η y_i),   then y_i ← Δ_i/η for i ∈ S

y_i is client i's last update per unit of step size, zero before the first; π_i = P(i ∈ S). The
expected change is that of full participation for every β: β = 0 is Horvitz–Thompson, β = 1 FedVARP
with inverse-probability weights. A small β helps where some clients return so seldom that their
updates are stale. The rule knows the importance and the inclusion probabilities, and stores one
model per client. A round in which nobody reports changes nothing.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i.

Source: Rodio & Neglia, *FedStale: leveraging stale client updates in federated learning*, ECAI 2024
(arXiv 2405.04171), with server step 1.
"""

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_amount
from fedavot.errors import OptionError
from fedavot.rules._known import as_shares, inverse_inclusion
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
    weighted,
    zeros_like,
)
from fedavot.rules.names import RuleName


class Stale(NamedTuple):
    """The last updates, and how much they count."""

    importance: Any
    """p, shape (n_clients,)."""
    trust: Any
    """β."""
    last: Params
    """y_i, with a leading axis of clients."""
    total: Params
    """Σ p_i y_i."""


def fedstale(importance: ArrayLike, inclusion: ArrayLike | None, *, trust: float = 0.5) -> Rule:
    """Return FedStale.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        How much each client counts, and the probability that it takes part.
    trust : float
        β, from 0 to 1: the weight of stale updates, which the paper tunes.
    """
    ratios = inverse_inclusion(RuleName.FEDSTALE, importance, inclusion)
    shares = as_shares(importance)
    part = as_amount(trust, what="trust")
    if part > 1.0:
        raise OptionError(f"trust is {part}; it must be from 0 to 1")
    return Rule(
        RuleName.FEDSTALE,
        "importance, inclusion probabilities",
        "one model per client",
        by_cohort(lambda cohort: ratios[cohort]),
        aggregate,
        init=lambda params, n_clients: nothing_stale(shares, part, params),
        remembers=True,
        n_clients=shares.size,
    )


def nothing_stale(importance: Floats, trust: float, params: Params) -> Stale:
    """Return the state before any client has reported."""
    import jax.numpy as jnp

    dtype = precision(params)
    shares, part = jnp.asarray(importance, dtype), jnp.asarray(trust, dtype)
    return Stale(shares, part, one_each(params, importance.size), zeros_like(params))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add fresh and stale updates, then remember the fresh ones."""
    import jax.numpy as jnp

    old, fresh = pick(state.last, report.members), scaled(1.0 / report.step, report.updates)
    news = weighted(report.weights, minus(fresh, scaled(state.trust, old)))
    change = plus(scaled(state.trust, state.total), news)
    someone = (report.members < state.importance.shape[0]).any()
    moved = plus(params, scaled(jnp.where(someone, report.step, 0.0), change))
    shares = state.importance.at[report.members].get(mode="fill", fill_value=0)
    total = plus(state.total, weighted(shares, minus(fresh, old)))
    return moved, state._replace(last=put(state.last, report.members, fresh), total=total)
