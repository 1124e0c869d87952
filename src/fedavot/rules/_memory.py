"""The family of rules that remember the updates of absent clients: one state, one step.

    u_i = Δ_i/(H η) + κ (y_i − ŷ_p)        the new update of client i, per unit of step
    θ ← θ + H η ( Σ_{i∈S} w_i u_i + α Σ_{i∈S} w_i (ŷ − y_i) )
    y_i ← y_i + γ_i (u_i − y_i),   γ_i = A_i/(A_i + c), 1 the first time

y_i is the memory of client i, A_i the number of rounds since it was last present, and ŷ_p the mean
of the memories by importance. Sums with y are over clients with a memory: others count as if they
had the mean ŷ. *Trust* α is the coefficient of the memories; *correction* κ removes the clients'
differences from their local steps; *damping* c averages out the memories' noise. FedAVOT's steady
rule learns α and its *tilt*, which makes w and ŷ a mixture of what is wanted and what is
available, and its memories expire: see `_history`.

The published members have α and κ of 0 or 1, c = 0 and ŷ = ŷ_p. Their memories never expire, and
those of clients never seen are zero, so that ŷ = Σ p_i y_i; they step by Σ w_i u_i + α (ŷ − Σ w_i
y_i) with weights that need not sum to one.

If all clients take part with w = p, or if α = 1, every memory is up to date and the tilt is 1, the
step is that of full participation. A round in which no client reports changes nothing.
"""

from typing import Any, NamedTuple

import fedavot.rules._history as core
import fedavot.rules._trees as tree
from fedavot._checks import Floats
from fedavot.rules._history import Constants, History
from fedavot.rules._rule import Choose, Report, Rule, State
from fedavot.rules._trees import Params, jax, jnp


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
    usual: Params
    """Σ a_i y_i over the same, a_i the attendance in the history."""
    shift: Params
    """m, the running mean of what the importance changes in a round."""


def remembering(
    name: str, knows: str, choose: Choose, importance: Floats, constants: Constants
) -> Rule:
    """Return a rule of the family."""

    def init(params: Params, n_clients: int) -> Memory:
        shares, *values = tree.arrays(params, importance, *constants)
        table, zero = tree.one_each(params, n_clients), tree.zeros_like(params)
        history = core.nothing(jnp, n_clients, dtype=shares.dtype)
        arrays = Constants(*values)._replace(expires=jnp.asarray(constants.expires))
        return Memory(shares, arrays, history, table, zero, zero, zero)

    place, hook = "one model per client", None
    if constants.correction:
        place, hook = "one model on the server and each client", correct
    parts = (choose, aggregate, init, None, hook)
    return Rule(name, knows, place, *parts, remembers=True, n_clients=importance.size)


def correct(params: Params, state: State, client: Any) -> Params:
    """Return what a client adds to its gradients: κ (y_i − ŷ)."""
    known = state.history.seen[client] > 0
    row = tree.each(lambda leaf: jnp.where(known, leaf[client], 0), state.last)
    part = state.constants.correction * (known | ~state.constants.expires)
    return tree.scaled(part, tree.minus(row, _mean(state)))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Step along the updates and memories, then update the memories."""
    members, constants = report.members, state.constants
    turn, history = core.decide(state.history, state.importance, members, report.weights, constants)
    old = tree.each(
        lambda leaf: jnp.where(tree.along(turn.returning, leaf), leaf, 0),
        tree.pick(state.last, members),
    )
    span = report.step * report.local_steps
    path = constants.correction * (turn.returning | ~constants.expires)
    new = tree.each(
        lambda update, row, mean: update / span + tree.along(path, row) * (row - mean),
        *(report.updates, old, _mean(state)),
    )
    damped = tree.each(lambda u, y: y + tree.along(turn.gains, y) * (u - y), new, old)
    combined = tree.each(
        lambda u, y, *sums: jnp.tensordot(
            turn.matrix, jnp.concatenate([u, y, jnp.stack(sums)]), axes=1, precision="highest"
        ),
        *(new, old, *_without(state, turn.expired), state.shift),
    )
    rows = [tree.each(lambda leaf, k=k: leaf[k], combined) for k in range(len(turn.matrix))]
    change, *sums = rows[:4]
    rows.append(state.shift)
    products = jnp.stack([_dot(rows[i], rows[j]) for i, j in core.PAIRS])
    after = core.learn(history, products, turn)
    last = tree.put(state.last, members, damped)
    memory = Memory(state.importance, constants, after, last, *sums)
    return tree.each(lambda leaf, by: leaf + span * by, params, change), memory


def _mean(state: Memory) -> Params:
    """Return ŷ_p before a round."""
    remembered, expires = state.history.seen > 0, state.constants.expires
    factor = core.mean_factor(state.importance, remembered, expires)
    return tree.scaled(factor, state.total)


def _without(state: Memory, expired: Any) -> tuple[Params, Params]:
    """Return both sums without the memories that have expired; in most rounds there are none."""

    def drop(left: tuple[Any, Params, Params]) -> tuple[Any, Params, Params]:
        expired, *sums = left
        client = expired.argmax()
        parts = state.importance[client], state.history.attended[client]
        total, usual = (
            tree.each(lambda its, rows, part=part: its - part * rows[client], it, state.last)
            for it, part in zip(sums, parts, strict=True)
        )
        return expired.at[client].set(False), total, usual

    start = expired, state.total, state.usual
    _, total, usual = jax.lax.while_loop(lambda left: left[0].any(), drop, start)
    return total, usual


def _dot(left: Params, right: Params) -> Any:
    """Return the inner product of two models."""
    return sum(jax.tree.leaves(tree.each(lambda a, b: (a * b).sum(), left, right)))
