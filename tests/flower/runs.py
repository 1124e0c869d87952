"""Runs that write files: one of every kind, with clients that fail, and all of their results."""

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    QFedAvg,
)
from grid import arrays_of, everybody, federation, record_of, rounds_in

import fedavot as fa
from fedavot.flower import FedAVOT, Weighting

N_CLIENTS, N_ROUNDS = 6, 8


def model():
    rng = np.random.default_rng(7)
    return {
        "w": rng.normal(size=(4, 3)).astype(np.float32),
        "b": rng.normal(size=5),
        "steps": np.array(0, np.int64),
    }


def update(arrays, config, node):
    client = int(node["partition-id"])
    new = {
        "w": arrays["w"] + np.float32(0.3) * (np.float32(np.sin(client)) - arrays["w"]),
        "b": arrays["b"] + 0.3 * (np.cos(client) - arrays["b"]),
        "steps": arrays["steps"] + 1 + client,
    }
    loss = float(1 + client + np.abs(new["b"]).mean())
    return new, {"num-examples": 10 + 3 * client, "train_loss": loss}


def fate(node, message):
    """Return what happens to a message, which depends only on the round and the node."""
    number = int(next(iter(message.content.config_records.values()))["server-round"])
    if node == 105 and number < 3:
        return "silent"  # joins late
    chance = (node * 7 + number * 13) % 10
    return {0: "error", 1: "dead", 2: "silent"}.get(chance, "reply")


def fixed(inner, noise=0.3):
    return DifferentialPrivacyServerSideFixedClipping(inner, noise, 0.5, 4)


def adaptive(inner):
    return DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.3, 4, clipped_count_stddev=1.0)


def aligned():
    law = fa.IndependentClients([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    return Weighting(
        alignment=fa.align(fa.importance.uniform(6), law), clients=[str(i) for i in range(6)]
    )


LISTED = {str(i): 1.0 + i for i in range(N_CLIENTS)}


KINDS = {
    "FedAvg": lambda: (everybody(), {"importance": LISTED}),
    "FedAdam": lambda: (everybody(FedAdam), {}),
    "FedYogi": lambda: (everybody(FedYogi), {}),
    "FedAvgM": lambda: (everybody(FedAvgM, server_momentum=0.9, server_learning_rate=0.7), {}),
    "QFedAvg": lambda: (everybody(QFedAvg, client_learning_rate=0.3), {}),
    "adaptive clipping": lambda: (adaptive(everybody()), {}),
    "fixed clipping of FedAdam": lambda: (fixed(everybody(FedAdam)), {}),
    "fixed clipping of FedAvgM": lambda: (fixed(everybody(FedAvgM, server_momentum=0.9)), {}),
    "sampling": lambda: (everybody(fraction_train=0.5), {}),
    "clipping of a sample": lambda: (
        fixed(everybody(fraction_train=0.5, fraction_evaluate=0.5)),
        {},
    ),
    "selection": lambda: (everybody(), {"weighting": Weighting(cohort_size=3, seed=5)}),
    "soft": lambda: (everybody(), {"weighting": Weighting(softness=0.5)}),
    "memory": lambda: (everybody(), {"memory": True, "importance": LISTED}),
    "memory of a growing roster": lambda: (
        everybody(FedAvgM, server_momentum=0.5),
        {"memory": True, "weighting": Weighting(softness=0.2), "importance": "examples"},
    ),
    "selection by counts": lambda: (
        everybody(),
        {"weighting": Weighting(cohort_size=2), "importance": "examples"},
    ),
    "an alignment": lambda: (everybody(), {"weighting": aligned()}),
    "evaluation": lambda: (FedAvg(min_available_nodes=1, fraction_evaluate=0.5), {}),
}


def evaluate(number, arrays):
    return MetricRecord({"norm": float(np.abs(arrays_of(arrays)["w"]).sum()), "round": number})


class Run:
    """One start of a run in a folder; the run may be interrupted."""

    def __init__(self, kind, folder, *, resume=False, on_round=None, evaluate=evaluate):
        inner, options = KINDS[kind]()
        self.strategy = FedAVOT(inner, folder=folder, resume=resume, on_round=on_round, **options)
        self.grid = federation(N_CLIENTS, update, fate=fate)
        self.folder = folder
        self.evaluate = evaluate

    def start(self, n_rounds=N_ROUNDS, initial=None):
        result = self.strategy.start(
            self.grid, record_of(initial or model()), n_rounds, evaluate_fn=self.evaluate
        )
        return outcome(self.folder, result)


def outcome(folder, result):
    """Return all results of a run, without the times."""
    arrays = {key: (a.dtype.str, a.tobytes()) for key, a in arrays_of(result.arrays).items()}
    lines = rounds_in(folder)
    for line in lines:
        del line["time"]
    metrics = {
        kind: {number: dict(record) for number, record in getattr(result, kind).items()}
        for kind in (
            "train_metrics_clientapp",
            "evaluate_metrics_clientapp",
            "evaluate_metrics_serverapp",
        )
    }
    memory = folder / "memory.rows"
    return arrays, lines, metrics, memory.read_bytes() if memory.exists() else None
