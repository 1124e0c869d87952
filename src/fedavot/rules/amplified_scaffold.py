"""Amplified SCAFFOLD: control variates from whole periods, whose changes are then amplified.

    clients step along ∇f_i(ϑ) − c_i + c,   θ ← θ + (1/|S|) Σ_{i∈S} N p_i Δ_i,
    after every P-th round: θ ← θ + (a − 1) u,   c_i ← the mean of client i's gradients in these
    rounds if it took part in any,   c = Σ p_i c_i

u is the sum of the changes of the last P rounds. SCAFFOLD's control variates are as old as a
client's last round; these are all from one period. The rule knows the importance and stores two
models per client, one in use and one being accumulated, and two on the server; all start at zero.
Gradients of a round are recovered from the update, ∇f_i = −Δ_i/(H η) + c_i − c on average, which
holds if no projection interferes.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i. Every round of a client counts
equally in its mean, as in the authors' program. See amplified-fedavg for the weights.

Source: Crawshaw & Liu, *Federated learning under periodic client participation and heterogeneous
data: a new communication-efficient algorithm and analysis*, NeurIPS 2024. The defaults are those
of its program.
"""

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import Floats
from fedavot.rules._known import as_shares
from fedavot.rules._rule import (
    Params,
    Report,
    Rule,
    State,
    along,
    by_cohort,
    minus,
    one_each,
    pick,
    plus,
    precision,
    scaled,
    scaled_importance,
    weighted,
    zeros_like,
)
from fedavot.rules.amplified_fedavg import Period, amplified, first_period
from fedavot.rules.names import RuleName


class PeriodControls(NamedTuple):
    """The control variates in use, and those being accumulated."""

    importance: Any
    """Shape (n_clients,)."""
    own: Params
    """c_i, with a leading axis of clients."""
    common: Params
    """c."""
    sums: Params
    """Sums of each client's gradients in this period, with a leading axis of clients."""
    counts: Any
    """The number of rounds in these sums, shape (n_clients,)."""
    period: Period


def amplified_scaffold(
    importance: ArrayLike, *, period: int = 20, amplification: float = 1.5
) -> Rule:
    """Return amplified SCAFFOLD.

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
        RuleName.AMPLIFIED_SCAFFOLD,
        "importance",
        "two models per client, on the client",
        by_cohort(scaled_importance(shares)),
        aggregate,
        init=lambda params, n_clients: no_controls(shares, params, begin(params)),
        correct=correct,
        remembers=True,
        n_clients=shares.size,
    )


def no_controls(importance: Floats, params: Params, period: Period) -> PeriodControls:
    """Return the control variates before the first round, all zero."""
    import jax.numpy as jnp

    shares = jnp.asarray(importance, dtype=precision(params))
    table = one_each(params, importance.size)
    return PeriodControls(shares, table, zeros_like(params), table, jnp.zeros_like(shares), period)


def correct(params: Params, state: State, client: Any) -> Params:
    """Return c − c_i."""
    return minus(state.common, pick(state.own, client))


def aggregate(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates; at the end of a period, amplify and replace the control variates."""
    import jax
    import jax.numpy as jnp

    raw = scaled(-1.0 / (report.local_steps * report.step), report.updates)
    gradients = plus(raw, minus(pick(state.own, report.members), state.common))
    sums = jax.tree.map(
        lambda table, rows: table.at[report.members].add(rows, mode="drop"), state.sums, gradients
    )
    counts = state.counts.at[report.members].add(1.0, mode="drop")
    moved = plus(params, weighted(report.weights, report.updates))
    moved, period, ended = amplified(params, moved, state.period)

    def renewed(own: Any, total: Any) -> Any:
        rounds = along(counts, own)
        return jnp.where(ended & (rounds > 0), total / jnp.maximum(rounds, 1.0), own)

    own = jax.tree.map(renewed, state.own, sums)
    kept = jnp.where(ended, 0.0, 1.0)
    common = weighted(state.importance, own)
    controls = (own, common, scaled(kept, sums), kept * counts, period)
    return moved, PeriodControls(state.importance, *controls)
