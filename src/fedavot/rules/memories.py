"""Rivals that remember something of absent clients: updates, gradients or models.

Each is published for p_i = 1/N; here 1/N is replaced by p_i. y_i is client i's last update, zero
before the first; it is kept per unit of step size, so that it stays right when steps change. These
rules know the importance and store one model per client. A round in which no client reports changes
nothing. MIFA, FedVARP, FedStale and SCAFFOLD are points of the family in `_memory`.

**MIFA** moves by the last update of every client, in every round:

    y_i ← Δ_i/η for i ∈ S,   then θ ← θ + Σ_i p_i η y_i

If every client reports again within bounded time the bias vanishes, whatever the law. A running
total keeps a round's cost at |S| models, not N. In the paper every client takes part in the first
round. Here memories start at zero: until a client has taken part, the objective leaves it out, and
early steps are shorter by its importance.

Source: Gu, Huang, Zhang & Huang, *Fast federated learning in the presence of arbitrary device
unavailability*, NeurIPS 2021, Algorithm 1.

**FedVARP** corrects every client's last update by the new updates of the participants:

    θ ← θ + Σ_i p_i η y_i + (1/|S|) Σ_{i∈S} N p_i (Δ_i − η y_i),   then y_i ← Δ_i/η for i ∈ S

The expected change is that of full participation if every client takes part equally often: the
memory removes the variance of partial participation, not the bias of uneven availability. CA²FL
(Wang et al., ICLR 2024) is this rule with a server step where a cohort arrives together and
importance is equal.

Source: Jhunjhunwala, Sharma, Nagarkatti & Joshi, *FedVARP: tackling the variance due to partial
client participation in federated learning*, UAI 2022, Algorithm 2, with server step 1.

**FedStale** weights fresh updates by inverse probability, and stale ones separately:

    θ ← θ + β Σ_i p_i η y_i + Σ_{i∈S} (p_i/π_i) (Δ_i − β η y_i),   then y_i ← Δ_i/η for i ∈ S

π_i = P(i ∈ S) must be known. The expected change is that of full participation for every β: β = 0
is Horvitz–Thompson, β = 1 FedVARP with inverse-probability weights. A small β helps if some clients
return so rarely that their updates are stale.

Source: Rodio & Neglia, *FedStale: leveraging stale client updates in federated learning*, ECAI 2024
(arXiv 2405.04171), with server step 1.

**SCAFFOLD** corrects local gradients by control variates:

    clients step along ∇f_i(ϑ) − c_i + c,   θ ← θ + (1/|S|) Σ_{i∈S} N p_i Δ_i,
    c_i⁺ = c_i − c − Δ_i/(H η),   c ← c + Σ_{i∈S} p_i (c_i⁺ − c_i)

c_i estimates client i's gradient and c = Σ p_i c_i that of the objective, so that every client
steps along the common objective. One model is on each client and one on the server; c_i and c start
at zero. It assumes that clients are sampled uniformly: the weights N p_i/|S| sum to one only on
average, and only if clients take part equally often.

Source: Karimireddy, Kale, Mohri, Reddi, Stich & Suresh, *SCAFFOLD: stochastic controlled averaging
for federated learning*, ICML 2020, Algorithm 1, option II, with server step 1.

In **FOCUS** clients push the change of their gradients, and the server sums these up:

    clients step along ∇f_i(ϑ) − g_i,   g_i⁺ = the mean of their gradients in this round,
    Y ← Y + Σ_{i∈S} p_i (g_i⁺ − g_i),   θ ← θ − H η Y,   g_i ← g_i⁺ for i ∈ S

Y is Σ p_i g_i, the sum of the last known gradients of all clients, in one model on the server; each
client keeps g_i, which starts at zero. The bias vanishes if every client returns within bounded
time, whatever the law. Without its correction of the local steps the rule would be MIFA. Here
g_i⁺ − g_i is recovered from the update as −Δ_i/(H η). With one local step this is the published
rule, and the model moves as if all clients had taken part. With more steps, the paper pushes the
last gradient of a round instead of their mean, and moves by η Y instead of H η Y, which
``server_step`` changes. The published rule sums without weights.

Source: Ying, Li & Yang, *Exact and linear convergence for federated learning under arbitrary client
participation is attainable*, NeurIPS 2025 (arXiv 2503.20117).

**AREA** takes the mean of the models in which clients' local steps last ended:

    θ ← θ + Σ_{i∈S} p_i (θ_i − y_i),   then y_i ← θ_i for i ∈ S

θ_i is where client i's local steps end, and y_i where they ended the last time, at first the first
model; so θ = Σ p_i y_i. MIFA remembers updates, which θ moves along, and AREA whole models: a
client that is away holds θ near the model that it left. The bias vanishes if every client keeps
returning, whatever the law. The published rule is asynchronous: a buffer of any size triggers the
step, and a client starts from the model that it was sent when it last reported. Here the buffer is
the round's cohort, which starts from the current model.

Source: Iakovidou & Kim, *Asynchronous federated stochastic optimization for heterogeneous
objectives under arbitrary delays*, arXiv 2405.10123, 2024; the steps are those of the program in
github.com/chariako/asynchronous_federated_learning_simulation.
"""

import dataclasses
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

import fedavot.rules._trees as tree
from fedavot.rules._history import Constants
from fedavot.rules._memory import aggregate, remembering
from fedavot.rules._rule import ON_CLIENTS, Report, Rule, State
from fedavot.rules._trees import Params, jax, jnp
from fedavot.rules._weights import as_part, as_shares, by_cohort, scaled_importance, weighing
from fedavot.rules.inverse_probability import KNOWN, inverse_inclusion

PUBLISHED = Constants(trust=1.0, expires=False)
"""The constants of MIFA and FedVARP."""


def mifa(importance: ArrayLike) -> Rule:
    """Return MIFA: aggregation with memory, with the importance as weights of new updates.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return remembering("mifa", "importance", by_cohort(shares.take), shares, PUBLISHED)


def fedvarp(importance: ArrayLike) -> Rule:
    """Return FedVARP: aggregation with memory, with the weights of FedAvg(K) for new updates.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    choose = by_cohort(scaled_importance(shares))
    return remembering("fedvarp", "importance", choose, shares, PUBLISHED)


def fedstale(importance: ArrayLike, inclusion: ArrayLike | None, *, trust: float = 0.5) -> Rule:
    """Return FedStale.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        Importance of each client, and the probability that it takes part.
    trust : float
        β, from 0 to 1: the weight of stale updates, which the paper tunes.
    """
    shares, ratios = inverse_inclusion("fedstale", importance, inclusion)
    constants = PUBLISHED._replace(trust=as_part(trust, what="trust"))
    return remembering("fedstale", KNOWN, by_cohort(ratios.take), shares, constants)


def scaffold(importance: ArrayLike) -> Rule:
    """Return SCAFFOLD.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    choose, constants = by_cohort(scaled_importance(shares)), PUBLISHED._replace(correction=1.0)
    rule = remembering("scaffold", "importance", choose, shares, constants)
    return dataclasses.replace(rule, aggregate=renew_controls)


def renew_controls(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates, and compute the next control variates from them."""
    memory = aggregate(params, state, report)[1]
    return tree.plus(params, tree.weighted(report.weights, report.updates)), memory


class Pushes(NamedTuple):
    """The gradients g_i that clients last pushed, by client, and their sum Y."""

    own: Params
    total: Params


def focus(importance: ArrayLike) -> Rule:
    """Return FOCUS.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)

    def init(params: Params, n_clients: int) -> Pushes:
        return Pushes(tree.one_each(params, n_clients), tree.zeros_like(params))

    hooks = {"aggregate": push, "init": init, "correct": less_own}
    return weighing("focus", shares, stores=ON_CLIENTS, remembers=True, **hooks)


def less_own(params: Params, state: State, client: Any) -> Params:
    """Return −g_i."""
    return tree.scaled(-1.0, tree.pick(state.own, client))


def push(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add up the pushed changes, and step along the sum."""
    span = report.local_steps * report.step
    news = tree.scaled(-1.0 / span, report.updates)
    total = tree.plus(state.total, tree.weighted(report.weights, news))
    gradients = tree.plus(tree.pick(state.own, report.members), news)
    own = tree.put(state.own, report.members, gradients)
    someone = (report.members < jax.tree.leaves(own)[0].shape[0]).any()
    moved = tree.plus(params, tree.scaled(jnp.where(someone, -span, 0.0), total))
    return moved, Pushes(own, total)


def area(importance: ArrayLike) -> Rule:
    """Return AREA.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    parts = {"aggregate": exchange_models, "init": first_models, "stores": ON_CLIENTS}
    return weighing("area", as_shares(importance), remembers=True, moves=False, **parts)


def first_models(params: Params, n_clients: int) -> Params:
    """Return y_i before the first round, with a leading axis of clients."""
    return tree.plus(tree.one_each(params, n_clients), params)


def exchange_models(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Exchange the members' last models for their new ones."""
    models = tree.plus(report.updates, params)
    change = tree.minus(models, tree.pick(state, report.members))
    moved = tree.plus(params, tree.weighted(report.weights, change))
    return moved, tree.put(state, report.members, models)
