"""The aligner of a weighting: how it begins, what it gives, and whether a checkpoint has another.

Its potentials at the start are log p, or 0 in a soft aligner: the price of that is on the spread of
its potentials, so these are what is learnt itself.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.alignment import Alignment
from fedavot.flower.options import Weighting
from fedavot.online import OnlineAligner
from fedavot.soft_online import SoftOnlineAligner

Aligner = OnlineAligner | SoftOnlineAligner


def beginning(amounts: Floats, weighting: Weighting) -> Floats:
    """Return the potentials of clients of whom nothing is learnt yet, shape (n_clients,)."""
    if weighting.price > 0:
        return np.zeros(amounts.size)
    # 0 for clients of importance 0, whose potential is never used.
    return np.log(np.where(amounts > 0, amounts, 1.0))


def new_aligner(amounts: Floats, weighting: Weighting) -> Aligner:
    """Return an aligner for clients of these amounts of importance."""
    shares, start = amounts / amounts.sum(), beginning(amounts, weighting)
    step, softness = weighting.step, weighting.price
    if softness > 0:
        return SoftOnlineAligner(shares, softness=softness, step=step, potentials=start)
    return OnlineAligner(shares, step=step, potentials=start)


def restored(state: Mapping[str, Any], weighting: Weighting) -> Aligner:
    """Return the aligner of a checkpoint."""
    kind: type[Aligner] = SoftOnlineAligner if weighting.price > 0 else OnlineAligner
    return kind.from_state(state, source="the checkpoint")


def given_by(aligner: Aligner, cohort: list[int], amounts: Floats) -> Floats:
    """Return the weights of a cohort with these amounts of importance."""
    if not isinstance(aligner, SoftOnlineAligner):
        return aligner.weights(cohort)
    learnt = np.where(amounts > 0, aligner.effective_potentials[cohort], -np.inf)
    weights = amounts * np.exp(learnt - learnt.max())
    return np.asarray(weights / weights.sum())


def differs(state: Mapping[str, Any], weighting: Weighting) -> str | None:
    """Return how the weights of a checkpoint are found otherwise; None if they are not."""
    learns = weighting.alignment is None
    if learns != (state["aligner"] is not None) and state["clients"].size:
        return "its weights come from " + ("an alignment" if learns else "an online aligner")
    if state["alignment"] != fingerprint(weighting.alignment):
        return "its weights come from another alignment"
    options = {"softness": weighting.price, "step": weighting.step}
    for option, wanted in options.items() if state["aligner"] is not None else ():
        found = state["aligner"].get(option, 0.0)
        if found != wanted:
            return f"its {option} is {found}, and that of this run is {wanted}"
    return None


def fingerprint(alignment: Alignment | None) -> str | None:
    """Return a digest of an alignment; None without one."""
    if alignment is None:
        return None
    content = alignment.potentials.tobytes() + alignment.levels.tobytes()
    return hashlib.sha256(content + alignment.objective.encode()).hexdigest()
