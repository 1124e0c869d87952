"""The family of rules that remember the updates of absent clients: one state, one step.

    u_i = Δ_i/(H η) + κ (y_i − T)          what client i says now, per unit of step
    θ ← θ + H η (α T + Σ_{i∈S} w_i (u_i − α y_i))
    y_i ← y_i + γ_i (u_i − y_i),   γ_i = s_i/(s_i + c), 1 the first time,   T = Σ p_i y_i

y_i is what is remembered of client i, s_i the number of rounds since it was last there. *Trust* α
is the coefficient of the memories, *damping* c averages their noise away, and *correction* κ takes
the clients' differences out of their local steps. The published members have α = 1, c = 0 and give
their weights w_i; zero stands for clients never seen. A rule that *shares* has

    w_i = p_i + (1 − α (1 − β)) (1 − p(S)) a_i

for shares a_i that sum to one over the cohort, and T over the importance seen in the place of T.
This mean stands for clients never seen if α is given; if it is learnt, nothing does, and they are
taken to share all of the news. Each of α, c and κ that is not given is learnt; see `steady`.

If everybody takes part, or if α = 1 and every memory is up to date, the step is that of full
participation. A round in which nobody reports, or whose step is zero, leaves the model and the
memories as they are.
"""

from typing import Any, NamedTuple

from fedavot._checks import Floats
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
"""In the place of a constant that is learnt during training."""
FORGETTING = 0.97
"""What a round in which somebody returns leaves of earlier evidence: about thirty rounds of it."""
RETURNS = 2.0
"""Learnt damping, in mean times to return."""


class Constants(NamedTuple):
    """The member of the family: all arrays, so that one compiled program serves every member."""

    share: Any
    """β; NaN for a rule that gives its weights."""
    trust: Any
    damping: Any
    correction: Any


class Evidence(NamedTuple):
    """What returning clients have taught."""

    rounds: Any
    """Number of rounds so far."""
    seen: Any
    """The round in which each client was last there, counted from 1; 0 before the first."""
    heard: Any
    """Importance of the clients that have been seen."""
    absences: Any
    """Sum and number of the returning clients' absences, in rounds."""
    trust: Any
    """Σ p_i γ_i ⟨u_i, y_i⟩ and Σ p_i γ_i ‖y_i‖²."""
    likeness: Any
    """Σ ⟨u_i, y_i⟩, Σ ‖u_i‖² and Σ ‖y_i‖²."""


class Memory(NamedTuple):
    """The memories, and what is known about them."""

    importance: Any
    """p, shape (n_clients,)."""
    constants: Constants
    evidence: Evidence
    last: Params
    """y_i, with a leading axis of clients."""
    total: Params
    """Σ p_i y_i."""


def remembering(
    name: RuleName, knows: str, choose: Choose, importance: Floats, **constants: float
) -> Rule:
    """Return a rule of the family, with the constants of `empty_memory`."""
    corrects = constants.get("correction", 0.0) != 0.0
    return Rule(
        name,
        knows,
        "one model on the server and each client",
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
    share: float = float("nan"),
    trust: float = 1.0,
    damping: float = 0.0,
    correction: float = 0.0,
) -> Memory:
    """Return the memory before any client has reported; `share` is given by rules that share."""
    import jax.numpy as jnp

    dtype = precision(params)
    shares = jnp.asarray(importance, dtype)
    constants = (jnp.asarray(value, dtype) for value in (share, trust, damping, correction))
    numbers = [jnp.zeros(size, dtype) for size in ((), 2, 2, 3)]
    evidence = Evidence(jnp.zeros((), "int32"), jnp.zeros(shares.size, "int32"), *numbers)
    table = one_each(params, importance.size)
    return Memory(shares, Constants(*constants), evidence, table, zeros_like(params))


def correct(params: Params, state: State, client: Any) -> Params:
    """Return what a client adds to its gradients: κ (y_i − T)."""
    mean = mean_memory(state)
    return scaled(correction_of(state), minus(_memory_of(state, client, mean)[0], mean))


def mean_memory(state: Memory) -> Params:
    """Return T, over the importance seen if the rule shares."""
    import jax.numpy as jnp

    heard = state.evidence.heard
    return scaled(1.0 / jnp.where(_shares(state) & (heard > 0), heard, 1.0), state.total)


def _shares(state: Memory) -> Any:
    """Return whether the rule shares, or gives its weights."""
    import jax.numpy as jnp

    return ~jnp.isnan(state.constants.share)


def trust_of(state: Memory) -> Any:
    """Return α: the regression of what clients say on their memories, if it is learnt.

    A client weighs p_i γ_i: as much as it counts, and the more the longer it was absent, but no
    single return outweighs all others. Without evidence there is no trust.
    """
    import jax.numpy as jnp

    given, (product, square) = state.constants.trust, state.evidence.trust
    learnt = jnp.clip(_ratio(product, square), 0.0, 1.0)
    return jnp.where(jnp.isnan(given), learnt, given)


def correction_of(state: Memory) -> Any:
    """Return κ: the squared correlation of what clients say with their memories, if it is learnt.

    This is the part of an update that persists; the rest is noise of its batches, along which a
    client must not be held.
    """
    import jax.numpy as jnp

    given, (product, new, old) = state.constants.correction, state.evidence.likeness
    # One ratio after the other: a product of squares would leave the range of single precision.
    learnt = jnp.clip(_ratio(product, new) * jnp.maximum(_ratio(product, old), 0.0), 0.0, 1.0)
    return jnp.where(jnp.isnan(given), learnt, given)


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Step along the memories and what is new, then remember it."""
    import jax.numpy as jnp

    span = report.step * report.local_steps
    # With a step of zero nobody says anything: as if all were absent.
    members = jnp.where(span > 0, report.members, state.importance.shape[0])
    present = members < state.importance.shape[0]
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    trust, mean = trust_of(state), mean_memory(state)
    rows, absence = _memory_of(state, members, mean)
    path = scaled(correction_of(state), minus(rows, mean))
    fresh = plus(scaled(1.0 / jnp.where(span > 0, span, 1.0), report.updates), path)
    heard, unheard, old = _newcomers(state, shares, absence, rows)
    part = 1.0 - trust * (1.0 - state.constants.share)
    weights = shares + (part * (1.0 - shares.sum() - unheard) + unheard) * report.weights
    weights = jnp.where(_shares(state), weights, report.weights)
    news = weighted(weights, minus(fresh, scaled(trust, old)))
    change = plus(scaled(trust * heard, mean), news)
    moved = plus(params, scaled(jnp.where(present.any(), span, 0.0), change))
    after = _learn(state, members, absence, (fresh, rows))
    return moved, _remember(after, members, absence, fresh)


def _newcomers(state: Memory, shares: Any, absence: Any, rows: Params) -> tuple[Any, Any, Params]:
    """Return what the mean stands for, the importance never seen, and memories as they count.

    Trust that is given extends to clients never seen, for which the mean stands. Trust that is
    learnt does not: nothing stands for them, and all that is new is taken to be theirs as well.
    """
    import jax
    import jax.numpy as jnp

    heard = state.evidence.heard
    learns = _shares(state) & jnp.isnan(state.constants.trust)
    new = jnp.where(absence > 0, 0.0, shares).sum()
    unheard = jnp.where(learns, jnp.maximum(1.0 - heard - new, 0.0), 0.0)
    hidden = learns & (absence == 0)
    old = jax.tree.map(lambda row: jnp.where(along(hidden, row), 0.0, row), rows)
    return jnp.where(learns, heard, 1.0), unheard, old


def _memory_of(state: Memory, clients: Any, mean: Params) -> tuple[Params, Any]:
    """Return the clients' memories, and their absences in rounds; 0 for those never seen."""
    import jax
    import jax.numpy as jnp

    evidence = state.evidence
    seen = evidence.seen.at[clients].get(mode="fill", fill_value=0)
    fills = (seen == 0) & _shares(state)

    def filled(row: Any, middle: Any) -> Any:
        # A client's row is zero until it is seen.
        return jnp.where(fills.reshape(*seen.shape, *[1] * middle.ndim), middle, row)

    rows = jax.tree.map(filled, pick(state.last, clients), mean)
    return rows, jnp.where(seen > 0, evidence.rounds + 1 - seen, 0)


def _learn(state: Memory, members: Any, absence: Any, pair: tuple[Params, Params]) -> Memory:
    """Return the memory with the evidence of the clients that are back."""
    import jax.numpy as jnp

    fresh, old = pair
    evidence, returns = state.evidence, absence > 0
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    absences = jnp.stack([absence.sum(), returns.sum()]).astype(shares.dtype) + evidence.absences
    gain = _gain(state, absences, absence)
    products = jnp.stack([_products(fresh, old), _products(fresh, fresh), _products(old, old)])
    products = jnp.where(returns, products, 0.0)
    kept = jnp.where(returns.any(), FORGETTING, 1.0)
    now = evidence.rounds + 1
    learnt = Evidence(
        now,
        evidence.seen.at[members].set(now, mode="drop"),
        evidence.heard + jnp.where(returns, 0.0, shares).sum(),
        absences,
        kept * evidence.trust + (products * shares * gain).sum(axis=1)[jnp.array([0, 2])],
        kept * evidence.likeness + products.sum(axis=1),
    )
    return state._replace(evidence=learnt)


def _gain(state: Memory, absences: Any, absence: Any) -> Any:
    """Return γ_i = s_i/(s_i + c), 1 the first time."""
    import jax.numpy as jnp

    given = state.constants.damping
    damping = jnp.where(jnp.isnan(given), RETURNS * _ratio(*absences), given)
    return jnp.where(absence > 0, absence / (absence + damping), 1.0).astype(damping.dtype)


def _remember(state: Memory, members: Any, absence: Any, fresh: Params) -> Memory:
    """Return the memory with part of what is new in the updates, all of it the first time."""
    import jax

    gain = _gain(state, state.evidence.absences, absence)
    stored = pick(state.last, members)
    news = minus(fresh, stored)
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    total = plus(state.total, weighted(shares * gain, news))
    rows = jax.tree.map(lambda row, new: row + along(gain, row) * new, stored, news)
    return state._replace(last=put(state.last, members, rows), total=total)


def _products(left: Params, right: Params) -> Any:
    """Return the inner product of each row of one table with that of another, shape (length,)."""
    import jax
    import jax.numpy as jnp

    parts = jax.tree.map(lambda a, b: (a * b).reshape(a.shape[0], -1).sum(axis=1), left, right)
    return jnp.stack(jax.tree.leaves(parts)).sum(axis=0)


def _ratio(over: Any, under: Any) -> Any:
    """Return a quotient, 0 where there is nothing to divide by."""
    import jax.numpy as jnp

    return jnp.where(under > 0, over / jnp.where(under > 0, under, 1.0), 0.0)
