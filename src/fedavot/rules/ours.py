"""FedAVOT's weights without memory; with memory they are the steady rule, in `steady`.

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
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Integers, as_size
from fedavot.alignment import Alignment
from fedavot.online import EXACT_STEP, OnlineAligner
from fedavot.rules._inputs import as_converged, as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule
from fedavot.rules._weights import trained, weighing
from fedavot.selection import select

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

    rule = weighing("fedavot-online", shares, stores="one number per client")
    return dataclasses.replace(rule, choose=choose)


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

    rule = weighing("fedavot-select", aligned.importance, knows=f"{LAW}, who is available")
    return dataclasses.replace(rule, choose=lambda cohorts, rng: [ask(c, rng) for c in cohorts])
