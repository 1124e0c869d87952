"""Compare apps with and without FedAVOT: python tests/flower/apps/compare_apps.py.

Four federations, step sizes constant and rounds in order: the example app of this repository, and
three of the apps here with clients that are absent in three ways. Every app runs in one process,
with Flower's strategies and ClientApps and without Flower's network. The loss is the importance-
weighted mean of the clients' own losses, over the models of the last fifth of the rounds; rules see
the same absences on the same seed. Printed are means and standard errors over seeds and, in
brackets, those of the difference from the first rule; for the example app also those of the
accuracy of its two groups of clients.
"""

import argparse
import copy
import itertools
import json
import logging
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "flower-mnist"
sys.path[:0] = [str(HERE), str(HERE.parent), str(EXAMPLE)]

from edits import CONFIG, edited, source  # noqa: E402
from flwr.app import ConfigRecord, Context, Message, RecordDict  # noqa: E402
from grid import LocalGrid, Node  # noqa: E402

RULES = {"plain": "", "weights": "", "memory": "memory=True"}
"""What is added to the documented edit."""


@dataclass
class Federation:
    """An app, its clients, how much they count, and who is there.

    ``present`` is a function of (rng, rounds) that returns a bool array of shape (rounds, clients).
    """

    app: str
    n_clients: int
    rounds: int
    present: Callable
    importance: np.ndarray | None = None
    loss: str = "loss"
    node: Callable = field(default=lambda client: {})


class Recorded(LocalGrid):
    """A grid in which clients are absent, and which keeps the model of every round."""

    def __init__(self, nodes, there, run_config):
        super().__init__(nodes, self._fate, run_config=run_config)
        self.there = there
        self.models = {}

    def _fate(self, node, message):
        number = int(message.content["config"]["server-round"])
        self.models[number] = message.content["arrays"]
        return "reply" if self.there[number - 1, node - 100] else "error"


def independent(rates):
    return lambda rng, rounds: rng.random((rounds, len(rates))) < rates


def sticky(rates, length):
    """Return presence that lasts for ``length`` rounds on average, and rates of the time in all."""

    def present(rng, rounds):
        there = [rng.random(len(rates)) < rates]
        leaves, comes = 1 / length, rates / (1 - rates) / length
        for draw in rng.random((rounds - 1, len(rates))):
            there.append(np.where(there[-1], draw >= leaves, draw < comes))
        return np.array(there)

    return present


def day_and_night(by_day, rate, length=12):
    """Return presence in which some clients are there in every other ``length`` rounds alone."""

    def present(rng, rounds):
        light = np.arange(rounds) // length % 2 == 0
        return (rng.random((rounds, len(by_day))) < rate) & (light[:, None] | ~by_day)

    return present


RATES = np.random.default_rng(7).uniform(0.1, 0.8, 20)
BY_DAY = np.arange(20) < 5
FEDERATIONS = {
    "logistic regression, clients alike": Federation(
        "quickstart_sklearn", 20, 60, independent(RATES), loss="test_logloss"
    ),
    "logistic regression, everybody there": Federation(
        "quickstart_sklearn", 20, 60, independent(np.ones(20)), loss="test_logloss"
    ),
    "incomes, clients stay and leave for long": Federation(
        "fl_tabular", 12, 120, sticky(np.linspace(0.15, 0.6, 12), 15)
    ),
    "digits by day and night": Federation(
        *("quickstart_pytorch", 20, 96, day_and_night(BY_DAY, 0.4)),
        importance=np.where(BY_DAY, 0.5 / 5, 0.5 / 15),
        loss="eval_loss",
        node=lambda client: {"digits": "01234" if BY_DAY[client] else "56789"},
    ),
}


def loss_of(federation, rule, seed, folder):
    """Run an app and return its importance-weighted loss, by what it is called in the table."""
    app = types.ModuleType(federation.app)
    exec(_source(federation, rule, folder), app.__dict__)
    config = CONFIG | {"num-server-rounds": federation.rounds, "out": str(folder)}
    nodes = {
        100 + i: Node(
            app.client_app,
            {"partition-id": i, "num-partitions": federation.n_clients, **federation.node(i)},
        )
        for i in range(federation.n_clients)
    }
    there = federation.present(np.random.default_rng([seed, 0]), federation.rounds)
    grid = Recorded(nodes, there, config)
    _seeded(seed)
    app.server_app(grid, Context(1, 1, {}, RecordDict(), config))
    last = sorted(grid.models)[-federation.rounds // 5 :]
    return {"": float(np.mean([_weighted(federation, grid, grid.models[it]) for it in last]))}


def _source(federation, rule, folder):
    if rule == "plain":
        return source(federation.app)
    options = [f"folder={str(folder / 'run')!r}", RULES[rule]]
    if federation.importance is not None:
        named = dict(enumerate(federation.importance.tolist()))
        options.append(f"importance={ {str(client): p for client, p in named.items()} }")
    return edited(federation.app, ", ".join(filter(None, options)))


def _weighted(federation, grid, model):
    """Return the mean of the clients' losses at a model, by importance or by examples."""
    losses, examples = [], []
    for node, it in grid.nodes.items():
        content = RecordDict({"arrays": copy.deepcopy(model), "config": ConfigRecord()})
        message = Message(content, node, "evaluate")
        context = Context(0, node, dict(it.config), RecordDict(), grid.run_config)
        found = it.app(message, context).content["metrics"]
        losses.append(found[federation.loss])
        examples.append(found["num-examples"])
    weights = examples if federation.importance is None else federation.importance
    return float(np.average(losses, weights=weights))


def example_loss(rule, seed, folder):
    """Run the repository's example app, whose server tests every client's digits by itself."""
    import tomllib

    from flower_mnist.client_app import app as client_app
    from flower_mnist.clients import N_CLIENTS
    from flower_mnist.server_app import app as server_app

    settings = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    names = {"plain": "fedavg", "weights": "fedavot"}
    config = settings["config"] | {
        "rule": names.get(rule, "fedavot-steady"),
        "seed": seed,
        "folder": str(folder / "run"),
    }
    nodes = {100 + i: Node(client_app, {"partition-id": i}) for i in range(N_CLIENTS)}
    _seeded(seed)
    server_app(LocalGrid(nodes, run_config=config), Context(1, 1, {}, RecordDict(), config))
    rounds = json.loads((folder / "run" / "results.json").read_text())["rounds"]
    last = rounds[-len(rounds) // 5 :]
    groups = {f", accuracy of the {it} clients": f"accuracy-{it}" for it in ("frequent", "rare")}
    metrics = {"": "loss"} | groups
    return {
        name: float(np.mean([tested[metric] for tested in last]))
        for name, metric in metrics.items()
    }


def _seeded(seed):
    """Seed the generators from which Flower samples nodes, and PyTorch."""
    import random

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)


def main():
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", help="words in the names of federations")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    runs = {"the example app": example_loss} | {
        name: lambda *given, one=one: loss_of(one, *given) for name, one in FEDERATIONS.items()
    }
    print(f"| | {' | '.join(options.rules)} |\n" + "|---" * (len(options.rules) + 1) + "|")
    for name, run in runs.items():
        if options.only and not any(word in name for word in options.only):
            continue
        found = {rule: [] for rule in options.rules}
        for rule, seed in itertools.product(options.rules, options.seeds):
            with TemporaryDirectory() as folder:
                found[rule].append(run(rule, seed, Path(folder)))
        for part in found[options.rules[0]][0]:
            first, *others = ([one[part] for one in ones] for ones in found.values())
            cells = [f"{_spread(it)} ({_spread(np.subtract(it, first), '+')})" for it in others]
            print(f"| {name}{part} | {' | '.join([_spread(first), *cells])} |", flush=True)


def _spread(values, sign=""):
    """Return the mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):{sign}.4f} ± {error:.4f}"


if __name__ == "__main__":
    main()
