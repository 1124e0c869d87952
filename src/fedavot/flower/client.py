"""The client's side: its name, and its memory if it keeps one.

A call of `introduce` is all that a ClientApp needs. With ``memory=True`` the app's train function
stays as it is: a mod around it takes the server's request out of the message, and turns the model
that is returned into what the server needs; see `fedavot.rules.held`. The mod is the outermost one,
so other mods see the same messages as without it.

A memory is kept in the state of the app, or in a file. Flower keeps ``context.state`` for as long
as the SuperNode runs, and only within one run: a server that is restarted starts a new one. With a
folder in the node configuration (or, for simulations, in the run configuration), the memory is in a
file there, which survives a restart of either side. It is written before the reply is sent, one
file per training and client.
"""

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedavot._files import ARCHIVE_FAILURES, read_archive, write_archive
from fedavot.flower.memory import wire
from fedavot.flower.memory.correction import offer, withdraw
from fedavot.flower.memory.wire import Layout, minus
from fedavot.flower.who.asking import ACTION, tell_name
from fedavot.rules._held_client import Model, reply_of, total
from fedavot.rules.held import ClientMemory, Reply, Request

_log = logging.getLogger("flwr")

FOLDER = "fedavot-folder"
"""Key of the node configuration, or the run configuration, with the folder."""

ABOUT = "fedavot.about"
MODELS = ("memory", "pending")
"""Fields of `ClientMemory` that are models."""
NUMBERS = {"since": int, "pending_round": int, "pending_fade": float}
"""Its other fields, and their types."""

Call = Callable[[Message, Context], Message]


def introduce(app: ClientApp, *, memory: bool = False) -> ClientApp:
    """Make a ClientApp tell the server its client name when asked, and keep its own memory.

    Only nodes without a registered name are asked, once each. The answer is the value in the node
    configuration under the key that the server asks for.

    Parameters
    ----------
    app : ClientApp
        The app, to which a query function for the action "fedavot" is added.
    memory : bool
        Whether the app keeps the client's memory, for ``FedAVOT(..., memory="clients")``: in the
        state of the app, or in a file if the node configuration has a folder under
        "fedavot-folder". With any other strategy it makes no difference.

    Returns
    -------
    ClientApp
        The same app.
    """
    # Without the app's mods, which may expect a model in every message. An app that was introduced
    # before, or has a function of its own, keeps it.
    app._registered_funcs.setdefault(f"query.{ACTION}", tell_name)
    if memory and remember not in app._mods:
        # Train functions may be registered before this line or after it.
        app._mods = [remember, *app._mods]
        for name, call in list(app._registered_funcs.items()):
            if name.startswith("train."):
                app._registered_funcs[name] = functools.partial(remember, call_next=call)
    return app


def remember(message: Message, context: Context, call_next: Call) -> Message:
    """Keep the client's memory around a train function, as a mod of a ClientApp.

    Only messages with a request from FedAVOT are changed.
    """
    asked = wire.take_request(message) if message.has_content() else None
    if asked is None:
        return call_next(message, context)
    about, sent_mean = asked
    (sent,) = message.content.array_records.values()
    layout = Layout(sent)
    store = Store(context, about.pop("training"), about.pop("client"), layout)
    mean = None if sent_mean is None else layout.take(sent_mean)
    request = Request(mean=mean, **about)
    round_ = _Round(layout.take(sent), _digest(sent), request)
    held, _ = store.load()
    path = None
    if held.recall(request) is not None and mean is not None:
        path = held.correction(request)
    offer(context, layout, path)
    try:
        reply = call_next(message, context)
    finally:
        corrects, followed = withdraw(context, layout, path)
    if reply.has_error() or len(reply.content.array_records) != 1:
        return reply  # the server reports what is wrong with it
    (trained,) = reply.content.array_records.values()
    told = round_.answer(store, trained, followed)
    if told is not None:
        about = {"round": told.round, "since": told.since, "corrects": corrects}
        memory = None if told.memory is None else layout.record(told.memory)
        wire.put_reply(reply, {**about, "products": list(told.products)}, memory)
    return reply


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


class _Round(NamedTuple):
    """The model, its digest and the request that a client has to answer."""

    start: Model
    digest: str
    request: Request

    def answer(self, store: Store, trained: ArrayRecord, path: Model | None) -> Reply | None:
        """Turn a trained model into a reply, and keep it; return None if it cannot be used."""
        layout = store.layout
        try:
            said = minus(layout.take(trained), self.start)
        except ValueError:
            return None
        if not all(np.isfinite(array).all() for array in said):
            return None
        # Another process of this node may have answered the same request in the meantime.
        held, model = store.load()
        old = held.recall(self.request)
        if held.pending is not None and model != self.digest:
            held.pending = None
        if path is not None:
            said = total((1.0, said), (1.0, path))
        if held.pending is not None:
            said = held.pending if old is None else total((1.0, held.pending), (1.0, old))
        whole = old is None or self.request.trust != 1.0
        sent = said if whole else minus(said, old or [])
        layout.put(trained, total((1.0, self.start), (1.0, sent)))
        if held.pending is None:
            # The update as the server will compute it, after rounding.
            news = minus(layout.take(trained), self.start)
            held.offer(self.request, minus(news, old) if whole and old is not None else news)
        store.save(held, self.digest)
        assert held.pending is not None
        return reply_of(self.request, held.since, held.pending, old)


def _digest(record: ArrayRecord) -> str:
    """Return a digest of a model; it differs if a server went back to an earlier checkpoint."""
    digest = hashlib.blake2b(digest_size=16)
    for array in record.values():
        digest.update(array.data)
    return digest.hexdigest()
