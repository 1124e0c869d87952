"""Train the rules on deep networks: tune their steps, then report.

    python -m studies.deep.run --data pixels8.npz --stages tune report long --out results/deep

* ``tune``: the design's short horizon on seed 1000, for every step of the grid; where the best
  one is at the grid's edge, twice or half of it is tried as well, up to three times.
* ``report``: the short horizon on the seeds 0, 1 and 2, each rule at its best step: that of the
  least weighted loss over the last quarter, chosen for each setting and importance.
* ``long``: the long horizon on the same seeds, with the same step under the same, longer schedule.

What is finished is kept in OUT/parts, one file for each group of lanes, and never run again: a
run that was interrupted, or stopped itself by --minutes, continues when the command is repeated.
OUT/rows.csv has all that was measured so far, and serves as well: parts may be deleted.
"""

import argparse
import csv
import hashlib
import io
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from studies.deep.contenders import NEEDS_LAW, RULES, SERVER_GRID, TUNES_SERVER, base
from studies.deep.files import written
from studies.deep.lanes import OutOfTimeError, Records, train_lanes
from studies.deep.world import DESIGNS, Lane, World

STAGES = ("tune", "report", "long")
TUNING, SEEDS = 1000, (0, 1, 2)
WAVES = 3
GROUPS = 10
"""Groups of clients, in the order of their mean labels."""
PARALLEL = jax.default_backend() != "cpu"
COLUMNS = (
    *("design", "mark", "rule", "setting", "p", "rounds", "seed", "step", "server"),
    *("round", "measure", "value"),
)
ON_CPU = 4
"""Lanes in one group on a CPU, where they train one after another."""
FULL_COST = 7
"""How many times fewer lanes of full participation run together: it asks ten times the clients."""


class Study:
    """The runs of a design in a folder."""

    def __init__(self, world: World, out: Path, *, until: float, together: int) -> None:
        self.world, self.out, self.until, self.together = world, out, until, together
        self.rates: dict[str, float] = {}
        self.begin = time.perf_counter()

    def tune(self, rule: str, settings: Sequence[str]) -> None:
        """Run the grid, and go beyond its edges where the best step is there."""
        design = self.world.design
        wanted = [
            Lane(setting, importance, TUNING, step, server)
            for setting, importance in self.cells(rule, settings)
            for step in design.steps
            for server in (SERVER_GRID if base(rule) in TUNES_SERVER else (None,))
        ]
        while wanted:
            self.train(rule, wanted, design.short)
            wanted = [
                lane
                for cell in self.cells(rule, settings)
                for lane in _beyond(self.tails(rule, *cell), design.steps)
            ]

    def report(self, rule: str, settings: Sequence[str], rounds: int) -> None:
        """Run the reported seeds at the best step of each setting and importance."""
        design = self.world.design
        wanted = []
        for cell in self.cells(rule, settings):
            if len(design.steps) == 1:
                best = Lane(*cell, TUNING, design.steps[0])
            else:
                tails = self.tails(rule, *cell)
                if not tails:
                    raise SystemExit(f"{rule} is not tuned on {cell}; run the stage tune first")
                best = min(tails, key=lambda lane: tails[lane])
            wanted += [best._replace(seed=seed) for seed in SEEDS]
        self.train(rule, wanted, rounds)

    def cells(self, rule: str, settings: Sequence[str]) -> list[tuple[str, str]]:
        """Return the settings and importances of a rule."""
        if base(rule) == "full":  # it does not see availability
            settings = self.world.design.settings[:1]
        if base(rule) in NEEDS_LAW:
            settings = [one for one in settings if not one.startswith("gone")]
        return [(one, p) for one in settings for p in self.world.design.importances]

    def train(self, rule: str, lanes: Sequence[Lane], rounds: int) -> None:
        """Run the lanes that are not finished, in groups of one size on an accelerator."""
        finished = {_lane(row) for row in self.rows(rule, rounds)}
        missing = [lane for lane in dict.fromkeys(lanes) if lane not in finished]
        width = max(self.together // (FULL_COST if base(rule) == "full" else 1), 1)
        for at in range(0, len(missing), width):
            group = missing[at : at + width]
            filled = group + [group[-1]] * (width - len(group) if PARALLEL else 0)
            self._refuse_if_late(rule, len(filled) * rounds, f"{len(missing) - at} lanes left")
            begin = time.perf_counter()
            records, _ = train_lanes(
                self.world, rule, filled, rounds, parallel=PARALLEL, until=self.until
            )
            took = time.perf_counter() - begin
            self.rates[rule] = took / (len(filled) * rounds)
            rows = [
                row
                for place, lane in enumerate(group)
                for row in self._measures(rule, rounds, lane, records, place)
            ]
            what = repr((self.world.mark, rule, rounds, group))
            name = hashlib.sha256(what.encode()).hexdigest()[:16]
            written(self.out / "parts" / f"{name}.csv", _text(rows))
            so_far = f"[{time.perf_counter() - self.begin:6.0f} s]"
            print(
                f"{so_far} {rule}: {len(group)} lanes of {rounds} rounds in {took:.1f} s",
                flush=True,
            )

    def _refuse_if_late(self, rule: str, cost: int, left: str) -> None:
        if time.perf_counter() + cost * self.rates.get(rule, 0.0) > self.until:
            raise OutOfTimeError(f"{rule}: {left}")

    def all_rows(self) -> list[dict[str, str]]:
        """Return all that was measured in this folder."""
        return _read([self.out / "rows.csv", *self.out.glob("parts/*.csv")])

    def rows(self, rule: str, rounds: int) -> list[dict[str, str]]:
        """Return what was measured of a rule at a horizon, in this world."""
        where = {"mark": self.world.mark, "rule": rule, "rounds": str(rounds)}
        return [row for row in self.all_rows() if where.items() <= row.items()]

    def tails(self, rule: str, setting: str, importance: str) -> dict[Lane, float]:
        """Return the tail loss of every lane that was tuned; infinite where it diverged."""
        where = {"measure": "tail_loss", "seed": str(TUNING), "setting": setting, "p": importance}
        return {
            _lane(row): float(np.nan_to_num(float(row["value"]), nan=np.inf))
            for row in self.rows(rule, self.world.design.short)
            if where.items() <= row.items()
        }

    def _measures(
        self, rule: str, rounds: int, lane: Lane, records: Records, place: int
    ) -> Iterator[dict[str, Any]]:
        """Yield a lane's rows."""
        losses, classes = records.losses[place], records.accuracies[place]
        weighted = losses @ self.world.clients.importance(lane.importance)
        groups = np.array_split(np.argsort(self.world.clients.rank), GROUPS)
        last = losses[-1]
        found = [
            ("tail_loss", rounds, weighted[4 * records.rounds > 3 * rounds].mean()),
            ("test_accuracy", rounds, classes[-1].mean()),
            ("worst_class_accuracy", rounds, classes[-1].min()),
            ("worst_group_loss", rounds, max(last[group].mean() for group in groups)),
        ]
        for measure, at, value in found:
            what = self.world.name, self.world.mark, rule, *lane[:2], rounds, *lane[2:]
            yield dict(zip(COLUMNS, (*what, at, measure, f"{value:.6g}"), strict=True))

    def collect(self) -> None:
        """Write all rows of the folder into one file."""
        rows = self.all_rows()
        written(self.out / "rows.csv", _text(rows))
        print(f"{self.out / 'rows.csv'}: {len(rows):,} rows")


def _read(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Return the rows of files, each once, in the order of their columns."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for path in paths:
        if path.exists():
            with path.open(encoding="utf-8", newline="") as stream:
                rows |= {tuple(row.values()): row for row in csv.DictReader(stream)}
    return [row for _, row in sorted(rows.items())]


def _lane(row: dict[str, str]) -> Lane:
    server = float(row["server"]) if row["server"] else None
    return Lane(row["setting"], row["p"], int(row["seed"]), float(row["step"]), server)


def _beyond(tails: dict[Lane, float], grid: Sequence[float]) -> list[Lane]:
    """Return the next steps beyond the edge at which the best lane is, up to `WAVES` times."""
    if len(grid) == 1:
        return []
    best = min(tails, key=lambda lane: tails[lane])
    lanes = [
        best._replace(step=step) for step in _next(best.step, [lane.step for lane in tails], grid)
    ]
    if best.server is not None:
        servers = [lane.server or 0.0 for lane in tails]
        found = _next(best.server, servers, SERVER_GRID)
        lanes += [best._replace(server=server) for server in found]
    return [lane for lane in lanes if lane not in tails]


def _next(best: float, tried: Sequence[float], grid: Sequence[float]) -> list[float]:
    if best == max(tried) and best < grid[-1] * 2**WAVES:
        return [2 * best]
    if best == min(tried) and best > grid[0] / 2**WAVES:
        return [best / 2]
    return []


def _text(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stages that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a file of studies.deep.data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--design", choices=DESIGNS, default="pixels8")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--rules", nargs="+", default=RULES)
    parser.add_argument("--settings", nargs="+", help="the design's own if not given")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument(
        "--together", type=int, help="lanes in one group; on an accelerator they are one program"
    )
    parser.add_argument("--precision", help="of matrix products; JAX's own if not given")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    jax.config.update("jax_default_matmul_precision", options.precision)
    world = World(options.design, DESIGNS[options.design], options.data)
    settings = options.settings or world.design.settings
    study = Study(
        world,
        options.out,
        until=begin + 60 * options.minutes,
        together=options.together or (world.design.together if PARALLEL else ON_CPU),
    )
    print(f"{jax.devices()[0].device_kind}; {world.task!r}; {study.together} lanes together")
    try:
        for stage in options.stages:
            for rule in options.rules:
                if stage == "tune":
                    study.tune(rule, settings)
                else:
                    design = world.design
                    study.report(rule, settings, design.long if stage == "long" else design.short)
    except OutOfTimeError as late:
        print(f"stopped before the limit ({late}); repeat the command to continue")
    study.collect()


if __name__ == "__main__":
    main()
