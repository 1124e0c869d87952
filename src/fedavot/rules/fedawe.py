"""FedAWE: absent clients continue from their own model, and make up for missed rounds.

    θ_i† = x_i + (t − τ_i) Δ_i,   θ ← (1/|A|) Σ_{i∈A} θ_i†,   x_i ← θ for i ∈ A

x_i is the model client i last received, at the end of its last active round τ_i; it trains from
there, and its update counts once for every round since then (once if it took part in the round
before, and in the first round: τ_i = −1 before). The rule knows nothing: it uses no importance, and
its objective is the plain mean (1/N) Σ f_i. Each client keeps its own model and a count. With a
projection, clients receive the projected aggregate.

Source: Xiang, Ioannidis, Yeh, Joe-Wong & Su, *Efficient federated learning against heterogeneous
and non-stationary client unavailability*, NeurIPS 2024, Algorithm 1, with server step 1.
"""

from typing import Any, NamedTuple

from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    equal_weights,
    pick,
    plus,
    put,
    weighted,
)
from fedavot.rules.names import RuleName


class Clocks(NamedTuple):
    """The model each client holds, and how long ago it received it.

    A round's members receive the model after its projection, which `aggregate` does not see: it is
    stored at the beginning of the next round.
    """

    held: Params
    """The model of every client, except those of the last round."""
    since: Any
    """t − τ_i, shape (n_clients,); 1 for the members of the last round."""
    latest: Any
    """Those members, then n_clients; shape (n_clients,)."""


def fedawe() -> Rule:
    """Return FedAWE."""
    return Rule(
        RuleName.FEDAWE,
        "nothing",
        "one model per client, on the client",
        by_cohort(equal_weights),
        aggregate,
        init=init,
        start=start,
        remembers=True,
        moves=False,
    )


def init(params: Params, n_clients: int) -> Clocks:
    """Return the state before the first round: everybody holds the first model."""
    import jax.numpy as jnp

    nobody = jnp.full(n_clients, n_clients, dtype=jnp.int32)
    return Clocks(_repeated(params, n_clients), jnp.ones(n_clients, dtype=jnp.int32), nobody)


def start(params: Params, state: State, client: Any) -> Params:
    """Return the model that the client received last."""
    import jax
    import jax.numpy as jnp

    just = state.since[client] == 1
    return jax.tree.map(lambda new, old: jnp.where(just, new, old[client]), params, state.held)


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Average the models with their updates echoed; an empty round leaves the model as it is."""
    import jax
    import jax.numpy as jnp

    members, size = report.members, report.members.shape[0]
    held = put(state.held, state.latest[:size], _repeated(params, size))
    missed = state.since.at[members].get(mode="fill", fill_value=0)
    echoes = missed.astype(report.weights.dtype) * report.weights
    average = plus(weighted(report.weights, pick(held, members)), weighted(echoes, report.updates))
    someone = (members < state.since.shape[0]).any()
    moved = jax.tree.map(lambda new, old: jnp.where(someone, new, old), average, params)
    since = (state.since + 1).at[members].set(1, mode="drop")
    return moved, Clocks(held, since, state.latest.at[:size].set(members))


def _repeated(params: Params, count: int) -> Params:
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), params)
