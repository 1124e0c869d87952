"""FedAVOT's steady rule: memories and present clients together represent the absent clients.

    u_i = Δ_i/(H η) + κ (y_i − T)
    θ ← θ + H η (α T + Σ_{i∈S} w_i (u_i − α y_i)),   w_i = p_i + (1 − α (1 − β)) (1 − p(S)) a_i
    y_i ← y_i + γ_i (u_i − y_i),   γ_i = s_i/(s_i + c), 1 the first time

y_i is the memory of client i, T = Σ p_i y_i, and s_i is the number of rounds since i was last
present. A present client has the weight p_i for itself. The rest of the importance, 1 − p(S), is
represented by the memories, as far as they are trusted (α), and by the innovations of the present
clients (what is new in their updates), of which the absent ones are assumed to share a fraction β.
Local steps follow ∇f_i + κ (y_i − T), so that clients drift less.

The rule uses no availability law, and clients without importance are not asked. α, c and κ are
learnt from returning clients: α is the coefficient of the regression of their updates on their
memories, weighted by importance and gain, p_i γ_i; c is twice the mean return time; κ is the
squared correlation of the two. If α is learnt, memories also fade, at the rate at which updates
become smaller: otherwise a client that was present only in the first round would contribute its
first update indefinitely. So with large or decreasing steps, where memories are misleading, the
rule is close to an average of the present clients; as memories become reliable it approaches full
participation, whatever the cohort.

MIFA has β = 0, α = 1, c = 0, κ = 0; FedVARP and FedAVOT with memory differ from it in w, SCAFFOLD
from FedVARP in κ = 1. See docs/steady.md for what is proved, and docs/experiments.md for how the
constants were chosen.

Source: ours; SAG and SAGA (Schmidt, Le Roux & Bach 2017; Defazio, Bach & Lacoste-Julien 2014) are
the same idea with all clients available.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import SUM_SLACK, Floats, Integers, as_amount
from fedavot._clients import Clients
from fedavot.alignment import Alignment
from fedavot.errors import RuleError
from fedavot.online import OnlineAligner
from fedavot.rules._known import as_converged, as_part, as_shares
from fedavot.rules._memory import LEARNT, remembering
from fedavot.rules._rule import Asked, Cohorts, Rule, equal_weights
from fedavot.rules.names import RuleName
from fedavot.soft_online import SoftOnlineAligner

Aligner = Alignment | OnlineAligner | SoftOnlineAligner


def steady(
    importance: ArrayLike | Mapping[str, float],
    *,
    alignment: Aligner | None = None,
    share: float = 0.5,
    damping: float | None = None,
    correction: float | None = None,
    trust: float | None = None,
) -> Rule:
    """Return FedAVOT's steady rule.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), or mapping from name to float
        A distribution over the clients. A mapping needs an alignment with the clients' names.
    alignment : Alignment, OnlineAligner or SoftOnlineAligner, optional
        Gives the shares a_i: its weights for the cohort. An online aligner learns them during
        training, and every seed starts with its own copy. Equal shares 1/|S| if not given. Its
        importance must be this one.
    share : float
        β, from 0 to 1: the fraction of the innovation of present clients that absent clients are
        assumed to share.
    damping : float, optional
        c, in rounds, at least 0; twice the mean return time if not given.
    correction : float, optional
        κ, from 0 to 1; learnt if not given. 0 leaves local training unchanged.
    trust : float, optional
        α, from 0 to 1; learnt if not given.
    """
    shares = as_shares(importance, getattr(alignment, "clients", None))
    constants = constants_of(share=share, damping=damping, correction=correction, trust=trust)
    start = _weighing(alignment, shares)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        weigh = start()
        counted = [cohort[shares[cohort] > 0] for cohort in cohorts]
        return [Asked(cohort, weigh(cohort) if cohort.size else np.zeros(0)) for cohort in counted]

    knows = "importance, availability law" if isinstance(alignment, Alignment) else "importance"
    return remembering(RuleName.STEADY, knows, choose, shares, **constants)


def constants_of(
    *,
    share: float = 0.5,
    damping: float | None = None,
    correction: float | None = None,
    trust: float | None = None,
) -> dict[str, float]:
    """Return the constants of `steady` for `empty_memory`, checked."""
    return {
        "share": as_part(share, what="share"),
        "damping": LEARNT if damping is None else as_amount(damping, what="damping"),
        "correction": LEARNT if correction is None else as_part(correction, what="correction"),
        "trust": LEARNT if trust is None else as_part(trust, what="trust"),
    }


def _weighing(
    alignment: Aligner | None, importance: Floats
) -> Callable[[], Callable[[Integers], Floats]]:
    """Return a function that starts a run: it returns the shares of cohorts as they come."""
    if alignment is None:
        return lambda: equal_weights
    if not isinstance(alignment, OnlineAligner | SoftOnlineAligner):
        as_converged(RuleName.STEADY, alignment, allow_unconverged=None)
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
    kind, state = type(alignment), alignment.state_dict()
    return lambda: kind.from_state(state).observe
