"""The rules that are replayed, with the weights they give to every round.

Weights that are fitted are fitted to the first part of the rounds. Weights that are learned come
from the rounds before.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence
from fedavot.audit.findings import LawName
from fedavot.audit.recommended import Need
from fedavot.audit.replay.scene import Scene
from fedavot.audit.statistics import rules as named
from fedavot.audit.statistics.online_weights import SOFTNESS, chosen, learned, softly_learned
from fedavot.audit.statistics.weighing import inverse, normalised, weights_of

MOMENTUM = 0.9
"""Of FedAvgM, as in `fedavot.rules.fedavgm`."""


@dataclass(frozen=True, eq=False)
class Way:
    """A rule over the rounds of a scene.

    Attributes
    ----------
    rule : str
        Its name.
    cohorts : Incidence
        The clients that train in each round.
    weights : float array, shape (n_entries,)
        The weight of each.
    needs : tuple of Need
        What it needs, one of these.
    momentum : float
        Momentum on the server.
    remembers : bool
        Whether it is the steady rule, whose weights are the shares of those present.
    softness : float
        Softness of its alignment.
    """

    rule: str
    cohorts: Incidence
    weights: Floats
    needs: tuple[Need, ...] = ()
    momentum: float = 0.0
    remembers: bool = False
    softness: float = 0.0


def ways_of(
    scene: Scene, *, law: LawName, softness: float, rng: np.random.Generator
) -> tuple[Way, ...]:
    """Return every rule that the facts of a log allow.

    Parameters
    ----------
    scene : Scene
        The rounds.
    law : LawName
        Which law FedAVOT is fitted by.
    softness : float
        Softness of the soft alignment.
    rng : Generator
        Generator for server selection.
    """
    window, fitting = scene.window, scene.fitting
    cohorts, shares = window.incidence, window.importance
    by_importance = normalised(window, shares[cohorts.members])
    inverse_weights = inverse(window, fitting.seen())
    plain = window.plain()
    ways = [
        Way(named.FEDAVG, cohorts, plain),
        Way(named.IMPORTANCE_AVERAGE, cohorts, by_importance),
        Way(named.FEDAVGM, cohorts, by_importance, momentum=MOMENTUM),
        Way(named.ONLINE, cohorts, learned(window)),
        Way(named.SOFT_ONLINE, cohorts, softly_learned(window), softness=SOFTNESS),
        Way(named.FEDAVOT, cohorts, weights_of(fitting.align(law), window)),
        Way(
            named.SOFT,
            cohorts,
            weights_of(fitting.align(law, softness=softness), window),
            softness=softness,
        ),
        Way(named.SELF_NORMALISED_IPW, cohorts, normalised(window, inverse_weights)),
        Way(named.HORVITZ_THOMPSON, cohorts, inverse_weights),
        Way(
            named.STEADY,
            cohorts,
            plain,
            ("memory-clients", "memory-server"),
            remembers=True,
        ),
    ]
    if scene.examples is not None:
        ways.append(Way(named.BY_EXAMPLES, cohorts, normalised(window, scene.examples)))
    if scene.applied is not None:
        ways.append(Way(named.AS_APPLIED, cohorts, scene.applied))
    if scene.available is not None:
        asked, weights = chosen(window, scene.available, rng)
        ways.append(Way(named.SELECT, asked.incidence, weights, ("select",)))
    return tuple(ways)
