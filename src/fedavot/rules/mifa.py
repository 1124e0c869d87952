"""MIFA: everybody's last update, every round.

    y_i ← Δ_i/η for i ∈ S,   then θ ← θ + Σ_i p_i η y_i

Updates are remembered per unit of step size, so that they fit when steps change. Where everybody
reports again within bounded time the bias vanishes, whatever the law. It knows the importance and
stores one model a client; a running total keeps a round's cost at |S| models, not N.

The paper has everybody take part in the first round. Here memories start at zero: until a client
was seen the objective leaves it out, and early steps are shorter by its importance. A round in
which nobody reports changes nothing. The published rule is for p_i = 1/N; here 1/N is replaced by
p_i.

Source: Gu, Huang, Zhang & Huang, *Fast federated learning in the presence of arbitrary device
unavailability*, NeurIPS 2021, Algorithm 1.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._rule import Rule, by_cohort
from fedavot.rules.memory import empty_memory, step


def mifa(importance: ArrayLike) -> Rule:
    """Return MIFA: the step with memory, fresh updates weighted by importance.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    """
    shares = as_shares(importance)
    return Rule(
        "mifa",
        "importance",
        "one model a client",
        by_cohort(lambda cohort: shares[cohort]),
        step,
        init=lambda params, n_clients: empty_memory(shares, params, n_clients),
        remembers=True,
        n_clients=shares.size,
    )
