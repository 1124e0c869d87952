"""FedAVOT: weights whose expectation is the importance.

    θ ← Σ_{i∈A} Y[i, A] θ_i,   Y[·, A] ≥ 0 summing to one, E_A Y[i, A] = p_i

Y comes from an alignment: of maximum entropy (as in the paper), of minimum variance, or soft. If
the importance is not attainable, E Y is the nearest attainable one. The rule knows the importance
and the availability law, both from the alignment, and stores nothing. Members whose weight is zero
are not asked.

Source: the FedAVOT paper, Algorithm 2; docs/theory.md, sections 1, 3 and 7, for the plans.
"""

from fedavot.alignment import Alignment
from fedavot.rules._known import as_converged
from fedavot.rules._rule import Rule, add_updates, by_cohort
from fedavot.rules.names import RuleName


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
    name = _name(alignment) if isinstance(alignment, Alignment) else RuleName.FEDAVOT
    aligned = as_converged(name, alignment, allow_unconverged=allow_unconverged)
    choose = by_cohort(aligned.weights)
    return Rule(
        name,
        "importance, availability law",
        "nothing",
        choose,
        add_updates,
        n_clients=aligned.n_clients,
    )


def _name(alignment: Alignment) -> RuleName:
    if alignment.softness > 0:
        return RuleName.SOFT
    return RuleName.VARIANCE if alignment.objective == "variance" else RuleName.FEDAVOT
