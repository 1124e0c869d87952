"""FedAVOT in Flower: a strategy that wraps a Flower strategy.

Requires the extra ``flower``: ``pip install 'fedavot[flower]'``.
"""

from fedavot.flower._require import require_flower

require_flower()

from fedavot.flower.kept.best import Best, best_model
from fedavot.flower.kept.log import Round
from fedavot.flower.options import Admission, Weighting
from fedavot.flower.private.accounting import epsilon_spent
from fedavot.flower.private.privacy import ExactNoise
from fedavot.flower.strategy import FedAVOT
from fedavot.flower.who.identity import introduce

__all__ = [
    "Admission",
    "Best",
    "ExactNoise",
    "FedAVOT",
    "Round",
    "Weighting",
    "best_model",
    "epsilon_spent",
    "introduce",
]
