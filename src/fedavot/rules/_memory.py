"""The family of rules that remember the updates of absent clients: one state, one step.

    u_i = Δ_i/(H η) + κ (y_i − ŷ)          the new update of client i, per unit of step
    θ ← θ + H η ( Σ_{i∈S} w_i u_i + α Σ_{i∈S} w_i (ŷ − y_i) ),   ŷ = Σ p_i y_i / Σ p_i
    y_i ← y_i + γ_i (u_i − y_i),   γ_i = s_i/(s_i + c), 1 the first time

y_i is the memory of client i, and s_i the number of rounds since it was last present. The mean ŷ
and the second sum of the step are over clients with a memory: others count as if they had the mean
one. *Trust* α is the coefficient of the memories, given or learnt; *correction* κ removes the
clients' differences from their local steps; *damping* c averages out the memories' noise. FedAVOT's
steady rule learns α, and its memories expire: see `_history`.

The published members have α and κ of 0 or 1 and c = 0. Their memories never expire, and those of
clients never seen are zero, so that ŷ = Σ p_i y_i; they step by Σ w_i u_i + α (ŷ − Σ w_i y_i) with
weights that need not sum to one.

If all clients take part with w = p, or if α = 1 and every memory is up to date, the step is that of
full participation. A round in which no client reports changes nothing.
"""

from typing import Any, NamedTuple

from fedavot._checks import Floats
from fedavot.rules._history import History, begin, gains, learn, trust
from fedavot.rules._rule import (
    Choose,
    Params,
    Report,
    Rule,
    State,
    along,
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

LEARNT = float("nan")
"""The trust of a rule that learns it."""


class Constants(NamedTuple):
    """Constants of a member of the family: arrays, so that one compiled program serves them all."""

    trust: Any
    """α; NaN if it is learnt."""
    correction: Any
    damping: Any
    expires: Any
    """Whether memories expire; if not, the memories of clients never seen are zero."""


class Memory(NamedTuple):
    """The memories, and what is known about them."""

    importance: Any
    """p, shape (n_clients,)."""
    constants: Constants
    history: History
    last: Params
    """y_i, with a leading axis of clients; what has expired is not erased."""
    total: Params
    """Σ p_i y_i over the clients with a memory."""


def remembering(
    name: RuleName, knows: str, choose: Choose, importance: Floats, **constants: Any
) -> Rule:
    """Return a rule of the family, with the constants of `empty_memory`."""
    corrects = constants.get("correction", 0.0) != 0.0
    return Rule(
        name,
        knows,
        "one model on the server and each client" if corrects else "one model per client",
        choose,
        aggregate,
        init=lambda params, n_clients: empty_memory(importance, params, **constants),
        correct=correct if corrects else None,
        remembers=True,
        n_clients=importance.size,
    )


def empty_memory(
    importance: Floats,
    params: Params,
    *,
    trust: float = 1.0,
    correction: float = 0.0,
    damping: float = 0.0,
    expires: bool = False,
) -> Memory:
    """Return the memory before any client has reported."""
    import jax.numpy as jnp

    dtype = precision(params)
    alpha, kappa, c = (jnp.asarray(value, dtype) for value in (trust, correction, damping))
    constants = Constants(alpha, kappa, c, jnp.asarray(expires))
    zero, n_clients = jnp.zeros((), "int32"), importance.size
    history = History(zero, jnp.zeros(n_clients, "int32"), zero + 1, jnp.zeros(3, dtype))
    table = one_each(params, n_clients)
    return Memory(jnp.asarray(importance, dtype), constants, history, table, zeros_like(params))


def correct(params: Params, state: State, client: Any) -> Params:
    """Return what a client adds to its gradients: κ (y_i − ŷ)."""
    import jax

    remembered = state.history.seen > 0
    known = remembered[client]
    row = jax.tree.map(lambda leaf: jax.numpy.where(known, leaf[client], 0), state.last)
    part = state.constants.correction * (known | ~state.constants.expires)
    return scaled(part, minus(row, _mean(state, state.total, remembered)))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Step along the updates and memories, then update the memories."""
    import jax
    import jax.numpy as jnp

    members, constants, n_clients = report.members, state.constants, state.importance.size
    present = jnp.zeros(n_clients, bool).at[members].set(True, mode="drop")
    alpha = jnp.where(jnp.isnan(constants.trust), trust(state.history), constants.trust)
    turn, history = begin(state.history, present, expires=constants.expires)

    there = members < n_clients
    back, absence, shares = (
        pick(values, members) * there for values in (turn.returning, turn.absence, state.importance)
    )
    old = jax.tree.map(
        lambda leaf: jnp.where(along(back, leaf), leaf, 0), pick(state.last, members)
    )
    span = report.step * report.local_steps
    path = constants.correction * (back | ~constants.expires)
    new = jax.tree.map(
        lambda update, row, mean: update / span + along(path, row) * (row - mean),
        report.updates,
        old,
        _mean(state, state.total, state.history.seen > 0),
    )
    total = _without(state, turn.expired)
    part = jnp.where(constants.expires, (report.weights * back).sum(), 1.0)
    innovations = jax.tree.map(lambda now, last: now - alpha * last, new, old)
    change = plus(
        scaled(alpha * part, _mean(state, total, turn.remembered)),
        weighted(report.weights, innovations),
    )
    moved = plus(params, scaled(jnp.where(present.any(), span, 0), change))

    means = [weighted(report.weights * back, table) for table in (new, old)]
    products = jnp.stack([_dot(*means), _dot(means[1], means[1]), _dot(means[0], means[0])])
    gain = gains(absence, constants.damping).astype(constants.damping.dtype)
    news = jax.tree.map(lambda now, last: along(gain, now) * (now - last), new, old)
    after = state._replace(
        history=learn(history, products, turn),
        last=put(state.last, members, plus(old, news)),
        total=plus(total, weighted(shares, news)),
    )
    return moved, after


def _mean(state: Memory, total: Params, remembered: Any) -> Params:
    """Return ŷ."""
    import jax.numpy as jnp

    share = jnp.where(state.constants.expires, (state.importance * remembered).sum(), 1.0)
    return scaled(1.0 / jnp.where(share > 0, share, 1.0), total)


def _without(state: Memory, expired: Any) -> Params:
    """Return Σ p_i y_i without the memories that have expired; in most rounds there are none."""
    import jax

    def drop(left: tuple[Any, Params]) -> tuple[Any, Params]:
        expired, total = left
        client = expired.argmax()
        share = state.importance[client]
        total = jax.tree.map(lambda sums, rows: sums - share * rows[client], total, state.last)
        return expired.at[client].set(False), total

    return jax.lax.while_loop(lambda left: left[0].any(), drop, (expired, state.total))[1]


def _dot(left: Params, right: Params) -> Any:
    """Return the inner product of two models."""
    import jax

    return sum(jax.tree.leaves(jax.tree.map(lambda a, b: (a * b).sum(), left, right)))
