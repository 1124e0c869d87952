"""q-FedAvg, for q-fair federated learning: the larger a client's loss, the more it counts.

    θ ← θ − Σ_{i∈S} p_i Δ'_i / Σ_{i∈S} p_i h_i,   Δ'_i = −L f_i^q Δ_i,
    h_i = q f_i^{q−1} ‖L Δ_i‖² + L f_i^q,   L = 1/η

It minimises Σ p_i f_i^{q+1}/(q+1); h_i bounds the curvature of a term, so that one step size
serves every q. q = 0 is the average by importance. The rule knows the importance, needs each
client's loss at the model it starts from, and stores nothing. Losses must not be negative; a loss
of zero counts as 1e-10, which the authors' program adds to every loss.

The paper samples clients by p and sums without weights. Here availability decides which clients
take part, so the terms are weighted by p_i; for p_i = 1/N this is the published sum. The mean
weights that a run reports are these p_i, before losses are taken into account.

Source: Li, Sanjabi, Beirami & Smith, *Fair resource allocation in federated learning*, ICLR 2020,
Algorithm 2.
"""

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import as_amount
from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    plus,
    precision,
    scaled,
    weighted,
)
from fedavot.rules.names import RuleName

LEAST_LOSS = 1e-10
"""Replaces a loss of zero, for which f^{q−1} is infinite if q < 1."""


class Fairness(NamedTuple):
    """The exponent q."""

    q: Any


def qffl(importance: ArrayLike, *, q: float = 1.0) -> Rule:
    """Return q-FedAvg.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    q : float
        At least 0: how much more a client with a large loss counts. The paper uses .001, 1 or 5,
        depending on the dataset.
    """
    shares = as_shares(importance)
    exponent = as_amount(q, what="q")
    return Rule(
        RuleName.QFFL,
        "importance",
        "nothing",
        by_cohort(lambda cohort: shares[cohort]),
        aggregate,
        init=lambda params, n_clients: with_exponent(exponent, params),
        needs_losses=True,
        n_clients=shares.size,
    )


def with_exponent(q: float, params: Params) -> Fairness:
    """Return the state, q in the precision of the model."""
    import jax.numpy as jnp

    return Fairness(jnp.asarray(q, dtype=precision(params)))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Return the model after one q-fair step.

    Numerator and denominator are divided by L and by the largest f^q, so that they neither
    overflow nor underflow for large q.
    """
    import jax
    import jax.numpy as jnp

    losses = jnp.maximum(report.losses, LEAST_LOSS)
    powers = report.weights * (losses / losses.max()) ** state.q
    squares = sum(
        jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim)))
        for leaf in jax.tree.leaves(report.updates)
    )
    bound = jnp.sum(powers * (1.0 + state.q * squares / (report.step * losses)))
    factor = 1.0 / jnp.where(bound > 0, bound, 1.0)
    return plus(params, scaled(factor, weighted(powers, report.updates))), state
