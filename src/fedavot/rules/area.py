"""AREA: the importance-weighted mean of the models in which clients' local steps last ended.

    θ ← θ + Σ_{i∈S} p_i (θ_i − y_i),   then y_i ← θ_i for i ∈ S

θ_i is where client i's local steps end, and y_i where they ended the last time, at first the first
model; so θ = Σ p_i y_i. MIFA remembers updates, which θ moves along, and AREA whole models: a
client that is away holds θ near the model that it left. The bias vanishes if every client keeps
returning, whatever the law. The rule knows the importance, and each client keeps its own model. A
round in which no client reports changes nothing.

The published rule is asynchronous: a buffer of any size triggers the step, and a client starts from
the model that it was sent when it last reported. Here the buffer is the round's cohort, which
starts from the current model. It is for p_i = 1/N; here 1/N is replaced by p_i.

Source: Iakovidou & Kim, *Asynchronous federated stochastic optimization for heterogeneous
objectives under arbitrary delays*, arXiv 2405.10123, 2024; the steps are those of the program in
github.com/chariako/asynchronous_federated_learning_simulation.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
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
    put,
    weighted,
)
from fedavot.rules.names import RuleName


def area(importance: ArrayLike) -> Rule:
    """Return AREA.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return Rule(
        RuleName.AREA,
        "importance",
        "one model per client, on the client",
        by_cohort(lambda cohort: shares[cohort]),
        aggregate,
        init=first_models,
        remembers=True,
        moves=False,
        n_clients=shares.size,
    )


def first_models(params: Params, n_clients: int) -> Params:
    """Return y_i before the first round, with a leading axis of clients."""
    return plus(one_each(params, n_clients), params)


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Exchange the members' last models for their new ones."""
    ended = plus(report.updates, params)
    change = weighted(report.weights, minus(ended, pick(state, report.members)))
    return plus(params, change), put(state, report.members, ended)
