"""Results of the runs: one JSON file, a table and a figure, drawn from saved results.

Results vary from round to round with the clients that take part, so the table shows means of the
last `TAIL` rounds, ± the standard deviation over seeds, and the figure shows moving means of
`WINDOW` rounds with the same spread.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fedavot.experiments.figures import look_of, new_figure
from fedavot.rules.names import label_of
from numpy.typing import NDArray

from flower_mnist.clients import GROUPS, N_CLIENTS, is_there, members

TAIL = 20
WINDOW = 5
COLUMNS = {
    "loss": "test loss",
    "accuracy": "accuracy",
    "accuracy-rare": "accuracy, rare clients",
    "accuracy-frequent": "accuracy, frequent clients",
}
RANGES = {"loss": (0.0, None), "accuracy-rare": (0.0, 1.0), "accuracy-frequent": (0.8, 1.0)}
"""Metrics in the figure, with the limits of their axes; None leaves a limit open."""
RARE = GROUPS[-1]


@dataclass(frozen=True, eq=False)
class Run:
    """Results of one run.

    Attributes
    ----------
    rule, seed : str, int
        Rule and seed of the run.
    rounds : list of dict
        Test metrics after each round, beginning before the first.
    rare_weight : float
        Mean total weight of the clients in the rare group.
    seconds : float
        Duration of the run, without the start of Flower.
    """

    rule: str
    seed: int
    rounds: list[dict[str, float]]
    rare_weight: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the run as JSON, with a list over rounds for each metric."""
        metrics = {
            metric: [round(value, 4) for value in self.curve(metric).tolist()]
            for metric in self.rounds[0]
            if metric != "round"
        }
        return {
            "rule": self.rule,
            "seed": self.seed,
            "seconds": self.seconds,
            "rare_weight": round(self.rare_weight, 4),
            **metrics,
        }

    def curve(self, metric: str) -> NDArray[np.float64]:
        """Return a metric by round, shape (n_rounds + 1,)."""
        return np.array([tested[metric] for tested in self.rounds])

    def tail(self, metric: str) -> float:
        """Return the mean of a metric over the last rounds."""
        return float(self.curve(metric)[1:][-TAIL:].mean())


def read(folder: Path) -> Run:
    """Read the results that a run wrote."""
    content = json.loads((folder / "results.json").read_text())
    config = content["config"]
    return Run(
        rule=config["rule"],
        seed=config["seed"],
        rounds=content["rounds"],
        rare_weight=_rare_weight(folder, config),
        seconds=content["seconds"],
    )


def write(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write ``results.json``, ``summary.md`` and ``comparison.png``; return their paths."""
    paths = [folder / name for name in ("results.json", "summary.md", "comparison.png")]
    lines = ",\n".join(json.dumps(run.as_json()) for run in runs)
    paths[0].write_text(f'{{"runs": [\n{lines}\n]}}\n')
    paths[1].write_text(table(runs) + "\n")
    draw(runs, paths[2])
    return paths


def table(runs: Sequence[Run]) -> str:
    """Return the comparison as a Markdown table, one row per rule."""
    rules = list(dict.fromkeys(run.rule for run in runs))
    heads = ["rule", *COLUMNS.values(), "weight of the rare clients"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for rule in rules:
        some = [run for run in runs if run.rule == rule]
        cells = [_spread([run.tail(metric) for run in some]) for metric in COLUMNS]
        weight = _spread([run.rare_weight for run in some])
        lines.append(f"| {' | '.join([label_of(rule), *cells, weight])} |")
    return "\n".join(lines)


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw loss and group accuracies by round.

    Parameters
    ----------
    runs : sequence of Run
        Runs in the order of the legend.
    path : Path
        Path of the PNG file.
    """
    figure = new_figure(width=10.5, height=3.9)
    handles = {}
    for place, (metric, limits) in enumerate(RANGES.items(), start=1):
        axes = figure.add_subplot(1, len(RANGES), place)
        for rule in dict.fromkeys(run.rule for run in runs):
            curves = [_moving_mean(run.curve(metric)) for run in runs if run.rule == rule]
            mean, spread = np.mean(curves, axis=0), _deviation(curves)
            rounds, look = np.arange(mean.size), look_of(rule)
            (handles[label_of(rule)],) = axes.plot(
                rounds, mean, look.dashes, color=look.colour, linewidth=1.5
            )
            axes.fill_between(
                rounds, mean - spread, mean + spread, color=look.colour, alpha=0.15, linewidth=0
            )
        shown = f" (axis from {limits[0]:g})" if limits[0] else ""
        axes.set_title(COLUMNS[metric] + shown, size=10)
        axes.set_xlabel("round")
        axes.margins(x=0)
        axes.set_ylim(*limits)
        axes.locator_params(axis="y", nbins=5)
        axes.grid(alpha=0.25, linewidth=0.5)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False
    )
    figure.savefig(path, dpi=150)


def _rare_weight(folder: Path, config: dict[str, Any]) -> float:
    """Return the mean weight of the rare group over the rounds with a reply."""
    if config["rule"] == "fedavg":
        return _plain_weight(config["seed"], config["num-server-rounds"])
    rare = {str(client) for client in members(RARE)}
    logged = (folder / "participation.jsonl").read_text().splitlines()
    weights = [json.loads(line)["weights"] for line in logged]
    given = [sum(weight for name, weight in one.items() if name in rare) for one in weights if one]
    return float(np.mean(given))


def _plain_weight(seed: int, rounds: int) -> float:
    """Return the mean weight of the rare group in the plain average."""
    shares = []
    for number in range(1, rounds + 1):
        there = [is_there(client, round_number=number, seed=seed) for client in range(N_CLIENTS)]
        if any(there):
            shares.append(sum(there[client] for client in members(RARE)) / sum(there))
    return float(np.mean(shares))


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {_deviation(values):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _deviation(values: Sequence[Any]) -> Any:
    """Return the standard deviation over seeds; 0 for one seed."""
    return np.std(values, axis=0, ddof=min(1, len(values) - 1))


def _moving_mean(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the last `WINDOW` rounds, or of fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], curve]))
    ends = np.arange(1, curve.size + 1)
    starts = np.maximum(ends - WINDOW, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
