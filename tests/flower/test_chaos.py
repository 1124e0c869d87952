"""Whatever nodes and replies do, the record of every round is consistent."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvgM
from grid import LocalGrid, Node, app_of, arrays_of, everybody, record_of, rounds_in

from fedavot.flower import FedAVOT, Weighting

MODEL = {"w": np.linspace(-1, 1, 6).reshape(3, 2), "b": np.linspace(0, 1, 4)}


def update(arrays, config, node):
    client = int(node["partition-id"])
    new = {key: value + 0.3 * (np.cos(client) - value) for key, value in arrays.items()}
    return new, {"num-examples": 10 + client, "train_loss": 0.5 + client}


class Chaos:
    """A federation in which nodes come, go and restart, and replies are corrupted."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.app = app_of(update)
        self.grid = LocalGrid({}, fate=self.fate, tamper=self.tamper)
        self.next = 100
        for client in range(6):
            self.appear(client)

    def appear(self, client):
        self.grid.nodes[self.next] = Node(self.app, {"partition-id": client})
        self.next += 1

    def between_rounds(self, record):
        nodes = self.grid.nodes
        if self.rng.random() < 0.3 and len(nodes) > 4:
            del nodes[int(self.rng.choice(list(nodes)))]
        if self.rng.random() < 0.4:
            self.appear(int(self.rng.integers(8)))
        for node in nodes.values():
            node.online = self.rng.random() < 0.9
        next(iter(nodes.values())).online = True

    def fate(self, node, message):
        return str(self.rng.choice(["reply", "error", "dead", "silent"], p=[0.7, 0.1, 0.1, 0.1]))

    def tamper(self, node, reply):
        kind = self.rng.integers(8)
        if reply.has_error() or kind > 3:
            return [reply]
        if kind == 0:
            return []
        if kind == 1:
            return [reply, reply]
        wrong = np.full((3, 2), np.nan) if kind == 2 else np.zeros((2, 3))
        reply.content["arrays"]["w"] = record_of({"w": wrong})["w"]
        return [reply]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"importance": "examples", "memory": True},
        {"weighting": Weighting(cohort_size=2, softness=0.2)},
    ],
    ids=["uniform", "memory by counts", "soft selection"],
)
def test_whatever_happens_the_records_are_consistent(tmp_path, caplog, seed, options):
    chaos, n_rounds = Chaos(seed), 40
    caplog.set_level("ERROR", "flwr")
    for last in (n_rounds // 3, n_rounds):
        strategy = FedAVOT(
            everybody(FedAvgM),
            folder=tmp_path,
            resume=True,
            on_round=chaos.between_rounds,
            **options,
        )
        result = strategy.start(chaos.grid, record_of(MODEL), last)
    lines = rounds_in(tmp_path)
    assert [line["round"] for line in lines] == list(range(1, n_rounds + 1))
    total, counted = dict.fromkeys(strategy.importance, 0.0), 0
    for line in lines:
        parts = [*line["replied"], *line["failed"], *line["late"], *line["excluded"]]
        assert sorted(parts) == line["asked"]
        assert set(line["asked"]) <= set(line["available"])
        assert list(line["weights"]) == line["replied"]
        if line["replied"]:
            counted += 1
            assert sum(line["weights"].values()) == pytest.approx(1.0, abs=1e-12)
        for name, weight in line["weights"].items():
            total[name] += weight
    assert sum(total.values()) == pytest.approx(counted)
    assert all(np.isfinite(values).all() for values in arrays_of(result.arrays).values())
