"""FedAVOT's steady rule: transport gives the weights, memory takes out their variance.

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

from fedavot._checks import SUM_SLACK, Floats, Integers, as_amount
from fedavot._clients import Clients
from fedavot.alignment import Alignment
from fedavot.errors import RuleError
from fedavot.online import OnlineAligner
from fedavot.rules._history import LEARNT
from fedavot.rules._inputs import as_converged, as_part, as_shares
from fedavot.rules._memory import remembering
from fedavot.rules._rule import Asked, Cohorts, Rule

Aligner = Alignment | OnlineAligner

DAMPING = 10.0
"""Damping c of a rule that corrects, in rounds."""


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

    knows = "importance, availability law" if isinstance(alignment, Alignment) else "importance"
    return remembering("fedavot-steady", knows, choose, shares, expires=True, **constants)


def learner(importance: Floats) -> OnlineAligner:
    """Return the aligner that learns the weights of cohorts as they come."""
    return OnlineAligner(importance)


def constants_of(
    *, correction: float = 0.0, damping: float | None = None, trust: float | None = None
) -> dict[str, float]:
    """Return the constants of `steady`, checked; the trust is NaN if it is learnt."""
    usual = DAMPING if correction else 0.0
    return {
        "correction": as_part(correction, what="correction"),
        "damping": usual if damping is None else as_amount(damping, what="damping"),
        "trust": LEARNT if trust is None else as_part(trust, what="trust"),
    }


def _weighing(alignment: Aligner, importance: Floats) -> Callable[[], Callable[[Integers], Floats]]:
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
