"""CA-Fed: leave out clients that are rarely available or absent for long, where that costs little.

    θ ← θ + Σ_{i∈S∩K} (p_i/π_i) Δ_i,
    K chosen to lower Σ_{i∈K} p_i f_i/p(K) + κ max_i f_i (1 − p(K))²

The first term represents the error of training on the clients K, the second the bias of leaving the
others out, whose importance 1 − p(K) is the total variation distance between p and its restriction
to K. In every round K starts with all clients. Clients are then tried in order of correlation in
time |λ_i|, largest first, and the remaining ones again in order of availability π_i, smallest
first; each is removed unless that raises the sum.
λ_i = P(present | was present) + P(absent | was absent) − 1, π_i and f_i are estimated during
training: the first two by counting, with one round of each kind added, f_i by the last loss that
the client reported. Clients not seen yet have the mean loss of the first round. The rule knows the
importance, needs each client's loss at the model it starts from, and stores five numbers per
client.

The paper subtracts from f_i the smallest loss of each client alone, which is taken as 0 here; its
program is given the true π_i and λ_i, or starts from them. Clients that are left out train as well
here, since the choice depends on their losses. The mean weights that a run reports are p_i. The
time per round is quadratic in the number of clients.

Source: Rodio, Faticanti, Marfoq, Neglia & Leonardi, *Federated learning under heterogeneous and
correlated client availability*, IEEE INFOCOM 2023 (arXiv 2301.04632), Algorithm 1 and its program.
"""

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_amount
from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    by_cohort,
    plus,
    precision,
    weighted,
)
from fedavot.rules.names import RuleName


class Activity(NamedTuple):
    """What is known about the clients; arrays of shape (n_clients,)."""

    importance: Any
    bias: Any
    """κ."""
    losses: Any
    """f_i."""
    present: Any
    """Whether the client took part in the last round."""
    visits: Any
    """Number of rounds in which it took part."""
    stayed: Any
    """Number of rounds in which it took part, as in the round before."""
    away: Any
    """Number of rounds in which it did not take part, as in the round before; before the first
    round, all clients count as absent."""
    rounds: Any


def ca_fed(importance: ArrayLike, *, bias: float = 1.0) -> Rule:
    """Return CA-Fed.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    bias : float
        κ, at least 0: the weight of the bias. The larger it is, the fewer clients are left out.
    """
    shares = as_shares(importance)
    weight = as_amount(bias, what="bias")
    return Rule(
        RuleName.CA_FED,
        "importance",
        "five numbers per client",
        by_cohort(lambda cohort: shares[cohort]),
        aggregate,
        init=lambda params, n_clients: nothing_known(shares, weight, params),
        needs_losses=True,
        n_clients=shares.size,
    )


def nothing_known(importance: Floats, bias: float, params: Params) -> Activity:
    """Return the state before the first round."""
    import jax.numpy as jnp

    dtype = precision(params)
    none = jnp.zeros(importance.size, dtype)
    shares, weight = jnp.asarray(importance, dtype), jnp.asarray(bias, dtype)
    absent = jnp.zeros(importance.size, bool)
    return Activity(shares, weight, none, absent, none, none, none, jnp.asarray(0.0, dtype))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Update the estimates, choose which clients to leave out, and add the others' updates."""
    import jax.numpy as jnp

    n_clients, members = state.importance.shape[0], report.members
    here = members < n_clients
    mean = jnp.where(here, report.losses, 0.0).sum() / jnp.maximum(here.sum(), 1)
    losses = jnp.where(state.visits.sum() == 0, mean, state.losses)
    losses = losses.at[members].set(report.losses, mode="drop")
    now = jnp.zeros(n_clients, bool).at[members].set(True, mode="drop")
    stayed = state.stayed + (state.present & now)
    away = state.away + ~(state.present | now)
    correlation = (stayed + 1) / (state.visits + 2) + (away + 1) / (
        state.rounds + 1 - state.visits + 2
    )
    visits, rounds = state.visits + now, state.rounds + 1
    inclusion = (visits + 1) / (rounds + 2)
    kept = jnp.ones(n_clients, bool)
    for order in (jnp.argsort(-jnp.abs(correlation - 1)), jnp.argsort(inclusion)):
        kept = thinned(kept, order, state.importance, losses, state.bias)
    factors = (kept / inclusion).at[members].get(mode="fill", fill_value=0)
    known = Activity(state.importance, state.bias, losses, now, visits, stayed, away, rounds)
    return plus(params, weighted(report.weights * factors, report.updates)), known


def thinned(kept: Any, order: Any, importance: Any, losses: Any, bias: Any) -> Any:
    """Return which clients remain after trying to remove each in order, shape (n_clients,)."""
    import jax
    import jax.numpy as jnp

    def error(some: Any) -> Any:
        mass = some @ importance
        cost = (some * importance) @ losses / jnp.where(mass > 0, mass, 1.0)
        return jnp.where(mass > 0, cost + bias * losses.max() * (1.0 - mass) ** 2, jnp.inf)

    def attempt(some: Any, client: Any) -> tuple[Any, None]:
        fewer = some.at[client].set(False)
        return jnp.where(error(fewer) <= error(some), fewer, some), None

    return jax.lax.scan(attempt, kept, order)[0]
