"""A server's step and optimiser, on top of any rule's change of the model: FedAvgM and FedAdam.

    Δ = the inner rule's θ⁺ − θ
    momentum: v ← m v + (1 − m) Δ,   θ ← θ + s v
    Adam:     v ← β₁ v + (1 − β₁) Δ,   u ← β₂ u + (1 − β₂) Δ²,   θ ← θ + s v/(√u + ε)

s is the server's step. FedAvgM and FedAdam are the average by importance with these optimisers.
v starts at zero and u at ε², without bias correction, as published. Hsu et al. have v ← m v + Δ:
their step s is s/(1 − m) here, where a step means the same for every momentum. A round in which no
client reports leaves the model and the optimiser unchanged. The server stores one model for
momentum and two for Adam, in addition to what the inner rule stores.

The inner rule must move the model by a change, as all rules do except fedavg-k, which scales the
model itself, and fedawe and area, which average models that the clients hold.

Source: Hsu, Qi & Brown, *Measuring the effects of non-identical data distribution for federated
visual classification*, arXiv 1909.06335, 2019 (FedAvgM); Reddi, Charles, Zaheer, Garrett, Rush,
Konečný, Kumar & McMahan, *Adaptive federated optimization*, ICLR 2021, Algorithm 2 (FedAdam).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

import fedavot.rules._trees as tree
from fedavot._checks import as_amount, shown
from fedavot.errors import OptionError, RuleError
from fedavot.rules._inputs import as_part
from fedavot.rules._rule import Aggregate, Report, Rule, State
from fedavot.rules._trees import Params, jnp
from fedavot.rules.averages import importance_average


class Server(NamedTuple):
    """The state of the inner rule, a `Momentum` or `Adam`, and the number of clients."""

    inner: State
    optimiser: Any
    n_clients: Any


class Momentum(NamedTuple):
    """s, m and v. They are arrays, so that one compiled program serves all values."""

    step: Any
    momentum: Any
    velocity: Params


class Adam(NamedTuple):
    """s, β₁, β₂, ε, v and u."""

    step: Any
    momentum: Any
    decay: Any
    epsilon: Any
    velocity: Params
    square: Params


Optimise = Callable[[Params, Params, Any], tuple[Params, Any]]


def with_server(rule: Rule, *, step: float = 1.0, momentum: float = 0.0) -> Rule:
    """Return a rule with a server step and momentum.

    Parameters
    ----------
    rule : Rule
        The inner rule: which clients to ask, and the change of the model.
    step : float
        s, above 0: how far the model moves along the change.
    momentum : float
        m, at least 0 and below 1: how much of the average change is kept from round to round.
    """
    size = as_amount(step, what="step", positive=True)
    part = as_part(momentum, what="momentum", below_one=True)

    def begin(params: Params) -> Momentum:
        return Momentum._make([*tree.arrays(params, size, part), tree.zeros_like(params)])

    return _on_server(rule, move, begin, "one model")


def with_adam(
    rule: Rule,
    *,
    step: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.99),
    epsilon: float = 1e-3,
) -> Rule:
    """Return a rule with Adam on the server.

    Parameters
    ----------
    rule : Rule
        The inner rule: which clients to ask, and the change of the model.
    step : float
        s, above 0. The paper tunes it over powers of ten.
    betas : pair of float
        β₁ and β₂, each at least 0 and below 1.
    epsilon : float
        ε, above 0: entries of the change below it move the model less.
    """
    size = as_amount(step, what="step", positive=True)
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise OptionError(f"betas is {shown(betas)}; it must be a pair of numbers")
    first, second = (as_part(beta, what="a beta", below_one=True) for beta in betas)
    least = as_amount(epsilon, what="epsilon", positive=True)

    def begin(params: Params) -> Adam:
        square = tree.each(lambda leaf: jnp.full_like(leaf, least**2), params)
        constants = tree.arrays(params, size, first, second, least)
        return Adam._make([*constants, tree.zeros_like(params), square])

    return _on_server(rule, adapt, begin, "two models")


def fedavgm(
    importance: ArrayLike, *, server_step: float = 1.0, server_momentum: float = 0.9
) -> Rule:
    """Return FedAvgM: the average by importance with momentum on the server.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    server_step, server_momentum : float
        The step and momentum of `with_server`.
    """
    rule = with_server(importance_average(importance), step=server_step, momentum=server_momentum)
    return dataclasses.replace(rule, name="fedavgm")


def fedadam(
    importance: ArrayLike,
    *,
    server_step: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.99),
    epsilon: float = 1e-3,
) -> Rule:
    """Return FedAdam: the average by importance with Adam on the server.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    server_step, betas, epsilon
        The step, betas and epsilon of `with_adam`.
    """
    inner = importance_average(importance)
    rule = with_adam(inner, step=server_step, betas=betas, epsilon=epsilon)
    return dataclasses.replace(rule, name="fedadam")


def move(params: Params, change: Params, optimiser: Momentum) -> tuple[Params, Momentum]:
    """Move the model along the mean of its changes so far."""
    velocity = _mean(optimiser.momentum, optimiser.velocity, change)
    moved = tree.plus(params, tree.scaled(optimiser.step, velocity))
    return moved, optimiser._replace(velocity=velocity)


def adapt(params: Params, change: Params, optimiser: Adam) -> tuple[Params, Adam]:
    """Move each entry of the model in proportion to its own changes so far."""
    velocity = _mean(optimiser.momentum, optimiser.velocity, change)
    square = _mean(optimiser.decay, optimiser.square, tree.each(jnp.square, change))
    moved = tree.each(
        lambda leaf, v, u: leaf + optimiser.step * v / (jnp.sqrt(u) + optimiser.epsilon),
        *(params, velocity, square),
    )
    return moved, optimiser._replace(velocity=velocity, square=square)


def _mean(part: Any, mean: Params, latest: Params) -> Params:
    return tree.plus(tree.scaled(part, mean), tree.scaled(1.0 - part, latest))


def _on_server(rule: Rule, optimise: Optimise, begin: Callable[[Params], Any], stores: str) -> Rule:
    """Return the rule with its change passed to an optimiser."""
    if not rule.moves:
        raise RuleError(
            f"rule {rule.name!r} does not move the model by a change, so there is nothing for a "
            "server step or momentum to act on; use it without, or another rule"
        )

    def init(params: Params, n_clients: int) -> Server:
        return Server(rule.init(params, n_clients), begin(params), jnp.asarray(n_clients))

    return dataclasses.replace(
        rule,
        stores=stores if rule.stores == "nothing" else f"{rule.stores}; {stores} on the server",
        aggregate=_optimised(rule.aggregate, optimise),
        init=init,
        start=_inside(rule.start),
        correct=_inside(rule.correct),
    )


@functools.cache
def _optimised(aggregate: Aggregate, optimise: Optimise) -> Aggregate:
    """Return the aggregation on the server, one function for each pair."""

    def aggregate_on_server(params: Params, state: State, report: Report) -> tuple[Params, State]:
        proposed, inner = aggregate(params, state.inner, report)
        moved = optimise(params, tree.minus(proposed, params), state.optimiser)
        someone = (report.members < state.n_clients).any()
        before = params, state.optimiser
        after, optimiser = tree.each(lambda new, old: jnp.where(someone, new, old), moved, before)
        return after, Server(inner, optimiser, state.n_clients)

    return aggregate_on_server


@functools.cache
def _inside(hook: Callable[..., Params] | None) -> Callable[..., Params] | None:
    """Return a rule's `start` or `correct`, for the state on the server."""
    return hook and (lambda params, state, client: hook(params, state.inner, client))
