"""MIFA: the last update of every client, in every round.

    y_i ← Δ_i/η for i ∈ S,   then θ ← θ + Σ_i p_i η y_i

Updates are stored per unit of step size, so that they stay right when steps change. If every client
reports again within bounded time the bias vanishes, whatever the law. The rule knows the importance
and stores one model per client; a running total keeps a round's cost at |S| models, not N.

In the paper every client takes part in the first round. Here memories start at zero: until a client
has taken part, the objective leaves it out, and early steps are shorter by its importance. A round
in which no client reports changes nothing. The published rule is for p_i = 1/N; here 1/N is
replaced by p_i.

Source: Gu, Huang, Zhang & Huang, *Fast federated learning in the presence of arbitrary device
unavailability*, NeurIPS 2021, Algorithm 1.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._memory import remembering
from fedavot.rules._rule import Rule, by_cohort
from fedavot.rules.names import RuleName


def mifa(importance: ArrayLike) -> Rule:
    """Return MIFA: aggregation with memory, with the importance as weights of new updates.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return remembering(
        RuleName.MIFA, "importance", by_cohort(lambda cohort: shares[cohort]), shares
    )
