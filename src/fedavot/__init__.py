"""Make federated learning optimise the objective you meant.

From an importance over clients and a law of their availability, decide whether exact alignment is
possible, with proof; compute aggregation weights for any cohort; and use them in training.
"""

from fedavot import errors, importance
from fedavot.aggregator import Aggregator
from fedavot.alignment import Alignment, Status
from fedavot.certificate import Certificate
from fedavot.feasibility import certify
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture
from fedavot.laws.successive import SuccessiveDraws
from fedavot.laws.uniform import UniformCohorts
from fedavot.online import OnlineAligner
from fedavot.selection import select
from fedavot.solve import align

__version__ = "0.1.0.dev0"

__all__ = [
    "Aggregator",
    "Alignment",
    "Certificate",
    "Cohorts",
    "IndependentClients",
    "Law",
    "Mixture",
    "OnlineAligner",
    "Status",
    "SuccessiveDraws",
    "UniformCohorts",
    "align",
    "certify",
    "errors",
    "importance",
    "select",
]
