"""Checkpoints: the state of a Flower run in one file, written atomically after every round.

Flower itself cannot resume a run. A checkpoint holds the model, the state of the wrapped strategy
(see `fedavot.flower.kept.state`), the aligner, Python's and NumPy's global random states (from
which Flower samples nodes and draws noise), the configurations and the metrics so far.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from fedavot._files import ARCHIVE_FAILURES, read_archive, write_archive
from fedavot.errors import CheckpointError, FileFormatError
from fedavot.flower.kept.packing import Arrays
from fedavot.flower.worth.records import view

FILE = "checkpoint.npz"
FORMAT = "fedavot-flower-checkpoint"
VERSION = 3


@dataclass
class Checkpoint:
    """The state of a run after a round: arrays, and everything else as JSON in ``meta``."""

    meta: dict[str, Any]
    arrays: Arrays = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the checkpoint file, atomically."""
        text = json.dumps({"format": FORMAT, "version": VERSION, **self.meta})
        meta = np.frombuffer(text.encode(), dtype=np.uint8)
        write_archive(folder / FILE, {"meta": meta, **self.arrays})

    @classmethod
    def load(cls, folder: Path) -> "Checkpoint":
        """Read the file that `save` wrote."""
        path = folder / FILE
        try:
            arrays, sealed = read_archive(path)
            meta = dict(json.loads(arrays.pop("meta").tobytes()))
        except ARCHIVE_FAILURES as cause:
            raise FileFormatError(f"{path} is not a checkpoint, or is truncated: {cause}") from None
        version = meta.get("version")
        if meta.get("format") != FORMAT or version != VERSION or not sealed:
            lacks = "" if sealed else ", without a checksum"
            raise FileFormatError(
                f"{path} holds {meta.get('format')!r} version {version!r}{lacks}, and this release "
                f"reads {FORMAT!r} version {VERSION}; finish that run with the release that began "
                "it, or start in another folder"
            )
        return cls(meta, arrays)


def pack_model(model: ArrayRecord) -> tuple[list[str], Arrays]:
    """Return the names of a model's arrays, and the arrays numbered for the file."""
    arrays = {f"model/{number}": view(array) for number, array in enumerate(model.values())}
    return list(model), arrays


def unpack_model(names: list[str], arrays: Arrays) -> ArrayRecord:
    """Return the model of a checkpoint."""
    saved = {name: arrays[f"model/{number}"] for number, name in enumerate(names)}
    return ArrayRecord({key: Array(np.asarray(values)) for key, values in saved.items()})


def form_of(model: ArrayRecord) -> dict[str, list[Any]]:
    """Return the shapes and number types of a model's arrays."""
    return {key: [list(array.shape), array.dtype] for key, array in model.items()}


def refuse_other_form(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise if a run began with a different model, given the forms of both.

    The model in the checkpoint may have other arrays: a strategy may add and remove them.
    """
    for key in [*wanted, *found]:
        if found.get(key) != wanted.get(key):
            raise CheckpointError(
                f"the checkpoint holds another model: array {key!r} is "
                f"{found.get(key, 'missing')} in the checkpoint and {wanted.get(key, 'missing')} "
                "in this run"
            )


def refuse_unusable(model: ArrayRecord, form: Mapping[str, Any], *, exact: bool) -> None:
    """Raise if a model in a checkpoint is not finite, or has an array of a different form.

    If ``exact``, it must have exactly the arrays of that form.
    """
    if exact and (odd := sorted(model.keys() ^ form.keys())):
        raise CheckpointError(
            f"the checkpoint was damaged or edited: array {odd[0]!r} is in its model or in this "
            "run's, and not in both; start in another folder"
        )
    for key, found in form_of(model).items():
        values = view(model[key])
        if form.get(key, found) != found or not (
            values.dtype.kind in "fiub" and np.isfinite(values).all()
        ):
            raise CheckpointError(
                f"the checkpoint was damaged or edited: array {key!r} of its model is {found}, and "
                f"must be finite and as {form.get(key, found)}; start in another folder"
            )


def rng_states() -> dict[str, Any]:
    """Return the states of the global random generators that Flower uses."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    numbers = [kind, np.asarray(keys).tolist(), position, has_gauss, cached]
    return {"python": [version, list(internal), gauss], "numpy": numbers}


def set_rng_states(state: Mapping[str, Any]) -> None:
    """Restore what `rng_states` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
