"""Runs whose nodes change between rounds, and the nodes: named, registered, mute."""

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from grid import LocalGrid, Node, app_of, everybody, record_of

from fedavot.flower import FedAVOT

MODEL = {"w": np.zeros(2)}
APP = app_of(lambda arrays, config, node: (arrays, {"num-examples": 1}))


def named(name):
    """Return a node that gives this name when asked."""
    return Node(APP, {"partition-id": name})


def registered(name):
    return Node(APP, {"partition-id": "what it says of itself"}, name=name)


def mute():
    """Return a node whose app does not answer the question for its name."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        record = record_of(MODEL)
        content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return Node(app, {"partition-id": "mute"})


class Watched:
    """A run whose nodes change between rounds."""

    def __init__(self, nodes, **options):
        self.grid = LocalGrid(dict(nodes))
        self.seen = []
        options = {"importance": "uniform"} | options
        self.strategy = FedAVOT(everybody(), on_round=self._on_round, **options)
        self.changes = {}

    def _on_round(self, record):
        self.seen.append(record)
        change = self.changes.get(record.round)
        if change:
            change(self.grid.nodes)

    def run(self, n_rounds, changes=None):
        self.changes = changes or {}
        self.strategy.start(self.grid, record_of(MODEL), n_rounds)
        return self.seen

    @property
    def questions(self):
        return [
            it.metadata.dst_node_id
            for it in self.grid.sent
            if it.metadata.message_type == "query.fedavot"
        ]
