"""Aggregation rules: FedAVOT's, FedAvg's and those of other methods.

Each is a function that takes what the rule has to know and returns a `Rule`; `build` finds them by
name. Describing a rule needs NumPy alone; training with it needs JAX.
"""

from fedavot.rules._rule import Asked, Report, Rule
from fedavot.rules.afl import afl
from fedavot.rules.amplified_fedavg import amplified_fedavg
from fedavot.rules.amplified_scaffold import amplified_scaffold
from fedavot.rules.area import area
from fedavot.rules.ca_fed import ca_fed
from fedavot.rules.catalogue import Known, build
from fedavot.rules.f3ast import f3ast
from fedavot.rules.fedau import fedau
from fedavot.rules.fedavg import fedavg
from fedavot.rules.fedavg_k import fedavg_k
from fedavot.rules.fedavot import fedavot
from fedavot.rules.fedawe import fedawe
from fedavot.rules.fedprox import fedprox
from fedavot.rules.fedstale import fedstale
from fedavot.rules.fedvarp import fedvarp
from fedavot.rules.focus import focus
from fedavot.rules.full import full
from fedavot.rules.horvitz_thompson import horvitz_thompson
from fedavot.rules.importance_average import importance_average
from fedavot.rules.mifa import mifa
from fedavot.rules.names import RuleName
from fedavot.rules.online import fedavot_online
from fedavot.rules.qffl import qffl
from fedavot.rules.scaffold import scaffold
from fedavot.rules.select import fedavot_select
from fedavot.rules.self_normalised_ipw import self_normalised_ipw
from fedavot.rules.server import fedadam, fedavgm, with_adam, with_server
from fedavot.rules.steady import steady

__all__ = [
    "Asked",
    "Known",
    "Report",
    "Rule",
    "RuleName",
    "afl",
    "amplified_fedavg",
    "amplified_scaffold",
    "area",
    "build",
    "ca_fed",
    "f3ast",
    "fedadam",
    "fedau",
    "fedavg",
    "fedavg_k",
    "fedavgm",
    "fedavot",
    "fedavot_online",
    "fedavot_select",
    "fedawe",
    "fedprox",
    "fedstale",
    "fedvarp",
    "focus",
    "full",
    "horvitz_thompson",
    "importance_average",
    "mifa",
    "qffl",
    "scaffold",
    "self_normalised_ipw",
    "steady",
    "with_adam",
    "with_server",
]
