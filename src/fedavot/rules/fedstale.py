"""FedStale: fresh updates weighted by inverse probability, stale ones with a separate weight.

    θ ← θ + β Σ_i p_i η y_i + Σ_{i∈S} (p_i/π_i) (Δ_i − β η y_i),   then y_i ← Δ_i/η for i ∈ S

y_i is client i's last update per unit of step size, zero before the first; π_i = P(i ∈ S). The
expected change is that of full participation for every β: β = 0 is Horvitz–Thompson, β = 1 FedVARP
with inverse-probability weights. A small β helps if some clients return so rarely that their
updates are stale. The rule knows the importance and the inclusion probabilities, and stores one
model per client. A round in which no client reports changes nothing.

The published rule is for p_i = 1/N; here 1/N is replaced by p_i.

Source: Rodio & Neglia, *FedStale: leveraging stale client updates in federated learning*, ECAI 2024
(arXiv 2405.04171), with server step 1.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import as_part, as_shares, inverse_inclusion
from fedavot.rules._memory import remembering
from fedavot.rules._rule import Rule, by_cohort
from fedavot.rules.names import RuleName


def fedstale(importance: ArrayLike, inclusion: ArrayLike | None, *, trust: float = 0.5) -> Rule:
    """Return FedStale.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        Importance of each client, and the probability that it takes part.
    trust : float
        β, from 0 to 1: the weight of stale updates, which the paper tunes.
    """
    ratios = inverse_inclusion(RuleName.FEDSTALE, importance, inclusion)
    shares = as_shares(importance)
    part = as_part(trust, what="trust")
    choose = by_cohort(lambda cohort: ratios[cohort])
    knows = "importance, inclusion probabilities"
    return remembering(RuleName.FEDSTALE, knows, choose, shares, trust=part)
