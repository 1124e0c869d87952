"""FedAVOT in Flower: a strategy that wraps a Flower strategy.

Requires the extra ``flower``: ``pip install 'fedavot[flower]'``.
"""

from fedavot.flower._require import require_flower

require_flower()

from fedavot.flower.accounting import epsilon_spent  # noqa: E402
from fedavot.flower.identity import introduce  # noqa: E402
from fedavot.flower.log import Round  # noqa: E402
from fedavot.flower.options import Admission, Weighting  # noqa: E402
from fedavot.flower.privacy import ExactNoise  # noqa: E402
from fedavot.flower.strategy import FedAVOT  # noqa: E402

__all__ = [
    "Admission",
    "ExactNoise",
    "FedAVOT",
    "Round",
    "Weighting",
    "epsilon_spent",
    "introduce",
]
