"""FedAvg: the plain average of the clients that report.

    θ ← (1/|S|) Σ_{i∈S} θ_i

This is what most deployments do. It knows nothing and stores nothing, and optimises the objective
weighted by E[1{i ∈ S}/|S|], that is, by availability.

Source: McMahan et al., *Communication-efficient learning of deep networks from decentralized
data*, AISTATS 2017, with clients of equal size.
"""

from fedavot.rules._rule import Rule, add_updates, by_cohort, equal_weights
from fedavot.rules.names import RuleName


def fedavg() -> Rule:
    """Return FedAvg, the plain average."""
    choose = by_cohort(equal_weights)
    return Rule(RuleName.FEDAVG, "nothing", "nothing", choose, add_updates)
