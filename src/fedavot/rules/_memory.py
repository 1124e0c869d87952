"""The family of rules that remember the updates of absent clients: one state, one step.

    u_i = Δ_i/(H η) + κ (y_i − T)          the new update of client i, per unit of step
    θ ← θ + H η (α T + Σ_{i∈S} w_i (u_i − α y_i))
    y_i ← y_i + γ_i (u_i − y_i),   γ_i = s_i/(s_i + c), 1 the first time,   T = Σ p_i y_i

y_i is the memory of client i, s_i the number of rounds since it was last present. *Trust* α is the
coefficient of the memories, *damping* c averages out their noise, and *correction* κ removes the
clients' differences from their local steps. The published members have α = 1, c = 0 and give their
weights w_i; the memory of a client never seen is zero. A rule that *shares* has

    w_i = p_i + (1 − α (1 − β)) (1 − p(S)) a_i

for shares a_i that sum to one over the cohort, and T divided by the importance seen in place of T.
If α is given, this mean replaces the memories of clients never seen; if α is learnt, nothing does,
and these clients are assumed to share the whole innovation. Each of α, c and κ that is not given is
learnt; see `steady`. If α is learnt, memories *fade*: all y_i are multiplied by e^−ρ at the end of
a round in which any client returns, where ρ is the rate at which updates become smaller.

If all clients take part, or if α = 1 and every memory is up to date, the step is that of full
participation. A round in which no client reports, or whose step is zero, leaves the model and the
memories unchanged.
"""

from typing import Any, NamedTuple

from fedavot._checks import Floats
from fedavot.rules._evidence import (
    Evidence,
    fading,
    learn,
    learnt_correction,
    learnt_damping,
    learnt_trust,
    no_evidence,
    share_left,
    with_absences,
)
from fedavot.rules._rule import (
    Choose,
    Params,
    Report,
    Rule,
    State,
    along,
    marked,
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
"""Value of a constant that is learnt during training."""


class Constants(NamedTuple):
    """Constants of a member of the family: arrays, so that one compiled program serves them all."""

    share: Any
    """β; NaN for a rule that gives its weights."""
    trust: Any
    damping: Any
    correction: Any


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
        rows=rows,
    )


def rows(state: Memory) -> Memory:
    """Return which leaves of the state have one row per client."""
    marks: Memory = marked(state, False)
    evidence = marks.evidence._replace(seen=True, written=True)
    return marks._replace(importance=True, evidence=evidence, last=marked(state.last, True))


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
    evidence = no_evidence(importance.size, dtype)
    table = one_each(params, importance.size)
    return Memory(shares, Constants(*constants), evidence, table, zeros_like(params))


def correct(params: Params, state: State, client: Any) -> Params:
    """Return the correction that a client adds to its gradients: κ (y_i − T)."""
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


def _learns(state: Memory) -> Any:
    """Return whether the rule shares, and learns its trust."""
    import jax.numpy as jnp

    return _shares(state) & jnp.isnan(state.constants.trust)


def trust_of(state: Memory) -> Any:
    """Return α, learnt if it is not given."""
    return _given_or(state.constants.trust, learnt_trust(state.evidence))


def correction_of(state: Memory) -> Any:
    """Return κ, learnt if it is not given."""
    return _given_or(state.constants.correction, learnt_correction(state.evidence))


def _given_or(given: Any, learnt: Any) -> Any:
    import jax.numpy as jnp

    return jnp.where(jnp.isnan(given), learnt, given)


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Step along the memories and the innovations, then update the memories."""
    import jax.numpy as jnp

    span = report.step * report.local_steps
    # With a step of zero, updates carry no information: treat all clients as absent.
    members = jnp.where(span > 0, report.members, state.importance.shape[0])
    present = members < state.importance.shape[0]
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    trust, mean = trust_of(state), mean_memory(state)
    stored = _stored(state, members)
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
    after = _remember(after, members, absence, (fresh, stored))
    return moved, _fade(after, (absence > 0).any())


def _newcomers(state: Memory, shares: Any, absence: Any, rows: Params) -> tuple[Any, Any, Params]:
    """Return what the mean replaces, the importance never seen, and the memories in effect.

    Trust that is given extends to clients never seen, whose memories the mean replaces. Trust that
    is learnt does not: nothing replaces them, and these clients are assumed to share the whole
    innovation.
    """
    import jax
    import jax.numpy as jnp

    heard = state.evidence.heard
    learns = _learns(state)
    new = jnp.where(absence > 0, 0.0, shares).sum()
    unheard = jnp.where(learns, jnp.maximum(1.0 - heard - new, 0.0), 0.0)
    hidden = learns & (absence == 0)
    old = jax.tree.map(lambda row: jnp.where(along(hidden, row), 0.0, row), rows)
    return jnp.where(learns, heard, 1.0), unheard, old


def _memory_of(state: Memory, clients: Any, mean: Params) -> tuple[Params, Any]:
    """Return the clients' memories, and their absences in rounds; 0 for those never seen."""
    import jax
    import jax.numpy as jnp

    seen = state.evidence.seen.at[clients].get(mode="fill", fill_value=0)
    fills = (seen == 0) & _shares(state)
    rows = jax.tree.map(
        lambda row, middle: jnp.where(_before(fills, middle), middle, row),
        _stored(state, clients),
        mean,
    )
    return rows, jnp.where(seen > 0, state.evidence.rounds + 1 - seen, 0)


def _stored(state: Memory, clients: Any) -> Params:
    """Return the clients' rows as far as they have not faded; zero for clients never seen."""
    import jax

    left = share_left(state.evidence, clients)
    return jax.tree.map(
        lambda row, middle: _before(left, middle) * row, pick(state.last, clients), state.total
    )


def _before(values: Any, leaf: Any) -> Any:
    """Return one value per client, or one client's value, shaped to broadcast with a leaf."""
    return values.reshape(*values.shape, *[1] * leaf.ndim)


def _learn(state: Memory, members: Any, absence: Any, pair: tuple[Params, Params]) -> Memory:
    """Return the memory updated with the evidence of the returning clients."""
    import jax.numpy as jnp

    fresh, old = pair
    state = state._replace(evidence=with_absences(state.evidence, absence))
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    products = jnp.stack([_products(fresh, old), _products(fresh, fresh), _products(old, old)])
    gain = _gain(state, absence)
    taught = learn(state.evidence, members, shares, absence, gain, products)
    return state._replace(evidence=taught)


def _gain(state: Memory, absence: Any) -> Any:
    """Return γ_i = s_i/(s_i + c), 1 the first time."""
    import jax.numpy as jnp

    slow = _given_or(state.constants.damping, learnt_damping(state.evidence))
    return jnp.where(absence > 0, absence / (absence + slow), 1.0).astype(slow.dtype)


def _remember(state: Memory, members: Any, absence: Any, pair: tuple[Params, Params]) -> Memory:
    """Return the memory updated with part of each innovation, all of it the first time."""
    import jax

    fresh, stored = pair
    gain = _gain(state, absence)
    news = minus(fresh, stored)
    shares = state.importance.at[members].get(mode="fill", fill_value=0)
    total = plus(state.total, weighted(shares * gain, news))
    rows = jax.tree.map(lambda row, new: row + along(gain, row) * new, stored, news)
    return state._replace(last=put(state.last, members, rows), total=total)


def _fade(state: Memory, returned: Any) -> Memory:
    """Return the memory for the next round.

    Memories fade only if trust is learnt: the fixed points of the other rules must not depend on
    the path to them.
    """
    import jax.numpy as jnp

    evidence = state.evidence
    rate = jnp.where(returned & _learns(state), fading(evidence), 0.0)
    faded = evidence._replace(faded=evidence.faded + rate)
    return state._replace(evidence=faded, total=scaled(jnp.exp(-rate), state.total))


def _products(left: Params, right: Params) -> Any:
    """Return the inner products of the rows of two tables, shape (length,)."""
    import jax
    import jax.numpy as jnp

    parts = jax.tree.map(lambda a, b: (a * b).reshape(a.shape[0], -1).sum(axis=1), left, right)
    return jnp.stack(jax.tree.leaves(parts)).sum(axis=0)
