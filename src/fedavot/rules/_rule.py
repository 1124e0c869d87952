"""The definition of an aggregation rule: which clients it asks, and how it combines updates.

A round has two halves. `choose` decides, from the cohorts alone, which clients train and with which
weights: from an alignment, an inverse probability, or a random draw. `aggregate` turns their
updates Δ_i = θ_i − θ into the next model. The state is what the next round needs. Everything that
`aggregate` depends on is in its arguments, so it is a pure function, and one compiled program
serves every rule that shares it.

`start`, `correct` and `proximal` are for rules that change local training: the model a client
starts from, a correction added to each of its gradients, and the strength of a proximal term.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.errors import RuleError

Params = Any
"""A model: any pytree of arrays."""

State = Any
"""What a rule keeps from round to round: any pytree of arrays."""


class Asked(NamedTuple):
    """The clients that train in one round, and the weights of their updates.

    For all rounds at once, if each asks as many clients, both arrays have one row per round.

    Parameters
    ----------
    members : int64 array of shape (n_asked,), or (n_rounds, n_asked)
        Distinct clients.
    weights : float array of the same shape
        Weights of their updates; they need not sum to one.
    """

    members: Integers
    weights: Floats


class Report(NamedTuple):
    """What the clients send back in one round.

    Rounds are padded to equal length. Absent places hold the client number n_clients, which a
    scatter with ``mode="drop"`` ignores, weight 0 and update 0.
    """

    members: Any
    """Clients that trained, shape (length,)."""
    weights: Any
    """Their weights, from `Rule.choose`, shape (length,)."""
    updates: Params
    """θ_i − θ at the client's start, each leaf with a leading axis of that length."""
    losses: Any
    """f_i at the client's start, shape (length,); None unless the rule needs losses."""
    step: Any
    """The local step size of this round."""
    local_steps: int
    """Number of local steps each client took."""


Cohorts = Sequence[Integers]
Choose = Callable[[Cohorts, np.random.Generator], list[Asked] | Asked]
Aggregate = Callable[[Params, State, Report], tuple[Params, State]]


def no_state(params: Params, n_clients: int) -> State:
    """Return the state of a rule that keeps nothing."""
    return ()


@dataclass(frozen=True, eq=False)
class Rule:
    """An aggregation rule.

    Attributes
    ----------
    name : str
        A `RuleName` for the library's own rules, otherwise any text.
    knows : str
        What the rule assumes to be known, in a few words.
    stores : str
        What the server or the clients keep between rounds.
    choose : function of (cohorts, rng)
        Returns a list with one `Asked` for every cohort, in order, or a single `Asked` with one row
        per cohort. A cohort may be empty, and so may the clients asked: the model then stays
        unchanged.
    aggregate : function of (params, state, report)
        The next model and state. A module-level function: compiled programs are cached by it.
    init : function of (params, n_clients)
        The state before the first round.
    start : function of (params, state, client), optional
        The model a client starts from; the global model if None.
    correct : function of (params, state, client), optional
        What is added to each local gradient.
    proximal : float
        μ of a term μ/2 ‖θ − start‖² in the local objective.
    needs_losses : bool
        Whether `aggregate` weights updates by the report's losses.
    n_clients : int, optional
        Number of clients the rule was made for; None if it serves any number.
    remembers : bool
        Whether updates of earlier rounds enter a round's aggregate, besides those it weights.
    moves : bool
        Whether `aggregate` adds a change to the model, which a server step can scale.
    """

    name: str
    knows: str
    stores: str
    choose: Choose
    aggregate: Aggregate
    init: Callable[[Params, int], State] = no_state
    start: Callable[[Params, State, Any], Params] | None = None
    correct: Callable[[Params, State, Any], Params] | None = None
    proximal: float = 0.0
    needs_losses: bool = False
    remembers: bool = False
    moves: bool = True
    n_clients: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise RuleError(f"a rule's name is {self.name!r}; it must be text")
        for part in ("choose", "aggregate", "init"):
            if not callable(getattr(self, part)):
                raise RuleError(
                    f"{part} of rule {str(self.name)!r} is {getattr(self, part)!r}; it must be a "
                    "function"
                )

    def __repr__(self) -> str:
        clients = "" if self.n_clients is None else f", {self.n_clients:,} clients"
        return f"Rule({str(self.name)!r}{clients})"

    @property
    def has_gap(self) -> bool:
        """Whether the mean weights of updates are the objective that the rule optimises."""
        return not (self.needs_losses or self.remembers)


REMEMBERED = 1 << 20
"""Number of entries of cohorts whose weights a rule caches, if all are as large as the last."""


def by_cohort(weigh: Callable[[Integers], Floats]) -> Choose:
    """Return a choice that asks the members of positive weight, independently of earlier rounds.

    Parameters
    ----------
    weigh : function of a cohort
        Returns its members' weights, in order. Weights of repeated cohorts, also in another run,
        are not recomputed, unless more than `REMEMBERED` came in between.
    """
    known: dict[bytes, Asked] = {}

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        asked = []
        for cohort in cohorts:
            key = cohort.tobytes()
            found = known.get(key)
            if found is None:
                if len(known) * cohort.size >= REMEMBERED:
                    known.clear()
                found = trained(cohort, weigh(cohort) if cohort.size else np.zeros(0))
                known[key] = found
            asked.append(found)
        return asked

    return choose


def equal_weights(cohort: Integers) -> Floats:
    """Return 1/|S| for every member, shape (n_members,)."""
    return np.full(cohort.size, 1.0 / cohort.size)


def scaled_importance(shares: Floats) -> Callable[[Integers], Floats]:
    """Return weights N p_i/|S|: p on average, if clients take part equally often."""
    return lambda cohort: shares.size / cohort.size * shares[cohort]


def trained(members: Integers, weights: Floats) -> Asked:
    """Leave out the members whose weight is zero, as their updates would not be used."""
    kept = weights != 0
    return Asked(members[kept], weights[kept])


def add_updates(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Aggregate without memory: θ ← θ + Σ w_i Δ_i.

    If the weights sum to one, this is Σ w_i θ_i.
    """
    return plus(params, weighted(report.weights, report.updates)), state


WRITTEN_OUT = 4
"""Largest number of clients in a round for which compiled programs unroll the sum."""


def weighted(weights: Any, updates: Params) -> Params:
    """Return Σ w_i Δ_i, leaf by leaf."""
    import jax
    import jax.numpy as jnp

    if weights.shape[0] <= WRITTEN_OUT:
        # Unlike a matrix product, a few terms are fused with the operations before and after.
        terms = range(weights.shape[0])
        return jax.tree.map(lambda leaf: sum(weights[k] * leaf[k] for k in terms), updates)
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), updates)


def plus(left: Params, right: Params) -> Params:
    """Return left + right, leaf by leaf."""
    import jax

    return jax.tree.map(lambda a, b: a + b, left, right)


def minus(left: Params, right: Params) -> Params:
    """Return left − right, leaf by leaf."""
    import jax

    return jax.tree.map(lambda a, b: a - b, left, right)


def scaled(factor: Any, tree: Params) -> Params:
    """Return factor · tree, leaf by leaf."""
    import jax

    return jax.tree.map(lambda leaf: factor * leaf, tree)


def precision(params: Params) -> Any:
    """Return the type of a model's entries, which all its leaves share."""
    import jax

    return jax.tree.leaves(params)[0].dtype


def zeros_like(params: Params) -> Params:
    """Return a model of zeros."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(jnp.zeros_like, params)


def one_each(params: Params, n_clients: int) -> Params:
    """Return one model of zeros per client, each leaf with a leading axis of clients."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.zeros((n_clients, *leaf.shape), leaf.dtype), params)


def pick(table: Params, members: Any) -> Params:
    """Return the members' rows of a table of models; absent places get an arbitrary row."""
    import jax

    return jax.tree.map(lambda leaf: leaf.at[members].get(mode="clip"), table)


def along(values: Any, leaf: Any) -> Any:
    """Return one value per row, shaped to be combined with a leaf of a table."""
    return values.reshape(-1, *[1] * (leaf.ndim - 1))


def put(table: Params, members: Any, rows: Params) -> Params:
    """Return the table with the members' rows replaced; absent places are left alone."""
    import jax

    return jax.tree.map(lambda leaf, row: leaf.at[members].set(row, mode="drop"), table, rows)
