"""Aggregation rules: FedAVOT's, FedAvg's and those of other methods.

Each is a function that takes what the rule has to know and returns a `Rule`; `build` finds them by
name, in the table of `names`. Describing a rule needs NumPy alone; training with it needs JAX.
"""

from fedavot.rules._rule import Asked, Report, Rule
from fedavot.rules.averages import fedavg, fedavg_k, fedprox, full, importance_average
from fedavot.rules.fairness import afl, qffl
from fedavot.rules.inverse_probability import f3ast, fedau, horvitz_thompson, self_normalised_ipw
from fedavot.rules.memories import area, fedstale, fedvarp, focus, mifa, scaffold
from fedavot.rules.names import Known, RuleName, build
from fedavot.rules.optimisers import fedadam, fedavgm, with_adam, with_server
from fedavot.rules.ours import fedavot, fedavot_online, fedavot_select, steady
from fedavot.rules.participation import amplified_fedavg, amplified_scaffold, ca_fed, fedawe

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
