"""Aggregation rules, one a file: FedAVOT's, FedAvg's, the rivals'.

Each is a function that takes what the rule has to know and returns a `Rule`; `build` finds them by
name.
"""

from fedavot._extras import require

require("training", "jax", by="fedavot.rules")

from fedavot.rules._rule import Asked, Report, Rule  # noqa: E402
from fedavot.rules.afl import afl  # noqa: E402
from fedavot.rules.catalogue import NAMES, Known, build  # noqa: E402
from fedavot.rules.f3ast import f3ast  # noqa: E402
from fedavot.rules.fedau import fedau  # noqa: E402
from fedavot.rules.fedavg_k import fedavg_k  # noqa: E402
from fedavot.rules.fedavot import fedavot  # noqa: E402
from fedavot.rules.fedawe import fedawe  # noqa: E402
from fedavot.rules.fedprox import fedprox  # noqa: E402
from fedavot.rules.fedvarp import fedvarp  # noqa: E402
from fedavot.rules.full import full  # noqa: E402
from fedavot.rules.ht import ht  # noqa: E402
from fedavot.rules.memory import fedavot_memory  # noqa: E402
from fedavot.rules.mifa import mifa  # noqa: E402
from fedavot.rules.online import fedavot_online  # noqa: E402
from fedavot.rules.p_normalised import p_normalised  # noqa: E402
from fedavot.rules.qffl import qffl  # noqa: E402
from fedavot.rules.scaffold import scaffold  # noqa: E402
from fedavot.rules.select import fedavot_select  # noqa: E402
from fedavot.rules.snipw import snipw  # noqa: E402
from fedavot.rules.uniform import uniform  # noqa: E402

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
