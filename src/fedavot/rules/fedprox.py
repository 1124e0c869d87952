"""FedProx: a proximal term keeps clients near the model they started from.

    θ_i ≈ argmin f_i(ϑ) + (μ/2) ‖ϑ − θ‖²,   θ ← (1/|S|) Σ_{i∈S} θ_i

The term limits how far local models drift apart; it does not correct for availability. The rule
knows nothing and stores nothing. The paper samples clients by p and takes their plain average;
where availability decides who takes part, the plain average remains, and with it the bias. Every
client takes H steps here: the paper's other half, devices that do part of their work, is left out.

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith, *Federated optimization in heterogeneous
networks*, MLSys 2020, Algorithm 2.
"""

from fedavot._checks import as_amount
from fedavot.rules._rule import Rule, add_updates, by_cohort, equal_weights
from fedavot.rules.names import RuleName


def fedprox(*, proximal: float = 1.0) -> Rule:
    """Return FedProx.

    Parameters
    ----------
    proximal : float
        μ, at least 0. The paper tunes it over .001, .01, .1 and 1, and finds 1 the best for three
        of its five datasets; 0 is the plain average.
    """
    return Rule(
        RuleName.FEDPROX,
        "nothing",
        "nothing",
        by_cohort(equal_weights),
        add_updates,
        proximal=as_amount(proximal, what="proximal"),
    )
