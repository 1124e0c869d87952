"""Horvitz–Thompson: each update divided by its client's inclusion probability.

    θ ← θ + Σ_{i∈S} (p_i/π_i) Δ_i,   π_i = P(i ∈ S)

The expected change is that of full participation under every law, even if no weights that sum to
one achieve that. The price is variance: the weights of a round sum to one only on average. The rule
knows the importance and the inclusion probabilities, and stores nothing.

Source: Horvitz & Thompson, *A generalization of sampling without replacement from a finite
universe*, JASA 1952; applied to updates.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import inverse_inclusion
from fedavot.rules._rule import Rule, add_updates, by_cohort
from fedavot.rules.names import RuleName


def horvitz_thompson(importance: ArrayLike, inclusion: ArrayLike | None) -> Rule:
    """Return Horvitz–Thompson weighting of updates.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        Importance of each client, and the probability that it takes part.
    """
    ratios = inverse_inclusion(RuleName.HORVITZ_THOMPSON, importance, inclusion)
    choose = by_cohort(lambda cohort: ratios[cohort])
    return Rule(
        RuleName.HORVITZ_THOMPSON,
        "importance, inclusion probabilities",
        "nothing",
        choose,
        add_updates,
        n_clients=ratios.size,
    )
