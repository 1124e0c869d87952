"""Horvitz–Thompson: every update over the probability of seeing it.

    θ ← θ + Σ_{i∈S} (p_i/π_i) Δ_i,   π_i = P(i ∈ S)

The expected change is that of full participation whatever the law, also where no weights that sum
to one could do it. The price is variance: the weights of a round sum to one only on average. It
knows the importance and the inclusion probabilities, and stores nothing.

Source: Horvitz & Thompson, *A generalization of sampling without replacement from a finite
universe*, JASA 1952; applied to updates.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import inverse_inclusion
from fedavot.rules._rule import Rule, add_updates, by_cohort


def ht(importance: ArrayLike, inclusion: ArrayLike | None) -> Rule:
    """Return Horvitz–Thompson weighting of updates.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        What clients should count, and the probability that they take part.
    """
    ratios = inverse_inclusion("ht", importance, inclusion)
    choose = by_cohort(lambda cohort: ratios[cohort])
    return Rule(
        "ht",
        "importance, inclusion probabilities",
        "nothing",
        choose,
        add_updates,
        n_clients=ratios.size,
    )
