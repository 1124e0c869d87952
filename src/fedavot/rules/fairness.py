"""Rules for fairness, which weight clients by their losses: AFL and q-FedAvg.

**AFL**, agnostic federated learning, minimises the loss of the worst mixture of clients:

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

**q-FedAvg**, for q-fair federated learning, counts a client the more, the larger its loss:

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

import fedavot.rules._trees as tree
from fedavot._checks import as_amount
from fedavot.rules._rule import Report, Rule, State
from fedavot.rules._trees import Params, jax, jnp
from fedavot.rules._weights import as_shares, evenly, weighing

LEAST_LOSS = 1e-10
"""Replaces a loss of zero, for which f^{q−1} is infinite if q < 1."""


class Adversary(NamedTuple):
    """Weights λ of the clients, shape (n_clients,), and the step size γ of their ascent."""

    weights: Any
    step: Any


def afl(*, step: float = 0.01) -> Rule:
    """Return AFL.

    Parameters
    ----------
    step : float
        γ, above 0: change of weight per unit of loss. Choose it with the size of the losses in
        mind.
    """
    rate = as_amount(step, what="step", positive=True)

    def init(params: Params, n_clients: int) -> Adversary:
        even, size = tree.arrays(params, 1.0 / n_clients, rate)
        return Adversary(jnp.full(n_clients, even), size)

    choose, stores = evenly(), "one number per client"
    return Rule("afl", "nothing", stores, choose, descend_and_ascend, init, needs_losses=True)


def descend_and_ascend(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Move the model by the cohort's weights, and the weights by the losses reported."""
    present = state.weights.at[report.members].get(mode="fill", fill_value=0)
    total = present.sum()
    present = present / jnp.where(total > 0, total, 1.0)
    raised = state.weights.at[report.members].add(state.step * report.losses, mode="drop")
    moved = tree.plus(params, tree.weighted(present, report.updates))
    return moved, Adversary(onto_simplex(raised), state.step)


def onto_simplex(values: Any) -> Any:
    """Return the nearest point with non-negative entries that sum to one, shape (n_clients,)."""
    falling = jnp.sort(values)[::-1]
    excess = jnp.cumsum(falling) - 1.0
    counts = jnp.arange(1, values.shape[0] + 1)
    positive = jnp.sum(falling * counts > excess)
    return jnp.maximum(values - excess[positive - 1] / positive, 0.0)


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
    shares, exponent = as_shares(importance), as_amount(q, what="q")

    def init(params: Params, n_clients: int) -> Any:
        return tree.arrays(params, exponent)[0]

    return weighing("qffl", shares, aggregate=fair_step, init=init, needs_losses=True)


def fair_step(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Return the model after one q-fair step; the state is q.

    Numerator and denominator are divided by L and by the largest f^q, so that they neither
    overflow nor underflow for large q.
    """
    losses = jnp.maximum(report.losses, LEAST_LOSS)
    powers = report.weights * (losses / losses.max()) ** state
    leaves = jax.tree.leaves(report.updates)
    squares = sum(jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in leaves)
    bound = jnp.sum(powers * (1.0 + state * squares / (report.step * losses)))
    factor = 1.0 / jnp.where(bound > 0, bound, 1.0)
    return tree.plus(params, tree.scaled(factor, tree.weighted(powers, report.updates))), state
