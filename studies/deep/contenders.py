"""The rules that are compared, by name.

Names are those of `fedavot.rules.build`, with options after a colon (``fedavot-steady:trust=1``),
and four more: ``plain``, the average by numbers of examples; ``fedavot-soft-online``, the weights
of `OnlineAligner` without memory; ``fedavot-steady-adam``, the steady rule with FedAdam's
optimiser on the server; and ``fedawe``, as its authors run it (mean of all models, change clipped
to norm .5).
"""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavot.online import OnlineAligner
from fedavot.rules import (
    Asked,
    Known,
    Rule,
    build,
    fedavot_online,
    fedawe,
    importance_average,
    steady,
    with_adam,
)

RULES = (
    *("full", "plain", "importance-average", "fedavot-steady", "fedavot-online"),
    *("fedavot-soft-online", "fedau", "mifa", "fedvarp", "fedstale", "scaffold", "fedawe"),
    *("f3ast", "fedadam", "horvitz-thompson", "fedavot-steady-adam"),
)
NEEDS_LAW = frozenset({"fedstale", "horvitz-thompson"})
SEES_ALL = frozenset({"f3ast"})
"""Rules that see everybody available, and ask ``size`` of them."""
TUNES_SERVER = frozenset({"fedadam", "fedavot-steady-adam"})
SERVER_GRID = (0.003, 0.01, 0.03)
"""Rules whose server step is tuned beside the local step, and its grid."""


@dataclass(frozen=True, eq=False)
class Given:
    """What a rule may know."""

    importance: NDArray[np.float64]
    sizes: NDArray[np.int64]
    """Examples of each client."""
    inclusion: NDArray[np.float64] | None
    cohort_size: int | None


def base(name: str) -> str:
    """Return a name without its options."""
    return name.partition(":")[0]


def rule_for(name: str, given: Given, server: float | None) -> Rule:
    """Return a rule; ``server`` is its server step, for those in `TUNES_SERVER`."""
    kind, _, text = name.partition(":")
    if kind == "plain":
        return importance_average(given.sizes / given.sizes.sum())
    if kind == "fedavot-soft-online":
        return _soft_online(given.importance)
    if kind == "fedavot-steady-adam":
        adapted = with_adam(steady(given.importance), step=0.01 if server is None else server)
        return dataclasses.replace(adapted, name=kind)
    if kind == "fedawe":
        return fedawe(clip=0.5, mean=True)
    pairs = (one.split("=") for one in text.split(",") if one)
    options = {key: json.loads(value) for key, value in pairs}
    if server is not None:
        options["server_step"] = server
    if kind in SEES_ALL and given.cohort_size is not None:
        options["cohort_size"] = given.cohort_size
    return build(kind, Known(given.importance, inclusion=given.inclusion), **options)


def _soft_online(importance: NDArray[np.float64]) -> Rule:
    def choose(cohorts: list[NDArray[np.int64]], rng: np.random.Generator) -> list[Asked]:
        aligner = OnlineAligner(importance)
        return [Asked(one, aligner.observe(one) if one.size else np.zeros(0)) for one in cohorts]

    return dataclasses.replace(
        fedavot_online(importance), name="fedavot-soft-online", choose=choose
    )
