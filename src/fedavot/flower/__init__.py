"""FedAVOT in Flower: a strategy that wraps a Flower strategy.

Requires the extra ``flower``: ``pip install 'fedavot[flower]'``.
"""

from fedavot.flower._require import require_flower

require_flower()

from fedavot.flower.accounting import epsilon_spent
from fedavot.flower.identity import introduce
from fedavot.flower.log import Round
from fedavot.flower.options import Admission, Weighting
from fedavot.flower.privacy import ExactNoise
from fedavot.flower.strategy import FedAVOT

__all__ = [
    "Admission",
    "ExactNoise",
    "FedAVOT",
    "Round",
    "Weighting",
    "epsilon_spent",
    "introduce",
]
