"""A CNN with batch norm, in an own PyTorch loop with `fa.Aggregator`.

    python -m studies.deep.batchnorm --data pixels8.npz --out results/deep

Data, clients, availability, local training and measures are those of `studies.deep.run` at 8 × 8;
cohorts are other draws from the same laws. Importance is uniform, and the network has batch norm
where that has group norm: its weights are remembered, its running statistics averaged by the
weights of the round, its counters averaged and rounded. The rules are the plain average of the same
state_dicts, `Aggregator`, and `Aggregator` without memory. Steps are chosen on seed 1000. What is
finished is kept in OUT/batchnorm.csv.
"""

import argparse
import csv
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from studies.deep.availability import cohorts
from studies.deep.files import written
from studies.deep.run import SEEDS, TUNING
from studies.deep.world import DESIGNS, World

import fedavot as fa

State = dict[str, torch.Tensor]
COLUMNS = ("rule", "setting", "rounds", "seed", "step", "tail_loss", "test_accuracy")
STEPS = (0.1, 0.2, 0.4, 0.8)
RECORDS = 5
"""Number of losses in the last quarter whose mean is the tail loss."""


def plain(n_clients: int) -> Callable[..., State]:
    """Return the average of the clients' models, all of the same size."""

    def aggregate(state: State, trained: dict[int, State], lr: float) -> State:
        tables = {key: torch.stack([own[key] for own in trained.values()]) for key in state}
        return {key: each.to(torch.float64).mean(0).to(each.dtype) for key, each in tables.items()}

    return aggregate


def ours(memory: bool) -> Callable[..., Any]:
    """Return the rule of `fa.Aggregator`."""

    def start(n_clients: int) -> Callable[..., State]:
        aggregator = fa.Aggregator(dict.fromkeys(range(n_clients), 1.0), memory=memory)
        return lambda state, trained, lr: aggregator.aggregate(state, trained, lr=lr)

    return start


RULES = {"plain": plain, "fedavot-steady": ours(True), "fedavot-soft-online": ours(False)}


def network(world: World) -> torch.nn.Module:
    """Return the network of the design, with batch norm."""
    layers: list[torch.nn.Module] = []
    below, side = world.network.colours, world.network.side
    for width in world.network.channels:
        layers += [torch.nn.Conv2d(below, width, 3, padding=1), torch.nn.BatchNorm2d(width)]
        layers += [torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
        below, side = width, side // 2
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(side**2 * below, 10))


class Lane:
    """A run: its data, cohorts, first model and batches, all from a seed. It runs once."""

    def __init__(self, world: World, setting: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.design, self.seed, self.net = world.design, seed, network(world)
        self.data, self.test = (
            tuple(torch.from_numpy(np.array(part)) for part in parts)
            for parts in (world.data, world.test)
        )
        self.data = (self.data[0].movedim(-1, 2), self.data[1].long())
        self.test = (self.test[0].movedim(-1, 1), self.test[1].long())
        self.draw = cohorts(setting, world.clients, world.design.cohort_size)

    def run(self, rule: str, step: float, rounds: int) -> tuple[float, float]:
        """Return the tail loss and the test accuracy."""
        aggregate = RULES[rule](self.design.n_clients)
        state: Any = {key: each.clone() for key, each in self.net.state_dict().items()}
        sizes = self.design.step_sizes(step, rounds)
        drawn, tail = self.draw(np.random.default_rng(self.seed), rounds), []
        for number, (cohort, lr) in enumerate(zip(drawn, sizes.tolist(), strict=True), start=1):
            trained = {int(client): self.train(state, int(client), lr) for client in cohort}
            try:
                state = aggregate(state, trained, lr) if trained else state
            except fa.errors.ModelError:  # it diverged
                return np.inf, 0.0
            if 4 * number > 3 * rounds and number % max(rounds // 4 // RECORDS, 1) == 0:
                tail.append(self.loss(state))
        return float(np.mean(tail)), self.accuracy(state)

    def train(self, state: State, client: int, lr: float) -> State:
        """Return a client's model after its local steps."""
        self.net.load_state_dict(state)
        self.net.train()
        images, labels = (part[client] for part in self.data)
        optimiser = torch.optim.SGD(self.net.parameters(), lr)
        picked = torch.randperm(len(labels))[: self.design.local_steps * self.design.batch_size]
        for batch in picked.split(self.design.batch_size):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(self.net(images[batch]), labels[batch]).backward()
            optimiser.step()
        return {key: each.clone() for key, each in self.net.state_dict().items()}

    @torch.no_grad()
    def scores(self, state: State, images: torch.Tensor) -> torch.Tensor:
        """Return the class scores of images."""
        self.net.load_state_dict(state)
        self.net.eval()
        return torch.cat([self.net(part) for part in images.split(2_000)])

    def loss(self, state: State) -> float:
        """Return the mean training loss; infinite if it is not finite."""
        scores = self.scores(state, self.data[0].flatten(0, 1))
        loss = float(torch.nn.functional.cross_entropy(scores, self.data[1].flatten()))
        return loss if np.isfinite(loss) else np.inf

    def accuracy(self, state: State) -> float:
        """Return the share of the test images that are classified correctly."""
        images, labels = self.test
        return float((self.scores(state, images).argmax(1) == labels).double().mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune the steps, then report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a file of studies.deep.data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", default=["daynight", "phones", "gone-early"])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    world = World("pixels8", DESIGNS["pixels8"], options.data)
    path, rows = options.out / "batchnorm.csv", []
    if path.exists():
        rows = list(csv.DictReader(path.read_text().splitlines()))

    def measured(*lane: Any) -> float:
        """Run a lane unless it is done, and return its tail loss."""
        key = dict(zip(COLUMNS[:5], map(str, lane), strict=True))
        for row in rows:
            if key.items() <= row.items():
                return float(row["tail_loss"])
        rule, setting, rounds, seed, step = lane
        begin = time.perf_counter()
        tail, accuracy = Lane(world, setting, seed).run(rule, step, rounds)
        rows.append(key | {"tail_loss": f"{tail:.6g}", "test_accuracy": f"{accuracy:.6g}"})
        lines = [COLUMNS, *(tuple(row.values()) for row in rows)]
        written(path, "".join(",".join(line) + "\n" for line in lines))
        print(*lane, f"{tail:.4f} {accuracy:.4f} {time.perf_counter() - begin:.0f} s", flush=True)
        return tail

    for setting, rule in itertools.product(options.settings, options.rules):
        tails = {step: measured(rule, setting, options.rounds, TUNING, step) for step in STEPS}
        best = min(tails, key=lambda step: tails[step])
        for seed in SEEDS:
            measured(rule, setting, options.rounds, seed, best)


if __name__ == "__main__":
    main()
