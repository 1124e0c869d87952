"""FedProx: a proximal term keeps clients near the model they started from.

    θ_i ≈ argmin f_i(ϑ) + (μ/2) ‖ϑ − θ‖²,   θ ← (1/|S|) Σ_{i∈S} θ_i

The term limits how far local models drift apart; it does not correct for availability. The rule
stores nothing, and knows nothing: the paper samples clients by p and takes their plain average;
where availability decides which clients take part, the plain average remains, and with it the bias.
The authors' program weights the average by the number of examples, as `importance_average` does:
pass the importance for that. Every client takes H steps here: the paper's second part, devices that
do only part of the work, is left out.

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith, *Federated optimization in heterogeneous
networks*, MLSys 2020, Algorithm 2.
"""

import dataclasses

from numpy.typing import ArrayLike

from fedavot._checks import as_amount
from fedavot.rules._rule import Rule
from fedavot.rules.fedavg import fedavg
from fedavot.rules.importance_average import importance_average
from fedavot.rules.names import RuleName


def fedprox(importance: ArrayLike | None = None, *, proximal: float = 1.0) -> Rule:
    """Return FedProx.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), optional
        A distribution over the clients, by which to weight the average; the plain average if not
        given.
    proximal : float
        μ, at least 0. The paper tunes it over .001, .01, .1 and 1, and finds 1 the best for three
        of its five datasets; 0 is the plain average.
    """
    average = fedavg() if importance is None else importance_average(importance)
    strength = as_amount(proximal, what="proximal")
    return dataclasses.replace(average, name=RuleName.FEDPROX, proximal=strength)
