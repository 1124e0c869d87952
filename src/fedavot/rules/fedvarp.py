"""FedVARP: every client's last update, corrected by the new updates of the participants.

    θ ← θ + Σ_i p_i η y_i + (1/|S|) Σ_{i∈S} N p_i (Δ_i − η y_i),   then y_i ← Δ_i/η for i ∈ S

y_i is client i's last update, zero before the first; it is kept per unit of step size, so that it
stays right when steps change. The expected change is that of full participation if every client
takes part equally often: the memory removes the variance of partial participation, not the bias of
uneven availability. The rule knows the importance and stores one model per client. A round in which
no client reports changes nothing.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i. CA²FL (Wang et al., ICLR 2024) is
this rule with a server step where a cohort arrives together and importance is equal.

Source: Jhunjhunwala, Sharma, Nagarkatti & Joshi, *FedVARP: tackling the variance due to partial
client participation in federated learning*, UAI 2022, Algorithm 2, with server step 1.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._memory import remembering
from fedavot.rules._rule import Rule, by_cohort, scaled_importance
from fedavot.rules.names import RuleName


def fedvarp(importance: ArrayLike) -> Rule:
    """Return FedVARP: aggregation with memory, with the weights of FedAvg(K) for new updates.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return remembering(RuleName.FEDVARP, "importance", by_cohort(scaled_importance(shares)), shares)
