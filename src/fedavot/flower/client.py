"""The client's side: its name, and its memory if it keeps one.

A call of `introduce` is all that a ClientApp needs. With ``memory=True`` the app's train function
stays as it is: a mod around it takes the server's request out of the message, and turns the model
that is returned into what the server needs; see `fedavot.rules.held`. The mod is the outermost one,
so other mods see the same messages as without it.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedavot.flower.memory import wire
from fedavot.flower.memory.correction import offer, withdraw
from fedavot.flower.memory.layout import Layout, minus
from fedavot.flower.memory.store import Store
from fedavot.flower.who.asking import ACTION, RECORD
from fedavot.rules._held_client import Model, reply_of, total
from fedavot.rules.held import Reply, Request

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

    def answer(message: Message, context: Context) -> Message:
        key = str(message.content.config_records[RECORD]["key"])
        if key in context.node_config:
            told = ConfigRecord({"name": str(context.node_config[key])})
        else:
            told = ConfigRecord({"keys": ", ".join(map(repr, context.node_config))})
        return Message(RecordDict({RECORD: told}), reply_to=message)

    # Without the app's mods, which may expect a model in every message. An app that was introduced
    # before, or has a function of its own, keeps it.
    app._registered_funcs.setdefault(f"query.{ACTION}", answer)
    if memory and remember not in app._mods:
        # Train functions may be registered before this line or after it.
        app._mods = [remember, *app._mods]
        for name, call in list(app._registered_funcs.items()):
            if name.startswith("train."):
                app._registered_funcs[name] = _remembering(call)
    return app


def remember(message: Message, context: Context, call_next: Call) -> Message:
    """Keep the client's memory around a train function, as a mod of a ClientApp.

    Parameters
    ----------
    message : Message
        Message from the server; only messages with a request from FedAVOT are changed.
    context : Context
        Context of the app.
    call_next : function of (message, context)
        The app.
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


def _remembering(call: Call) -> Call:
    return lambda message, context: remember(message, context, call)


def _digest(record: ArrayRecord) -> str:
    """Return a digest of a model; it differs if a server went back to an earlier checkpoint."""
    digest = hashlib.blake2b(digest_size=16)
    for array in record.values():
        digest.update(array.data)
    return digest.hexdigest()
