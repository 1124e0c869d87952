"""How far the expected weights are from the importance in the paper's own settings.

For each setting: the number of clients whose importance exceeds their inclusion probability, their
total importance, the Hall ratio, and the gap (total variation distance to the importance) of
FedAVOT, of the plain average 1/K, and of self-normalised inverse-probability weights.
"""

from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot._simplex import total_variation
from fedavot.alignment import Alignment
from fedavot.certificate import Certificate
from fedavot.feasibility import certify
from fedavot.laws._law import Law
from fedavot.rules.names import RuleName
from fedavot.solve import align


class Reach(NamedTuple):
    """What one setting's weights reach."""

    certificate: Certificate
    alignment: Alignment
    n_above: int
    """Number of clients with p_i > π_i."""
    importance_above: float
    """The sum of their importance."""
    gaps: dict[RuleName, float]
    """The gap of each rule."""


def measure(importance: Floats, law: Law) -> Reach:
    """Certify and align one setting, and compare with the two simple rules."""
    inclusion = law.inclusion()
    above = importance > inclusion
    alignment = align(importance, law)

    def gap(attained: Floats) -> float:
        return float(total_variation(importance, attained))

    return Reach(
        certify(importance, law),
        alignment,
        int(np.count_nonzero(above)),
        float(importance[above].sum()),
        {
            RuleName.FEDAVOT: gap(alignment.attained),
            RuleName.FEDAVG: gap(law.expected_weights(np.zeros(law.n_clients))),
            RuleName.SELF_NORMALISED_IPW: gap(law.expected_weights(np.log(importance / inclusion))),
        },
    )
