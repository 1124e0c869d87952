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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

import fedavot.rules._trees as tree
from fedavot._checks import as_amount, shown
from fedavot.errors import OptionError, RuleError
from fedavot.rules._rule import Aggregate, Report, Rule, State
from fedavot.rules._trees import Params, jnp
from fedavot.rules._weights import as_part
from fedavot.rules.averages import importance_average

Means = tuple[Params, ...]
Moved = tuple[Params, Means]
Optimise = Callable[[Params, Params, Sequence[Any], Means], Moved]


class Server(NamedTuple):
    """The state of the inner rule and of the optimiser, and the number of clients.

    Constants are s and m, or s, β₁, β₂ and ε, and means are v, or v and u. Constants are arrays, so
    that one compiled program serves all values.
    """

    inner: State
    constants: Sequence[Any]
    means: Means
    n_clients: Any


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
    constants = (size, as_part(momentum, what="momentum", below_one=True))
    return _on_server(rule, move, constants, "one model")


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
    return _on_server(rule, adapt, (size, first, second, least), "two models")


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


def move(params: Params, change: Params, constants: Sequence[Any], means: Means) -> Moved:
    """Move the model along the mean of its changes so far."""
    step, momentum = constants
    velocity = _mean(momentum, means[0], change)
    return tree.plus(params, tree.scaled(step, velocity)), (velocity,)


def adapt(params: Params, change: Params, constants: Sequence[Any], means: Means) -> Moved:
    """Move each entry of the model in proportion to its own changes so far."""
    step, momentum, decay, epsilon = constants
    velocity = _mean(momentum, means[0], change)
    square = _mean(decay, means[1], tree.each(jnp.square, change))
    moved = tree.each(
        lambda leaf, v, u: leaf + step * v / (jnp.sqrt(u) + epsilon), params, velocity, square
    )
    return moved, (velocity, square)


def _mean(part: Any, mean: Params, latest: Params) -> Params:
    return tree.plus(tree.scaled(part, mean), tree.scaled(1.0 - part, latest))


def _on_server(rule: Rule, optimise: Optimise, constants: Sequence[float], stores: str) -> Rule:
    """Return the rule with its change passed to an optimiser."""
    if not rule.moves:
        raise RuleError(
            f"rule {rule.name!r} does not move the model by a change, so there is nothing for a "
            "server step or momentum to act on; use it without, or another rule"
        )

    def init(params: Params, n_clients: int) -> Server:
        values = tree.arrays(params, *constants)
        means: Means = (tree.zeros_like(params),)
        if optimise is adapt:
            means += (tree.each(lambda leaf: jnp.full_like(leaf, constants[-1] ** 2), params),)
        return Server(rule.init(params, n_clients), values, means, jnp.asarray(n_clients))

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
        change, before = tree.minus(proposed, params), (params, state.means)
        moved = optimise(params, change, state.constants, state.means)
        someone = (report.members < state.n_clients).any()
        after, means = tree.each(lambda new, old: jnp.where(someone, new, old), moved, before)
        return after, state._replace(inner=inner, means=means)

    return aggregate_on_server


@functools.cache
def _inside(hook: Callable[..., Params] | None) -> Callable[..., Params] | None:
    """Return a rule's `start` or `correct`, for the state on the server."""
    return hook and (lambda params, state, client: hook(params, state.inner, client))
