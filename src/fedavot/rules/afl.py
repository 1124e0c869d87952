"""AFL, agnostic federated learning: minimise the loss of the worst mixture of clients.

    θ ← θ + Σ_{i∈S} λ_i Δ_i / Σ_{k∈S} λ_k,   λ ← Π(λ + γ Σ_{i∈S} f_i e_i)

It seeks min over θ, max over λ of Σ λ_i f_i(θ), with λ in the simplex; Π projects there. Weights
begin at 1/N and grow where losses are large. The rule knows nothing, needs each client's loss at
the model it starts from, and stores one number per client.

In the paper every client reports every round. Here only the participants' weights follow their
losses, and the model moves by each participant's share of the cohort's weight: a client that is
rarely available gains weight slowly, and is not compensated for the rounds it missed. Local
training takes H steps where the paper has one. A cohort whose weights are all zero leaves the model
unchanged, but its losses still count. The mean weights that a run reports are 1/|S|; λ is in the
rule's state. The paper's result is the mean of the models of all rounds: `average` of a
`training.Run`.

Source: Mohri, Sivek & Suresh, *Agnostic federated learning*, ICML 2019, Algorithm 1
(Stochastic-AFL); projection after Duchi, Shalev-Shwartz, Singer & Chandra, ICML 2008.
"""

from typing import Any, NamedTuple

from fedavot._checks import as_amount
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    equal_weights,
    plus,
    precision,
    weighted,
)
from fedavot.rules.names import RuleName


class Adversary(NamedTuple):
    """Weights of the clients, and the step size of their ascent."""

    weights: Any
    """λ, shape (n_clients,)."""
    step: Any
    """γ."""


def afl(*, step: float = 0.01) -> Rule:
    """Return AFL.

    Parameters
    ----------
    step : float
        γ, above 0: change of weight per unit of loss. Choose it with the size of the losses in
        mind.
    """
    rate = as_amount(step, what="step", positive=True)
    return Rule(
        RuleName.AFL,
        "nothing",
        "one number per client",
        by_cohort(equal_weights),
        descend_and_ascend,
        init=lambda params, n_clients: even_mixture(rate, params, n_clients),
        needs_losses=True,
    )


def even_mixture(step: float, params: Params, n_clients: int) -> Adversary:
    """Return equal weights, in the precision of the model."""
    import jax.numpy as jnp

    dtype = precision(params)
    return Adversary(jnp.full(n_clients, 1.0 / n_clients, dtype=dtype), jnp.asarray(step, dtype))


def descend_and_ascend(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Move the model by the cohort's weights, and the weights by the losses reported."""
    import jax.numpy as jnp

    present = state.weights.at[report.members].get(mode="fill", fill_value=0)
    total = present.sum()
    present = present / jnp.where(total > 0, total, 1.0)
    raised = state.weights.at[report.members].add(state.step * report.losses, mode="drop")
    moved = plus(params, weighted(present, report.updates))
    return moved, Adversary(onto_simplex(raised), state.step)


def onto_simplex(values: Any) -> Any:
    """Return the nearest point with non-negative entries that sum to one, shape (n_clients,)."""
    import jax.numpy as jnp

    falling = jnp.sort(values)[::-1]
    excess = jnp.cumsum(falling) - 1.0
    counts = jnp.arange(1, values.shape[0] + 1)
    kept = jnp.sum(falling * counts > excess)
    return jnp.maximum(values - excess[kept - 1] / kept, 0.0)
