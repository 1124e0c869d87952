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
from fedavot.rules._trees import Params, plus, weighted

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

    Attributes
    ----------
    members : int array of shape (length,)
        Clients that trained.
    weights : float array of shape (length,)
        Their weights, from `Rule.choose`.
    updates : pytree
        θ_i − θ at the client's start, each leaf with a leading axis of that length.
    losses : float array of shape (length,)
        f_i at the client's start; None unless the rule needs losses.
    step : float
        The local step size of this round.
    local_steps : int
        Number of local steps each client took.
    """

    members: Any
    weights: Any
    updates: Params
    losses: Any
    step: Any
    local_steps: int


Cohorts = Sequence[Integers]
Weigh = Callable[[Integers], Floats]
ON_CLIENTS = "one model per client, on the client"
"""What some of these rules store."""
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
            if not callable(made := getattr(self, part)):
                raise RuleError(f"{part} of rule {self.name!r} is {made!r}; it must be a function")

    def __repr__(self) -> str:
        clients = "" if self.n_clients is None else f", {self.n_clients:,} clients"
        return f"Rule({str(self.name)!r}{clients})"

    @property
    def has_gap(self) -> bool:
        """Whether the mean weights of updates are the objective that the rule optimises."""
        return not (self.needs_losses or self.remembers)


def add_updates(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Aggregate without memory: θ ← θ + Σ w_i Δ_i.

    If the weights sum to one, this is Σ w_i θ_i.
    """
    return plus(params, weighted(report.weights, report.updates)), state
