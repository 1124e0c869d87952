"""FedAWE: absent clients continue from their own model, and make up for missed rounds.

    θ_i† = x_i + s (t − τ_i) Δ_i,   θ ← (1/|A|) Σ_{i∈A} θ_i†,   x_i ← θ for i ∈ A

x_i is the model client i last received, at the end of its last active round τ_i; it trains from
there, and its update counts once for every round since then (once if it took part in the round
before, and in the first round, since τ_i starts at −1). s is the server's step. The rule knows
nothing: it uses no importance, and its objective is the plain mean (1/N) Σ f_i. Each client keeps
its own model and a count. With a projection, clients receive the projected aggregate.

The authors' program clips the mean echoed update, (1/|A|) Σ (t − τ_i) Δ_i, to a norm of .5,
evaluates the mean of the models that all clients hold, and decreases the local step as
1/√(1 + t/10): ``clip=0.5, mean=True`` and a schedule. With ``mean``, clients receive the aggregate
before any projection, and the mean of their models is projected.

Source: Xiang, Ioannidis, Yeh, Joe-Wong & Su, *Efficient federated learning against heterogeneous
and non-stationary client unavailability*, NeurIPS 2024, Algorithm 1, and its program.
"""

from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import as_amount
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    equal_weights,
    pick,
    plus,
    precision,
    put,
    scaled,
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
    """Those members, padded with n_clients; shape (n_clients,)."""
    step: Any
    """s."""
    clip: Any
    """The largest norm of the mean echoed update."""


def fedawe(*, clip: float | None = None, mean: bool = False, server_step: float = 1.0) -> Rule:
    """Return FedAWE.

    Parameters
    ----------
    clip : float, optional
        The largest norm of the mean echoed update, above 0; no limit if not given.
    mean : bool
        Whether the model is the mean of the models that all clients hold instead of the last
        aggregate.
    server_step : float
        s, above 0.
    """
    most = np.inf if clip is None else as_amount(clip, what="clip", positive=True)
    size = as_amount(server_step, what="server_step", positive=True)
    return Rule(
        RuleName.FEDAWE,
        "nothing",
        "one model per client, on the client",
        by_cohort(equal_weights),
        aggregate_mean if mean else aggregate,
        init=lambda params, n_clients: everybody_alike(size, most, params, n_clients),
        start=start_held if mean else start,
        remembers=True,
        moves=False,
    )


def everybody_alike(step: float, clip: float, params: Params, n_clients: int) -> Clocks:
    """Return the state before the first round: all clients hold the first model."""
    import jax.numpy as jnp

    nobody = jnp.full(n_clients, n_clients, dtype=jnp.int32)
    waited = jnp.ones(n_clients, dtype=jnp.int32)
    constants = (jnp.asarray(value, dtype=precision(params)) for value in (step, clip))
    return Clocks(_repeated(params, n_clients), waited, nobody, *constants)


def start(params: Params, state: State, client: Any) -> Params:
    """Return the model that the client last received."""
    import jax
    import jax.numpy as jnp

    just = state.since[client] == 1
    return jax.tree.map(lambda new, old: jnp.where(just, new, old[client]), params, state.held)


def start_held(params: Params, state: State, client: Any) -> Params:
    """Return the model that the client holds."""
    return pick(state.held, client)


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Average the models with their updates echoed; an empty round leaves the model unchanged."""
    import jax
    import jax.numpy as jnp

    members, size = report.members, report.members.shape[0]
    held = put(state.held, state.latest[:size], _repeated(params, size))
    average, since = echoed(held, state, report)
    someone = (members < since.shape[0]).any()
    moved = jax.tree.map(lambda new, old: jnp.where(someone, new, old), average, params)
    latest = state.latest.at[:size].set(members)
    return moved, state._replace(held=held, since=since, latest=latest)


def aggregate_mean(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Give the average to the members, and return the mean of all clients' models."""
    import jax

    average, since = echoed(state.held, state, report)
    held = put(state.held, report.members, _repeated(average, report.members.shape[0]))
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), held)
    return mean, state._replace(held=held, since=since)


def echoed(held: Params, state: State, report: Report) -> tuple[Params, Any]:
    """Return the average of the models with their updates echoed, and the next t − τ_i."""
    import jax
    import jax.numpy as jnp

    missed = state.since.at[report.members].get(mode="fill", fill_value=0)
    echoes = missed.astype(report.weights.dtype) * report.weights
    change = weighted(echoes, report.updates)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(change)))
    factor = state.step * jnp.minimum(1.0, state.clip / norm)
    average = plus(weighted(report.weights, pick(held, report.members)), scaled(factor, change))
    return average, (state.since + 1).at[report.members].set(1, mode="drop")


def _repeated(params: Params, count: int) -> Params:
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), params)
