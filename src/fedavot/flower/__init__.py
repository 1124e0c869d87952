"""FedAVOT in Flower: a strategy that wraps a Flower strategy.

Requires the extra ``flower``: ``pip install 'fedavot[flower]'``.
"""

from fedavot.flower._require import require_flower

require_flower()

from fedavot.flower.client import introduce
from fedavot.flower.kept.checkpoint import Best, best_model
from fedavot.flower.kept.log import Round
from fedavot.flower.memory.correction import correction
from fedavot.flower.options import Admission, Memory, Weighting
from fedavot.flower.private.privacy import ExactNoise, epsilon_spent
from fedavot.flower.strategy import FedAVOT

__all__ = [
    "Admission",
    "Best",
    "ExactNoise",
    "FedAVOT",
    "Memory",
    "Round",
    "Weighting",
    "best_model",
    "correction",
    "epsilon_spent",
    "introduce",
]
