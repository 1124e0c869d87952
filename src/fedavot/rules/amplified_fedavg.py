"""Amplified FedAvg: the change over P rounds is amplified at their end.

    θ ← θ + (1/|S|) Σ_{i∈S} N p_i Δ_i,   after every P-th round θ ← θ + (a − 1) u

u is the sum of the changes of the last P rounds, so that together they count a times. Over a period
in which all clients take part equally often, u is a step for the whole objective, while single
rounds serve the clients that happen to be present: small local steps with a large a follow the
former. The rule knows the importance and stores one model. Rounds in which no client reports count
as rounds; if one of them is the P-th, the period is amplified all the same.

The published rule has weights that sum to one over a round, and assumes that importance is part of
the clients' losses; here each update is multiplied by N p_i, as those losses would do.

Source: Wang & Ji, *A unified analysis of federated learning with arbitrary client participation*,
NeurIPS 2022, Algorithm 1. The defaults are those of the program of Crawshaw & Liu (2024).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import as_amount, as_size
from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    add_updates,
    by_cohort,
    minus,
    plus,
    precision,
    scaled,
    scaled_importance,
    zeros_like,
)
from fedavot.rules.names import RuleName


class Period(NamedTuple):
    """The rounds of a period so far, and the change over them."""

    length: Any
    """P."""
    amplification: Any
    """a."""
    rounds: Any
    change: Params
    """u."""


def amplified_fedavg(
    importance: ArrayLike, *, period: int = 20, amplification: float = 2.0
) -> Rule:
    """Return amplified FedAvg.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    period : int
        P, at least 1: number of rounds after which availability repeats.
    amplification : float
        a, above 0; 1 amplifies nothing.
    """
    shares = as_shares(importance)
    begin = first_period(period, amplification)
    return Rule(
        RuleName.AMPLIFIED_FEDAVG,
        "importance",
        "one model",
        by_cohort(scaled_importance(shares)),
        aggregate,
        init=lambda params, n_clients: begin(params),
        n_clients=shares.size,
    )


def first_period(period: int, amplification: float) -> Callable[[Params], Period]:
    """Return a function of the model to the state at the start of the first period."""
    length = as_size(period, what="period", low=1)
    factor = as_amount(amplification, what="amplification", positive=True)

    def begin(params: Params) -> Period:
        import jax.numpy as jnp

        amplified = jnp.asarray(factor, dtype=precision(params))
        return Period(jnp.asarray(length), amplified, jnp.asarray(0), zeros_like(params))

    return begin


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates; at the end of a period, repeat its changes."""
    moved, period, _ = amplified(params, add_updates(params, (), report)[0], state)
    return moved, period


def amplified(params: Params, moved: Params, period: Period) -> tuple[Params, Period, Any]:
    """Return the model after a round, the period so far, and whether it has just ended."""
    import jax.numpy as jnp

    change = plus(period.change, minus(moved, params))
    ended = period.rounds + 1 >= period.length
    moved = plus(moved, scaled(jnp.where(ended, period.amplification - 1.0, 0.0), change))
    rounds = jnp.where(ended, 0, period.rounds + 1)
    left = scaled(jnp.where(ended, 0.0, 1.0), change)
    return moved, period._replace(rounds=rounds, change=left), ended
