"""FedAVOT with memory: the last updates of absent clients stand in for them.

    θ ← θ + Σ_i p_i η y_i + Σ_{i∈A} Y[i, A] (Δ_i − η y_i),   then y_i ← Δ_i/η for i ∈ A

y_i is client i's last update per unit of step size. The bias of out-of-reach importance becomes
Σ (p_i − p̃_i)(Δ_i − η y_i), which vanishes as the memories catch up, and so does most of the
variance. The rule knows the importance and the availability law, both from the alignment, and
stores one model per client. All members of a cohort train, also those of weight zero, to refresh
their memory.

Source: ours. Its memory is that of FedVARP (Jhunjhunwala et al. 2022) and MIFA (Gu et al. 2021),
its weights are aligned.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_importance
from fedavot.alignment import Alignment
from fedavot.rules._known import as_converged, as_shares
from fedavot.rules._rule import (
    Asked,
    Cohorts,
    Params,
    Report,
    Rule,
    State,
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


class Memory(NamedTuple):
    """The last update of every client, and their sum weighted by importance."""

    importance: Any
    """p, shape (n_clients,)."""
    last: Params
    """y_i, with a leading axis of clients."""
    total: Params
    """Σ p_i y_i."""


def fedavot_memory(
    alignment: Alignment,
    *,
    importance: ArrayLike | Mapping[str, float] | None = None,
    allow_unconverged: bool = False,
) -> Rule:
    """Return FedAVOT with memory.

    Parameters
    ----------
    alignment : Alignment
        Gives the weights of new updates.
    importance : array-like of shape (n_clients,), or mapping from name to float, optional
        Weights of the memories; the alignment's importance if not given.
    allow_unconverged : bool
        Whether to accept an alignment that missed its tolerance.
    """
    aligned = as_converged(RuleName.MEMORY, alignment, allow_unconverged=allow_unconverged)
    wanted = aligned.importance if importance is None else importance
    shares = as_importance(as_shares(wanted, aligned.clients), aligned.n_clients)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [
            Asked(cohort, aligned.weights(cohort) if cohort.size else np.zeros(0))
            for cohort in cohorts
        ]

    return Rule(
        RuleName.MEMORY,
        "importance, availability law",
        "one model per client",
        choose,
        aggregate,
        init=lambda params, n_clients: empty_memory(shares, params, n_clients),
        remembers=True,
        n_clients=aligned.n_clients,
    )


def empty_memory(importance: Floats, params: Params, n_clients: int) -> Memory:
    """Return the memory before any client has reported."""
    import jax.numpy as jnp

    weights = jnp.asarray(importance, dtype=precision(params))
    return Memory(weights, one_each(params, n_clients), zeros_like(params))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the remembered total and what is new in the updates, then remember them.

    A round in which nobody reports leaves the model as it is.
    """
    import jax.numpy as jnp

    someone = (report.members < state.importance.shape[0]).any()
    remembered = pick(state.last, report.members)
    fresh = scaled(1.0 / report.step, report.updates)
    news = minus(fresh, remembered)
    change = plus(state.total, weighted(report.weights, news))
    memory = remember(state, report.members, fresh, news)
    return plus(params, scaled(jnp.where(someone, report.step, 0.0), change)), memory


def remember(state: Memory, members: Any, fresh: Params, news: Params) -> Memory:
    """Return the memory with the members' updates replaced and the total adjusted."""
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    total = plus(state.total, weighted(shares, news))
    return Memory(state.importance, put(state.last, members, fresh), total)
