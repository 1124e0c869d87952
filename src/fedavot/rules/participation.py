"""Rules for participation that is periodic, correlated in time, or long interrupted.

**Amplified FedAvg** amplifies the change over P rounds at their end:

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

**Amplified SCAFFOLD** has control variates from whole periods, whose changes are then amplified:

    clients step along ∇f_i(ϑ) − c_i + c,   θ ← θ + (1/|S|) Σ_{i∈S} N p_i Δ_i,
    after every P-th round: θ ← θ + (a − 1) u,   c_i ← the mean of client i's gradients in these
    rounds if it took part in any,   c = Σ p_i c_i

SCAFFOLD's control variates are as old as a client's last round; these are all from one period. The
rule knows the importance and stores two models per client, one in use and one being accumulated,
and two on the server; all start at zero. Gradients of a round are recovered from the update,
∇f_i = −Δ_i/(H η) + c_i − c on average, which holds if no projection interferes. Every round of a
client counts equally in its mean, as in the authors' program. The published rule is for p_i = 1/N;
here 1/N is replaced by p_i.

Source: Crawshaw & Liu, *Federated learning under periodic client participation and heterogeneous
data: a new communication-efficient algorithm and analysis*, NeurIPS 2024. The defaults are those
of its program.

**CA-Fed** leaves out clients that are rarely available or absent for long, where that costs little:

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

In **FedAWE** absent clients continue from their own model, and make up for missed rounds:

    θ_i† = x_i + s (t − τ_i) Δ_i,   θ ← (1/|A|) Σ_{i∈A} θ_i†,   x_i ← θ for i ∈ A

x_i is the model client i last received, at the end of its last active round τ_i; it trains from
there, and its update counts once for every round since then (once if it took part in the round
before, and in the first round, since τ_i starts at −1). s is the server's step. The rule knows
nothing: it uses no importance, and its objective is the plain mean (1/N) Σ f_i. Each client keeps
its own model and a count. With a projection, clients receive the projected aggregate.

The authors' program clips the mean echoed update, (1/|A|) Σ (t − τ_i) Δ_i, to a norm of .5,
evaluates the mean of the models that all clients hold, and decreases the local step as
1/√(1 + t/10): ``clip=0.5, mean=True`` and a schedule. With ``mean``, clients receive the aggregate
before any projection, and the mean of their models is projected.

Source: Xiang, Ioannidis, Yeh, Joe-Wong & Su, *Efficient federated learning against heterogeneous
and non-stationary client unavailability*, NeurIPS 2024, Algorithm 1, and its program.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import fedavot.rules._trees as tree
from fedavot._checks import as_amount, as_size
from fedavot.rules._rule import ON_CLIENTS, Report, Rule, State, add_updates
from fedavot.rules._trees import Params, jax, jnp
from fedavot.rules._weights import as_shares, evenly, scaled_importance, weighing


class Period(NamedTuple):
    """P, a, the number of rounds of the present period, and u, the change over them."""

    length: Any
    amplification: Any
    rounds: Any
    change: Params


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
    shares, begin = as_shares(importance), _first_period(period, amplification)
    parts = {"aggregate": amplify, "init": begin, "stores": "one model"}
    return weighing("amplified-fedavg", shares, scaled_importance(shares), **parts)


def amplify(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates; at the end of a period, repeat its changes."""
    moved, period, _ = _amplified(params, add_updates(params, (), report)[0], state)
    return moved, period


def _first_period(period: int, amplification: float) -> Callable[[Params, int], Period]:
    """Return a function of the model to the state at the start of the first period."""
    length = as_size(period, what="period", low=1)
    amount = as_amount(amplification, what="amplification", positive=True)

    def begin(params: Params, n_clients: int) -> Period:
        (factor,) = tree.arrays(params, amount)
        return Period(jnp.asarray(length), factor, jnp.asarray(0), tree.zeros_like(params))

    return begin


def _amplified(params: Params, moved: Params, period: Period) -> tuple[Params, Period, Any]:
    """Return the model after a round, the period so far, and whether it has just ended."""
    change = tree.plus(period.change, tree.minus(moved, params))
    ended = period.rounds + 1 >= period.length
    more = jnp.where(ended, period.amplification - 1.0, 0.0)
    rounds = jnp.where(ended, 0, period.rounds + 1)
    left = tree.scaled(jnp.where(ended, 0.0, 1.0), change)
    moved = tree.plus(moved, tree.scaled(more, change))
    return moved, period._replace(rounds=rounds, change=left), ended


class PeriodControls(NamedTuple):
    """The control variates in use, and those being accumulated.

    p and the numbers of rounds in the sums have shape (n_clients,); c_i and the sums of each
    client's gradients in this period have a leading axis of clients.
    """

    importance: Any
    own: Params
    common: Params
    sums: Params
    counts: Any
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
    shares, begin = as_shares(importance), _first_period(period, amplification)

    def init(params: Params, n_clients: int) -> PeriodControls:
        amounts, counts = tree.arrays(params, shares, np.zeros(n_clients))
        own, first = tree.one_each(params, n_clients), begin(params, n_clients)
        return PeriodControls(amounts, own, first.change, own, counts, first)

    hooks = {"aggregate": renew_period, "init": init, "correct": common_less_own}
    parts = {"stores": "two models per client, on the client", "remembers": True, **hooks}
    return weighing("amplified-scaffold", shares, scaled_importance(shares), **parts)


def common_less_own(params: Params, state: State, client: Any) -> Params:
    """Return c − c_i."""
    return tree.minus(state.common, tree.pick(state.own, client))


def renew_period(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Add the updates; at the end of a period, amplify and replace the control variates."""
    members = report.members
    raw = tree.scaled(-1.0 / (report.local_steps * report.step), report.updates)
    gradients = tree.plus(raw, tree.minus(tree.pick(state.own, members), state.common))
    sums = tree.each(
        lambda rows, new: rows.at[members].add(new, mode="drop"), state.sums, gradients
    )
    counts = state.counts.at[members].add(1.0, mode="drop")
    moved, period, ended = _amplified(params, add_updates(params, (), report)[0], state.period)

    def renewed(own: Any, total: Any) -> Any:
        rounds = tree.along(counts, own)
        return jnp.where(ended & (rounds > 0), total / jnp.maximum(rounds, 1.0), own)

    own = tree.each(renewed, state.own, sums)
    rest = jnp.where(ended, 0.0, 1.0)
    common = tree.weighted(state.importance, own)
    controls = (own, common, tree.scaled(rest, sums), rest * counts, period)
    return moved, PeriodControls(state.importance, *controls)


class Activity(NamedTuple):
    """What is known about the clients; arrays of shape (n_clients,) but for κ and the rounds.

    Attributes
    ----------
    importance, bias, losses
        p, κ and f_i.
    present
        Whether the client took part in the last round.
    visits
        Number of rounds in which it took part.
    stayed, away
        Number of rounds in which it took part, and in which it did not, as in the round before;
        before the first round, all clients count as absent.
    rounds
        Number of rounds.
    """

    importance: Any
    bias: Any
    losses: Any
    present: Any
    visits: Any
    stayed: Any
    away: Any
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
    shares, weight = as_shares(importance), as_amount(bias, what="bias")

    def init(params: Params, n_clients: int) -> Activity:
        amounts, kappa, none, rounds = tree.arrays(params, shares, weight, 0 * shares, 0.0)
        return Activity(amounts, kappa, none, none.astype(bool), none, none, none, rounds)

    parts = {"aggregate": leave_out, "init": init, "stores": "five numbers per client"}
    return weighing("ca-fed", shares, needs_losses=True, **parts)


def leave_out(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Update the estimates, choose which clients to leave out, and add the others' updates."""
    n_clients, members = state.importance.shape[0], report.members
    here = members < n_clients
    mean = jnp.where(here, report.losses, 0.0).sum() / jnp.maximum(here.sum(), 1)
    losses = jnp.where(state.visits.sum() == 0, mean, state.losses)
    losses = losses.at[members].set(report.losses, mode="drop")
    now = jnp.zeros(n_clients, bool).at[members].set(True, mode="drop")
    stayed = state.stayed + (state.present & now)
    away = state.away + ~(state.present | now)
    absences = state.rounds + 1 - state.visits
    correlation = (stayed + 1) / (state.visits + 2) + (away + 1) / (absences + 2) - 1
    visits, rounds = state.visits + now, state.rounds + 1
    inclusion = (visits + 1) / (rounds + 2)
    rest = jnp.ones(n_clients, bool)
    for order in (jnp.argsort(-jnp.abs(correlation)), jnp.argsort(inclusion)):
        rest = _thinned(rest, order, state.importance, losses, state.bias)
    factors = (rest / inclusion).at[members].get(mode="fill", fill_value=0)
    after = Activity(state.importance, state.bias, losses, now, visits, stayed, away, rounds)
    return tree.plus(params, tree.weighted(report.weights * factors, report.updates)), after


def _thinned(clients: Any, order: Any, importance: Any, losses: Any, bias: Any) -> Any:
    """Return which clients remain after trying to remove each in order, shape (n_clients,)."""

    def error(some: Any) -> Any:
        mass = some @ importance
        cost = (some * importance) @ losses / jnp.where(mass > 0, mass, 1.0)
        return jnp.where(mass > 0, cost + bias * losses.max() * (1.0 - mass) ** 2, jnp.inf)

    def attempt(some: Any, client: Any) -> tuple[Any, None]:
        fewer = some.at[client].set(False)
        return jnp.where(error(fewer) <= error(some), fewer, some), None

    return jax.lax.scan(attempt, clients, order)[0]


class Clocks(NamedTuple):
    """The model each client has, and how long ago it received it.

    A round's members receive the model after its projection, which `average_echoes` does not see:
    it is stored at the beginning of the next round.

    Attributes
    ----------
    models
        The model of every client, except those of the last round.
    since
        t − τ_i, shape (n_clients,); 1 for the members of the last round.
    latest
        Those members, padded with n_clients; shape (n_clients,).
    step, clip
        s, and the largest norm of the mean echoed update.
    """

    models: Params
    since: Any
    latest: Any
    step: Any
    clip: Any


def fedawe(*, clip: float | None = None, mean: bool = False, server_step: float = 1.0) -> Rule:
    """Return FedAWE.

    Parameters
    ----------
    clip : float, optional
        The largest norm of the mean echoed update, above 0; no limit if not given.
    mean : bool
        Whether the model is the mean of the models that all clients hold instead of the last
        aggregate.
    server_step : float
        s, above 0.
    """
    most = np.inf if clip is None else as_amount(clip, what="clip", positive=True)
    size = as_amount(server_step, what="server_step", positive=True)

    def init(params: Params, n_clients: int) -> Clocks:
        nobody = jnp.full(n_clients, n_clients, dtype=jnp.int32)
        waited = jnp.ones(n_clients, dtype=jnp.int32)
        constants = tree.arrays(params, size, most)
        return Clocks(_repeated(params, n_clients), waited, nobody, *constants)

    aggregate, begin = (mean_of_all, start_from_own) if mean else (average_echoes, start)
    parts = (evenly(), aggregate, init, begin)
    return Rule("fedawe", "nothing", ON_CLIENTS, *parts, remembers=True, moves=False)


def start(params: Params, state: State, client: Any) -> Params:
    """Return the model that the client last received."""
    just = state.since[client] == 1
    return tree.each(lambda new, old: jnp.where(just, new, old[client]), params, state.models)


def start_from_own(params: Params, state: State, client: Any) -> Params:
    """Return the model that the client has."""
    return tree.pick(state.models, client)


def average_echoes(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Average the models with their updates echoed; an empty round leaves the model unchanged."""
    members, size = report.members, report.members.shape[0]
    models = tree.put(state.models, state.latest[:size], _repeated(params, size))
    average, since = _echoed(models, state, report)
    someone = (members < since.shape[0]).any()
    moved = tree.each(lambda new, old: jnp.where(someone, new, old), average, params)
    latest = state.latest.at[:size].set(members)
    return moved, state._replace(models=models, since=since, latest=latest)


def mean_of_all(params: Params, state: State, report: Report) -> tuple[Params, State]:
    """Give the average to the members, and return the mean of all clients' models."""
    average, since = _echoed(state.models, state, report)
    models = tree.put(state.models, report.members, _repeated(average, report.members.shape[0]))
    mean = tree.each(lambda leaf: leaf.mean(axis=0), models)
    return mean, state._replace(models=models, since=since)


def _echoed(models: Params, state: State, report: Report) -> tuple[Params, Any]:
    """Return the average of the models with their updates echoed, and the next t − τ_i."""
    missed = state.since.at[report.members].get(mode="fill", fill_value=0)
    echoes = missed.astype(report.weights.dtype) * report.weights
    change = tree.weighted(echoes, report.updates)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(change)))
    step = tree.scaled(state.step * jnp.minimum(1.0, state.clip / norm), change)
    average = tree.plus(tree.weighted(report.weights, tree.pick(models, report.members)), step)
    return average, (state.since + 1).at[report.members].set(1, mode="drop")


def _repeated(params: Params, count: int) -> Params:
    return tree.each(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), params)
