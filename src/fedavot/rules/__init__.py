"""Aggregation rules, one a file: FedAVOT's, FedAvg's, the rivals'.

Each is a function that takes what the rule has to know and returns a `Rule`; `build` finds them by
name.
"""

from fedavot.rules._rule import Asked, Report, Rule
from fedavot.rules.afl import afl
from fedavot.rules.catalogue import NAMES, Known, build
from fedavot.rules.f3ast import f3ast
from fedavot.rules.fedau import fedau
from fedavot.rules.fedavg_k import fedavg_k
from fedavot.rules.fedavot import fedavot
from fedavot.rules.fedawe import fedawe
from fedavot.rules.fedprox import fedprox
from fedavot.rules.fedvarp import fedvarp
from fedavot.rules.full import full
from fedavot.rules.ht import ht
from fedavot.rules.memory import fedavot_memory
from fedavot.rules.mifa import mifa
from fedavot.rules.online import fedavot_online
from fedavot.rules.p_normalised import p_normalised
from fedavot.rules.qffl import qffl
from fedavot.rules.scaffold import scaffold
from fedavot.rules.select import fedavot_select
from fedavot.rules.snipw import snipw
from fedavot.rules.uniform import uniform

__all__ = [
    "NAMES",
    "Asked",
    "Known",
    "Report",
    "Rule",
    "afl",
    "build",
    "f3ast",
    "fedau",
    "fedavg_k",
    "fedavot",
    "fedavot_memory",
    "fedavot_online",
    "fedavot_select",
    "fedawe",
    "fedprox",
    "fedvarp",
    "full",
    "ht",
    "mifa",
    "p_normalised",
    "qffl",
    "scaffold",
    "snipw",
    "uniform",
]
