"""How time and memory grow: ``python -m benchmarks.growth [--out build/growth] [name ...]``.

Every operation is run at sizes over four decades or more. The cost model is

    seconds = fixed + rate · size^exponent,

fitted to every other size. It then predicts the sizes in between, and the table shows the largest
factor by which it was wrong. Memory is the peak of what Python and NumPy allocate during the call,
per unit of size at the largest size; JAX's arrays and Polars's are not in it. Answers are checked
where they are made. Writes ``growth.json``, ``growth.md`` and ``growth.png``. It is no part of
``make bench``.
"""

import argparse
import functools
import json
import math
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedavot as fa
from fedavot._checks import Floats

LONGEST = 8.0
"""Seconds of a run after which no larger size is tried, unless the operation allows more; longer
ones are run once for the time and once for the memory."""
Prepared = Callable[[], Any]


@dataclass(frozen=True)
class Operation:
    """Something to time: ``prepare(size)`` returns a function that runs it once."""

    name: str
    unit: str
    prepare: Callable[[int], Prepared]
    sizes: tuple[int, ...]
    longest: float = LONGEST


def decades(first: int, last: int) -> tuple[int, ...]:
    """Return 1, 3, 10, 30, ... from one power of ten to another."""
    between = [digit * 10**power for power in range(first, last) for digit in (1, 3)]
    return (*between, 10**last)


def skewed(size: int) -> Floats:
    """Return an importance proportional to exp(Normal(0, .25))."""
    drawn = np.exp(0.25 * np.random.default_rng(size).standard_normal(size))
    return np.asarray(drawn / drawn.sum())


def independent(size: int) -> fa.IndependentClients:
    """Return independent clients with a mean cohort of five."""
    return fa.IndependentClients(np.full(size, 5.0 / size) * np.linspace(0.9, 1.1, size))


def certify_independent(size: int) -> Prepared:
    """Certify independent clients, with a new law each time: laws remember."""

    def run() -> None:
        assert fa.certify(skewed(size), independent(size)).feasible

    return run


def align_independent(size: int) -> Prepared:
    """Align independent clients."""

    def run() -> None:
        assert fa.align(skewed(size), independent(size)).status == "exact"

    return run


def align_list(size: int) -> Prepared:
    """Align a list of cohorts of five among a thousand clients."""
    rng = np.random.default_rng(size)
    n_clients = max(10, min(1_000, size // 20))
    cohorts = [rng.choice(n_clients, 5, replace=False) for _ in range(size)]
    importance = skewed(n_clients)

    def run() -> None:
        found = fa.align(importance, fa.Cohorts(cohorts, n_clients=n_clients))
        assert found.status in ("exact", "nearest")

    return run


def align_uniform(size: int) -> Prepared:
    """Align uniform cohorts of ten."""

    def run() -> None:
        assert fa.align(skewed(size), fa.UniformCohorts(size, 10)).status == "exact"

    return run


def weigh(size: int) -> Prepared:
    """Weigh a cohort of a hundred."""
    alignment = fa.align(skewed(size), independent(size))
    cohort = np.sort(np.random.default_rng(1).choice(size, 100, replace=False))

    def run() -> None:
        assert abs(alignment.weights(cohort).sum() - 1.0) < 1e-9

    return run


@functools.cache
def of_a_million() -> fa.Alignment:
    """Return an alignment of a million clients."""
    return fa.align(skewed(1_000_000), independent(1_000_000))


def weigh_large(size: int) -> Prepared:
    """Weigh a cohort of some size, of a million clients."""
    alignment = of_a_million()
    cohort = np.sort(np.random.default_rng(1).choice(1_000_000, size, replace=False))

    def run() -> None:
        assert abs(alignment.weights(cohort).sum() - 1.0) < 1e-9

    return run


def online(size: int) -> Prepared:
    """Observe a round of a hundred."""
    aligner = fa.OnlineAligner(skewed(size))
    rng = np.random.default_rng(2)
    cohorts = iter([np.sort(rng.choice(size, 100, replace=False)) for _ in range(20_000)])

    def run() -> None:
        assert abs(aligner.observe(next(cohorts)).sum() - 1.0) < 1e-9

    return run


def choose(size: int) -> Prepared:
    """Select a hundred of those available."""
    weights, rng = skewed(size), np.random.default_rng(3)

    def run() -> None:
        assert fa.select(weights, 100, rng)[0].size == 100

    return run


def train_many(size: int) -> Prepared:
    """Train the steady rule for fifty rounds, ten clients in each."""
    return _training(size, 10)


def train_large(size: int) -> Prepared:
    """Train the steady rule for fifty rounds of this many among ten thousand clients."""
    return _training(10_000, size)


def _training(n_clients: int, cohort: int) -> Prepared:
    from fedavot import rules
    from fedavot.training import Problem, Training, constant, train
    from fedavot.training.tasks.classifiers import softmax_task

    rng = np.random.default_rng(4)
    features = rng.standard_normal((n_clients, 10, 16), dtype=np.float32)
    labels = rng.integers(0, 10, (n_clients, 10))
    task = softmax_task("growth", list(zip(features, labels, strict=True)))
    importance = skewed(n_clients)
    cohorts = [np.sort(rng.choice(n_clients, cohort, replace=False)) for _ in range(50)]
    problem = Problem(task, importance, lambda rng, rounds: cohorts)
    training = Training(50, constant(0.1), local_steps=3, record_every=50)
    rule = rules.steady(importance)

    def run() -> None:
        assert np.isfinite(train(problem, rule, training).losses).all()

    return run


def audit_rows(size: int) -> Prepared:
    """Audit a log of this many rows, a thousand clients, without the page."""
    from fedavot.audit import audit, federation_of, read_log

    rng = np.random.default_rng(5)
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "log.csv"
    per_round = 20
    rounds = np.repeat(np.arange(size // per_round), per_round)
    clients = (rng.integers(0, 1_000, rounds.size // per_round).repeat(per_round)) + np.tile(
        np.arange(per_round) * 37, rounds.size // per_round
    )
    rows = np.column_stack([rounds, clients % 1_000])
    path.write_text("round,client\n" + "\n".join(f"{a},c{b}" for a, b in rows.tolist()) + "\n")

    def run() -> None:
        assert folder.name
        assert audit(federation_of(read_log(path))).rounds == size // per_round

    return run


OPERATIONS = (
    Operation("certify, independent", "clients", certify_independent, decades(2, 6)),
    Operation("align, independent", "clients", align_independent, decades(2, 6)),
    Operation("align, uniform cohorts of 10", "clients", align_uniform, decades(2, 6)),
    Operation("align, cohorts of 5 listed", "cohorts", align_list, decades(2, 6)),
    Operation("weights of 100", "clients", weigh, decades(2, 6)),
    Operation("weights, of a million", "members", weigh_large, decades(1, 5)),
    Operation("online round of 100", "clients", online, decades(2, 6)),
    Operation("select 100", "available", choose, decades(2, 6)),
    Operation("train 50 rounds of 10", "clients", train_many, decades(1, 5)),
    Operation("train 50 rounds, of 10,000", "members", train_large, decades(0, 4)),
    Operation("audit a log", "rows", audit_rows, decades(3, 7), longest=200.0),
)


def measured(operation: Operation) -> Iterator[dict[str, float]]:
    """Yield size, seconds (the least of several) and bytes at the peak."""
    for size in operation.sizes:
        run = operation.prepare(size)
        times, begin = [_seconds(run)], time.perf_counter()
        if times[0] <= LONGEST:
            times = [_seconds(run)]  # the first may have compiled
            while len(times) < 30 and time.perf_counter() - begin < LONGEST / 8:
                times.append(_seconds(run))
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield {"size": size, "seconds": min(times), "bytes": peak}
        if min(times) > operation.longest:
            return


def _seconds(run: Prepared) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def model(sizes: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Return (fixed, rate, exponent) of the least squares of logarithms, by a grid."""
    best: tuple[float, float, float, float] = (math.inf, 0.0, 0.0, 0.0)
    for fixed in [0.0, *(seconds.min() * np.linspace(0.1, 0.999, 40)).tolist()]:
        for exponent in np.linspace(0.0, 2.0, 201).tolist():
            powers = sizes**exponent
            rate = float(np.exp(np.mean(np.log(np.maximum(seconds - fixed, 1e-12) / powers))))
            miss = float(np.sum(np.log((fixed + rate * powers) / seconds) ** 2))
            if miss < best[0]:
                best = (miss, fixed, rate, exponent)
    return best[1:]


def row(operation: Operation, found: list[dict[str, float]]) -> dict[str, Any]:
    """Return the model of one operation, and how far it was off in between."""
    sizes = np.array([one["size"] for one in found])
    seconds = np.array([one["seconds"] for one in found])
    fitted = np.arange(sizes.size) % 2 == 0
    fixed, rate, exponent = model(sizes[fitted], seconds[fitted])
    predicted = fixed + rate * sizes**exponent
    off = np.maximum(predicted / seconds, seconds / predicted)[~fitted]
    return {
        "operation": operation.name,
        "unit": operation.unit,
        "fixed": fixed,
        "rate": rate,
        "exponent": exponent,
        "largest": float(sizes[-1]),
        "seconds": float(seconds[-1]),
        "bytes_per_unit": found[-1]["bytes"] / float(sizes[-1]),
        "off_by": float(off.max()),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| operation | size | fixed, ms | exponent | largest | seconds there | bytes per unit | "
        "off by |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one['operation']} | {one['unit']} | {one['fixed'] * 1e3:.3g} | {one['exponent']:.2f} "
        f"| {one['largest']:,.0f} | {one['seconds']:.3g} | {one['bytes_per_unit']:,.0f} "
        f"| {one['off_by']:.2f} × |"
        for one in rows
    ]
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], points: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Draw measurements and models on logarithmic axes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    for number, one in enumerate(rows):
        found = points[one["operation"]]
        sizes = np.array([point["size"] for point in found])
        colour = "black" if number == 10 else f"C{number % 10}"
        marker = "osD^vP*X<>h"[number % 11]
        label = f"{one['operation']} ({one['unit']}), {one['exponent']:.2f}"
        seconds = [point["seconds"] for point in found]
        axes.loglog(sizes, seconds, marker, color=colour, label=label, markersize=5)
        line = np.geomspace(sizes[0], sizes[-1])
        axes.loglog(line, one["fixed"] + one["rate"] * line ** one["exponent"], color=colour, lw=1)
    axes.set_xlabel("size")
    axes.set_ylabel("seconds")
    axes.grid(alpha=0.2)
    axes.legend(title="operation (size), exponent", fontsize=7, ncols=2, loc="upper left")
    axes.set_ylim(top=axes.get_ylim()[1] * 300)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure, fit, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help="parts of operations' names; all by default")
    parser.add_argument("--out", type=Path, default=Path("build/growth"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "growth.json"
    points = json.loads(path.read_text()) if path.exists() else {}
    for operation in OPERATIONS:
        if options.names and not any(part in operation.name for part in options.names):
            continue
        points[operation.name] = list(measured(operation))
        path.write_text(json.dumps(points, indent=1) + "\n")
        print(table([row(operation, points[operation.name])]).split("\n")[2], flush=True)
    rows = [row(one, points[one.name]) for one in OPERATIONS if one.name in points]
    (options.out / "growth.md").write_text(table(rows))
    draw(rows, points, options.out / "growth.png")


if __name__ == "__main__":
    main()
