"""Checks that SecAgg+ with aligned weights can use a weighting, a model and a number of clients."""

from typing import Any

import numpy as np
from flwr.server.workflow import SecAggPlusWorkflow
from numpy.typing import NDArray

from fedavot.errors import OptionError, TaskError
from fedavot.flower.options import Weighting
from fedavot.flower.worth.importance import Importance
from fedavot.flower.worth.records import is_float

REACH = 0.99
"""Fraction of the clipping range from which entries of the model are refused."""


def check_weighting(weighting: Weighting, importance: Importance) -> None:
    """Refuse weights that do not follow from one number per client."""
    alignment = weighting.alignment
    if alignment is not None and alignment.objective != "entropy":
        raise OptionError(
            f"the alignment's objective is {alignment.objective!r}, whose weights in a smaller "
            "cohort do not follow from one number per client; align with objective='entropy'"
        )
    if alignment is not None and alignment.levels.any():
        raise OptionError(
            f"the alignment has {int(alignment.levels.max()) + 1} levels, and only the lowest "
            "level in a cohort has weight, which depends on dropouts; learn the weights online, or "
            "align softly with softness > 0"
        )
    if weighting.cohort_size is not None:
        raise OptionError(
            "the weights of a chosen cohort do not follow from one number per client; leave out "
            "cohort_size under secure aggregation"
        )
    if importance == "examples":
        raise OptionError(
            "importance 'examples' needs the clients' example counts, which secure aggregation "
            "hides from the server; pass a mapping"
        )


def check_model(model: list[NDArray[Any]], clipping_range: float) -> None:
    """Refuse a model that Flower's SecAgg+ would silently change."""
    for place, array in enumerate(model):
        if not is_float(array):
            continue
        if array.dtype.itemsize < 4:
            raise TaskError(
                f"array {place} of the model is {array.dtype}, whose precision is too low for the "
                "sums of SecAgg+; use float32"
            )
        if array.ndim == 0:
            raise TaskError(
                f"array {place} of the model has no dimensions, and SecAgg+ does not average it; "
                "give it the shape (1,)"
            )
        largest = float(np.abs(array).max(initial=0.0))
        if not largest < REACH * clipping_range:
            raise TaskError(
                f"array {place} of the model has an entry of size {largest}, and SecAgg+ clips at "
                f"clipping_range {clipping_range}; use a larger one in the workflow"
            )


def check_size(n_asked: int, workflow: SecAggPlusWorkflow) -> None:
    """Refuse to ask more clients than the sums of the protocol can hold."""
    most = (workflow.modulus_range - 1) // workflow.quantization_range
    if n_asked > most:
        raise OptionError(
            f"{n_asked} clients are asked, but sums of more than {most} overflow the workflow's "
            "modulus_range; ask fewer clients, or use a smaller quantization_range"
        )
