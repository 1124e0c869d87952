"""The plain average of whoever reports.

    θ ← (1/|S|) Σ_{i∈S} θ_i

What most deployments do. It knows nothing and stores nothing, and optimises the objective weighted
by E[1{i ∈ S}/|S|]: by who happens to be online.

Source: McMahan et al., *Communication-efficient learning of deep networks from decentralized
data*, AISTATS 2017, with clients of equal size.
"""

from fedavot.rules._rule import Rule, add_updates, by_cohort, equal_weights


def uniform() -> Rule:
    """Return the plain average."""
    choose = by_cohort(equal_weights)
    return Rule("uniform", "nothing", "nothing", choose, add_updates)
