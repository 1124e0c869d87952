"""FedAVOT in Flower: a strategy around a strategy, and what it needs.

Needs the extra ``flower``: ``pip install 'fedavot[flower]'``.
"""

from fedavot.flower._require import require_flower

require_flower()

from fedavot.flower.accounting import epsilon_spent  # noqa: E402
from fedavot.flower.identity import introduce  # noqa: E402
from fedavot.flower.log import Round  # noqa: E402
from fedavot.flower.options import Clients, Weighting  # noqa: E402
from fedavot.flower.privacy import ExactNoise  # noqa: E402
from fedavot.flower.strategy import FedAVOT  # noqa: E402

__all__ = [
    "Clients",
    "ExactNoise",
    "FedAVOT",
    "Round",
    "Weighting",
    "epsilon_spent",
    "introduce",
]
