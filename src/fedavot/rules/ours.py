"""Our rules: FedAVOT's weights, without memory and with it.

**FedAVOT** has weights whose expectation is the importance:

    θ ← Σ_{i∈A} Y[i, A] θ_i,   Y[·, A] ≥ 0 summing to one, E_A Y[i, A] = p_i

Y comes from an alignment: of maximum entropy (as in the paper), of minimum variance, or soft. If
the importance is not attainable, E Y is the nearest attainable one. The rule knows the importance
and the availability law, both from the alignment. Members whose weight is zero are not asked.

Source: the FedAVOT paper, Algorithm 2; docs/theory.md, sections 1, 3 and 7, for the plans.

**Online**, no availability law is known:

    θ ← Σ_{i∈A} Y_i θ_i,   Y = softmax of x over A,   x ← x + η (p − Y)

The potentials are learned from the cohorts as they come. The realised mean weights approach p for
any sequence of cohorts under which the potentials stay bounded; if p is not attainable, they do
not. One absence adds at most ``bound``. The rule knows only the importance, and stores one number
per client.

Source: docs/theory.md, section 8; `OnlineAligner`.

**With server selection** only K of the available clients are asked:

    choose i with probability π_i = min(1, c w_i), w = Y[·, A];   θ ← Σ_{chosen} (w_i/π_i) θ_i

c makes the π_i sum to K. The aggregate is unbiased for Σ_{i∈A} w_i θ_i, and its weights sum to one.
If everyone is available and w = p, every importance is aligned exactly. The rule sees which clients
are available before it asks.

Source: docs/theory.md, section 9; systematic sampling (Madow 1949), `fedavot.select`.

**With memory**, the *steady* rule, transport gives the weights and memory takes out their variance:

    u_i = Δ_i/(H η),   w_i = s Y_i + (1 − s)/|S|,   ŷ = s ŷ_p + (1 − s) ŷ_q
    θ ← θ + H η ( Σ_{i∈S} w_i u_i + α Σ_{i∈S} w_i (ŷ − y_i) ),   then y_i ← u_i for i ∈ S
    ŷ_p = Σ p_i y_i / Σ p_i,   ŷ_q = Σ a_i y_i / Σ a_i,   a_i the sum of 1/|S| over i's rounds

Y are FedAVOT's weights of the cohort, which average to the importance p over the rounds: learnt
from the cohorts as they come, softly and around the importance, or those of an alignment where a
law is known. y_i is the last update of client i, and *trust* α says how far memories predict
updates. Everything with y or ŷ is over clients with a memory; a client without one counts as if it
had the mean ŷ. *Tilt* s says how far the round leans from what is available to what is wanted: 1
where the importance changes the model's course or averages noise out, 0 where it adds nothing but
noise, as where one model fits all clients. Both are learnt from the rounds: see `_history`, also
for memories that expire.

At s = 1 this is the augmented inverse-probability estimator with transport in place of inverse
probabilities: as Y averages to p, memories change the variance of a step and not its mean, whatever
they hold; where they are right, the weights do not matter, and the step is that of full
participation. At a constant s < 1 it is the same rule for the importance s p + (1 − s) q, if q is
how often clients come.

With a correction κ, local steps follow ∇f_i + κ (y_i − ŷ), so that clients drift less; then
u_i = Δ_i/(H η) + κ (y_i − ŷ), and memories are damped, y_i ← y_i + γ_i (u_i − y_i) with
γ_i = A_i/(A_i + c) after A_i rounds. This gains where problems are convex and steps constant, and
loses on networks, so it is off by default.

Clients without importance are not asked. See docs/steady.md for what is proved, and for where it
was measured.

Source: ours; the control variate with a regressed coefficient is textbook (Robins, Rotnitzky & Zhao
1994), SAG and SAGA (Schmidt, Le Roux & Bach 2017; Defazio, Bach & Lacoste-Julien 2014) are the
memory with α = 1 and all clients available.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import SUM_SLACK, Floats, Integers, as_amount, as_size
from fedavot._clients import Clients
from fedavot.alignment import Alignment, Status
from fedavot.errors import RuleError
from fedavot.online import EXACT_STEP, OnlineAligner
from fedavot.rules._history import LEARNT, Constants
from fedavot.rules._memory import remembering
from fedavot.rules._rule import Asked, Cohorts, Rule, Weigh
from fedavot.rules._weights import as_part, as_shares, trained, weighing
from fedavot.selection import select

Aligner = Alignment | OnlineAligner

DAMPING = 10.0
"""Damping c of a rule that corrects, in rounds."""
LAW = "importance, availability law"


def fedavot(alignment: Alignment, *, allow_unconverged: bool = False) -> Rule:
    """Return FedAVOT with an alignment's weights.

    Parameters
    ----------
    alignment : Alignment
        The alignment. Its objective and softness determine whether the rule's name is fedavot,
        fedavot-variance or fedavot-soft.
    allow_unconverged : bool
        Whether to accept an alignment that missed its tolerance.
    """
    name = "fedavot"
    if isinstance(alignment, Alignment) and alignment.softness > 0:
        name = "fedavot-soft"
    elif isinstance(alignment, Alignment) and alignment.objective == "variance":
        name = "fedavot-variance"
    aligned = as_converged(name, alignment, allow_unconverged=allow_unconverged)
    return weighing(name, aligned.importance, aligned.weights, knows=LAW)


def fedavot_online(
    importance: ArrayLike,
    *,
    step: float = EXACT_STEP,
    potentials: ArrayLike | None = None,
    bound: float | None = 3.0,
) -> Rule:
    """Return FedAVOT with potentials learned during training.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    step, potentials, bound
        As in `OnlineAligner`, without softness and around equal weights; every seed has its own.
    """
    shares = as_shares(importance)
    first = OnlineAligner(
        shares, softness=0, around="equal", step=step, potentials=potentials, bound=bound
    ).state_dict()

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        aligner = OnlineAligner.from_state(first)
        return [
            trained(cohort, aligner.observe(cohort) if cohort.size else np.zeros(0))
            for cohort in cohorts
        ]

    return weighing("fedavot-online", shares, choose=choose, stores="one number per client")


def fedavot_select(
    alignment: Alignment, cohort_size: int, *, allow_unconverged: bool = False
) -> Rule:
    """Return FedAVOT that asks at most ``cohort_size`` of the available clients.

    Parameters
    ----------
    alignment : Alignment
        Alignment of the importance under the law of *available* clients.
    cohort_size : int
        Number of clients to ask per round, at most ``n_clients``.
    allow_unconverged : bool
        Whether to accept an alignment that missed its tolerance.
    """
    aligned = as_converged("fedavot-select", alignment, allow_unconverged=allow_unconverged)
    as_size(cohort_size, what="cohort_size", low=1, high=aligned.n_clients)

    def ask(cohort: Integers, rng: np.random.Generator) -> Asked:
        if not cohort.size:
            return Asked(cohort, np.zeros(0))
        places, weights = select(aligned.weights(cohort), cohort_size, rng)
        return Asked(cohort[places], weights)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [ask(cohort, rng) for cohort in cohorts]

    knows = f"{LAW}, who is available"
    return weighing("fedavot-select", aligned.importance, choose=choose, knows=knows)


def steady(
    importance: ArrayLike | Mapping[str, float],
    *,
    alignment: Aligner | None = None,
    correction: float = 0.0,
    damping: float | None = None,
    trust: float | None = None,
) -> Rule:
    """Return FedAVOT's steady rule.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), or mapping from name to float
        A distribution over the clients. A mapping needs an alignment with the clients' names.
    alignment : Alignment or OnlineAligner, optional
        Gives the weights Y of a cohort; learnt as `learner` does if not given. An online aligner
        learns during training, and every seed starts with its own copy. Its importance must be
        this one.
    correction : float
        κ, from 0 to 1; 0 leaves local training unchanged.
    damping : float, optional
        c, in rounds, at least 0; 10 with a correction and 0 without if not given.
    trust : float, optional
        α, from 0 to 1; α and s are learnt if it is not given, and s is 1 if it is.
    """
    shares = as_shares(importance, getattr(alignment, "clients", None))
    constants = constants_of(correction=correction, damping=damping, trust=trust)
    start = _weighing(learner(shares) if alignment is None else alignment, shares)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        weigh = start()
        counted = [cohort[shares[cohort] > 0] for cohort in cohorts]
        return [Asked(cohort, weigh(cohort) if cohort.size else np.zeros(0)) for cohort in counted]

    knows = LAW if isinstance(alignment, Alignment) else "importance"
    return remembering("fedavot-steady", knows, choose, shares, constants)


def learner(importance: Floats) -> OnlineAligner:
    """Return the aligner that learns the weights of cohorts as they come."""
    return OnlineAligner(importance)


def constants_of(
    *, correction: float = 0.0, damping: float | None = None, trust: float | None = None
) -> Constants:
    """Return the constants of `steady`, checked; the trust is NaN if it is learnt."""
    usual = DAMPING if correction else 0.0
    kappa = as_part(correction, what="correction")
    c = usual if damping is None else as_amount(damping, what="damping")
    return Constants(LEARNT if trust is None else as_part(trust, what="trust"), kappa, c)


def _weighing(alignment: Aligner, importance: Floats) -> Callable[[], Weigh]:
    """Return a function that starts a run: it returns the weights of cohorts as they come."""
    if not isinstance(alignment, OnlineAligner):
        as_converged("fedavot-steady", alignment, allow_unconverged=None)
    if alignment.n_clients != importance.size:
        raise RuleError(
            f"the alignment has {alignment.n_clients} clients, but importance has "
            f"{importance.size}; align this importance"
        )
    off = np.abs(alignment.importance - importance)
    if off.max() > SUM_SLACK:
        client = int(off.argmax())
        label = Clients(importance.size, alignment.clients).label(client)
        raise RuleError(
            f"the alignment is one of another importance: client {label} has "
            f"{alignment.importance[client]:.4g} there and {importance[client]:.4g} here; align "
            "this importance"
        )
    if isinstance(alignment, Alignment):
        return lambda: alignment.weights
    state = alignment.state_dict()
    return lambda: OnlineAligner.from_state(state).observe


def as_converged(
    rule: str, alignment: Alignment | None, *, allow_unconverged: bool | None
) -> Alignment:
    """Return an alignment that met its tolerance, or any alignment if that is allowed.

    ``allow_unconverged`` is None for a rule that has no such option.
    """
    if not isinstance(alignment, Alignment):
        raise RuleError(
            f"rule {rule!r} needs an alignment, found {alignment!r}; give align(importance, law), "
            "or use fedavot-online, which needs no law"
        )
    if alignment.status is Status.UNCONVERGED and not allow_unconverged:
        times = f"{alignment.iterations} iteration{'s' * (alignment.iterations != 1)}"
        allow = "" if allow_unconverged is None else "; or pass allow_unconverged=True"
        raise RuleError(
            f"rule {rule!r} was given an alignment that did not converge (residual "
            f"{alignment.residual:.2e} after {times}): {alignment.message}{allow}"
        )
    return alignment
