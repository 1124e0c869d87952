"""A grid in one process: real ClientApps, no Ray, no sockets, and clients that fail on demand."""

import json
import traceback
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.error import Error
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from fedavot.flower import introduce

SUPERLINK = 1
CLIENT_ERROR = 2
GIVEN_UP = {"lost": 3, "expired": 4, "dead": 5}
"""Flower's error codes for errors that the SuperLink reports for a client."""


@dataclass
class Node:
    """A node of the grid: its app, its configuration, and whether it is online."""

    app: ClientApp
    config: dict = field(default_factory=dict)
    name: str = ""
    online: bool = True
    asked: int = 0


class LocalGrid(Grid):
    """A grid that runs ClientApps in the process that sends the messages.

    Parameters
    ----------
    nodes : mapping from node id to Node
        The federation; it may be changed between rounds.
    fate : function of (node id, message), optional
        What happens to a train message: "reply", "error" (from the client), "dead", "lost" or
        "expired" (the SuperLink replies with an error), or "silent".
    tamper : function of (node id, reply), optional
        Returns the replies that replace the reply to a train message.
    run_config : dict, optional
        Run configuration that clients see.
    """

    def __init__(self, nodes, fate=lambda node, message: "reply", tamper=None, *, run_config=None):
        # A message needs the identity of its sender, which Flower sets in its own processes.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, SUPERLINK, 1
        self.nodes = nodes
        self.fate = fate
        self.tamper = tamper
        self.run_config = run_config or {}
        self.sent = []
        self._contexts = {}
        self._waiting = {}

    def get_nodes(self):
        return [
            NodeInfo(node_id=node, **({"name": it.name} if it.name else {}))
            for node, it in self.nodes.items()
            if it.online
        ]

    def get_node_ids(self):
        return [node.node_id for node in self.get_nodes()]

    def set_run(self, run):
        pass

    @property
    def run(self):
        return SimpleNamespace(run_id=TaskIdentity.run_id)

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages):
        identities = []
        for message in messages:
            identity = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = identity
            self.sent.append(message)
            identities.append(identity)
            reply = self._answer(message)
            if reply is not None:
                tampers = self.tamper and message.metadata.message_type == "train"
                replies = self.tamper(message.metadata.dst_node_id, reply) if tampers else [reply]
                self._waiting[identity] = replies
        return identities

    def pull_messages(self, message_ids):
        return [
            reply for identity in list(message_ids) for reply in self._waiting.pop(identity, [])
        ]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message):
        node = message.metadata.dst_node_id
        it = self.nodes.get(node, Node(ClientApp(), online=False))
        it.asked += 1
        training = message.metadata.message_type == "train"
        fate = self.fate(node, message) if training else "reply"
        if fate == "silent":
            return None
        if not it.online:
            fate = "dead"
        if fate in GIVEN_UP:
            reply = Message(Error(GIVEN_UP[fate], "node unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK
            return reply
        if fate == "error":
            return Message(
                Error(CLIENT_ERROR, "Traceback\nRuntimeError: out of luck"), reply_to=message
            )
        context = self._contexts.setdefault(
            node, Context(0, node, dict(it.config), RecordDict(), dict(self.run_config))
        )
        try:
            return it.app(message, context)
        except Exception:
            return Message(Error(CLIENT_ERROR, traceback.format_exc()), reply_to=message)


def app_of(update):
    """Return a ClientApp whose training is a function of (arrays, config, node configuration).

    It returns the new arrays and the metrics. The app says its name when asked.
    """
    app = introduce(ClientApp())

    @app.train()
    def train(message, context):
        record = next(iter(message.content.array_records.values()))
        arrays = {key: array.numpy() for key, array in record.items()}
        config = next(iter(message.content.config_records.values()))
        arrays, metrics = update(arrays, dict(config), dict(context.node_config))
        content = RecordDict({"arrays": record_of(arrays), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        metrics = {"loss": float(context.node_config.get("loss", 1.0)), "num-examples": 1}
        content = RecordDict({"metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    return app


def record_of(arrays):
    """Return named arrays as Flower's record."""
    return ArrayRecord({key: Array(np.asarray(value)) for key, value in arrays.items()})


def arrays_of(record):
    """Return a record's arrays by name."""
    return {key: array.numpy() for key, array in record.items()}


def everybody(kind=FedAvg, **options):
    """Return a strategy that asks all available nodes to train, and none to evaluate."""
    least = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
    return kind(**(least | options))


def federation(n_clients, update, **options):
    """Return a grid of clients "0", "1", ... with node ids from 100 and one update function."""
    app = app_of(update)
    nodes = {100 + i: Node(app, {"partition-id": i}) for i in range(n_clients)}
    return LocalGrid(nodes, **options)


def only(cohorts, others="silent"):
    """Return a fate: in round t the clients in ``cohorts[t - 1]`` reply, the others do not."""

    def fate(node, message):
        config = next(iter(message.content.config_records.values()))
        return "reply" if node - 100 in cohorts[int(config["server-round"]) - 1] else others

    return fate


def rounds_in(folder):
    """Return the lines of a folder's participation log, parsed."""
    text = (folder / "participation.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]
