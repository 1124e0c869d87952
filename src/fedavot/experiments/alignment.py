"""How far the paper's own settings are from what they ask for.

For each setting: how many clients are wanted more than they take part, the Hall ratio, and the L1
distance from the importance to the expected weights of FedAVOT, of 1/K, and of self-normalised
inverse-probability weights (p_i/π_i, normalised over the cohort).
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot.alignment import Alignment
from fedavot.certificate import Certificate
from fedavot.experiments.settings import Setting
from fedavot.feasibility import certify
from fedavot.solve import align


@dataclass(frozen=True, eq=False)
class Row:
    """One setting's figures; distances are L1."""

    setting: Setting
    certificate: Certificate
    alignment: Alignment
    overwanted: int
    overwanted_mass: float
    distance_fedavot: float
    distance_uniform: float
    distance_ipw: float


def measure(setting: Setting) -> Row:
    """Certify and align one setting, and compare with the two simple rules."""
    importance, law = setting.importance, setting.law
    inclusion = law.inclusion()
    short = importance > inclusion
    alignment = align(importance, law)
    return Row(
        setting,
        certify(importance, law),
        alignment,
        int(np.count_nonzero(short)),
        float(importance[short].sum()),
        _distance(importance, alignment.attained),
        _distance(importance, law.expected_weights(np.zeros(law.n_clients))),
        _distance(importance, law.expected_weights(np.log(importance / inclusion))),
    )


def _distance(importance: Floats, attained: Floats) -> float:
    return float(np.abs(importance - attained).sum())
