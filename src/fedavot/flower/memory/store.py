"""Where a client keeps its memory: in the state of the app, or in a file.

Flower keeps ``context.state`` for as long as the SuperNode runs, and only within one run: a server
that is restarted starts a new one. With a folder in the node configuration (or, for simulations, in
the run configuration), the memory is in a file there, which survives a restart of either side. It
is written before the reply is sent, one file per training and client.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context
from numpy.typing import NDArray

from fedavot._files import ARCHIVE_FAILURES, read_archive, write_archive
from fedavot.flower.memory.layout import Layout
from fedavot.rules.held import ClientMemory

_log = logging.getLogger("flwr")

FOLDER = "fedavot-folder"
"""Key of the node configuration, or the run configuration, with the folder."""

ABOUT = "fedavot.about"
MODELS = ("memory", "pending")
"""Fields of `ClientMemory` that are models."""
NUMBERS = {"since": int, "pending_round": int, "pending_fade": float}
"""Its other fields, and their types."""


@dataclass(frozen=True)
class Store:
    """The storage of one client's memory in one training."""

    context: Context
    training: str
    client: str
    layout: Layout

    @property
    def path(self) -> Path | None:
        """The file, if there is a folder for it."""
        for config in (self.context.node_config, self.context.run_config):
            if folder := config.get(FOLDER):
                name = hashlib.sha256(json.dumps([self.training, self.client]).encode())
                return Path(str(folder)) / f"memory-{name.hexdigest()[:32]}.npz"
        return None

    def load(self) -> tuple[ClientMemory, str]:
        """Return the memory, and a digest of the model that its last innovation belongs to.

        The memory is a new one if there is none for this training and client.
        """
        try:
            about, models = self._read()
            if (about.pop("training"), about.pop("client")) == (self.training, self.client):
                model = about.pop("model")
                return ClientMemory(**about, **models), model
        except FileNotFoundError:
            pass
        except ARCHIVE_FAILURES as cause:
            _log.warning("FedAVOT: the memory in %s is lost: %s", self.path or "the state", cause)
        return ClientMemory(), ""

    def save(self, memory: ClientMemory, model: str) -> None:
        """Save what `load` returns in place of the earlier memory."""
        held = vars(memory)
        about = {name: value for name, value in held.items() if name not in MODELS}
        about |= {"training": self.training, "client": self.client, "model": model}
        models = {name: held[name] for name in MODELS if held[name] is not None}
        path, state = self.path, self.context.state
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            arrays = {
                f"{name}/{place}": array
                for name, arrays_of_model in models.items()
                for place, array in enumerate(arrays_of_model)
            }
            write_archive(path, {ABOUT: np.array(json.dumps(about)), **arrays})
            return
        state[ABOUT] = ConfigRecord(about)
        for name in MODELS:
            if name in models:
                state[f"fedavot.{name}"] = self.layout.record(models[name])
            elif f"fedavot.{name}" in state:
                del state[f"fedavot.{name}"]

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return numbers and models."""
        if self.path is not None:
            arrays, sealed = read_archive(self.path)
            if not sealed:
                raise ValueError("it has no checksum")
            about = dict(json.loads(str(arrays.pop(ABOUT))))
            if wrong := [name for name, kind in NUMBERS.items() if type(about[name]) is not kind]:
                raise ValueError(f"its {wrong[0]} is {about[wrong[0]]!r}")
            return about, {name: self._model(name, arrays) for name in MODELS}
        state = self.context.state
        if ABOUT not in state:
            raise FileNotFoundError(ABOUT)
        records = {name: state.get(f"fedavot.{name}") for name in MODELS}
        models = {
            name: self.layout.take(record) if isinstance(record, ArrayRecord) else None
            for name, record in records.items()
        }
        return dict(state.config_records[ABOUT]), models

    def _model(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]] | None:
        """Return a model from the arrays of a file; raise if it has other shapes."""
        found = [arrays[f"{name}/{i}"] for i in range(len(arrays)) if f"{name}/{i}" in arrays]
        shapes = [array.shape for array in found]
        if not found:
            return None
        if shapes != list(self.layout.shapes.values()):
            raise ValueError(f"it holds arrays of shapes {shapes}")
        return found
