"""Tune rules on the settings of `fedavot reproduce rivals`, and compare them with the average.

    python -m studies.rivals.run --phones FLASH300 --out results/rivals

Every rule is tuned as that study tunes (`fedavot.experiments.tuning`), but on the seeds from 1000
on that ``--tuned`` counts, and is reported on the seeds 0 to 4, beside the setting's own step.
Options of a rule follow a colon, as in ``fedavot-steady:correction=0.5``. What is finished is kept
in OUT/rows.csv and never run again.
"""

import argparse
import csv
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedavot.experiments import rivals, tuning
from fedavot.experiments.study import COMMON, Setting
from fedavot.rules import Known, Rule, build

RULES = ("fedavot-steady", "fedavg", "fedavot-steady:correction=0.5")
SEEDS = range(5)
COLUMNS = ("setting", "rule", "chosen", "steps", "tuned", "seed", "value", "seconds")


def rule_of(name: str, importance: Any) -> Rule:
    """Return a rule with the options that its name has."""
    kind, _, text = name.partition(":")
    pairs = (one.split("=") for one in text.split(",") if one)
    return build(kind, Known(importance), **{key: json.loads(value) for key, value in pairs})


def rows_of(setting: Setting, name: str, tuned: int) -> list[dict[str, Any]]:
    """Tune and run a rule; return the excess of each seed, or the tail loss without an optimum."""
    rule = rule_of(name, setting.instances[0].problem.shares)
    instances = [
        dataclasses.replace(one, seeds=tuple(s for s in one.seeds if s < rivals.TUNING + tuned))
        for one in setting.tuning
    ]
    own = dataclasses.replace(
        setting, rules=(rule,), tuning=tuple(one for one in instances if one.seeds)
    )
    with tempfile.TemporaryDirectory() as folder:
        found = tuning.conduct([own], Path(folder), progress=lambda *told: None)
    rows = []
    for outcome in found:
        chosen = "common" if outcome.steps == COMMON else "best"
        values = outcome.values("excess" if outcome.optimum is not None else "tail_loss")
        for at, seed in enumerate(outcome.seeds):
            value = "diverged" if values is None else f"{values[at]:.6g}"
            row = (setting.name, name, chosen, outcome.steps, tuned, seed, value)
            rows.append(dict(zip(COLUMNS, (*row, f"{outcome.seconds:.0f}"), strict=True)))
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the means and standard errors, and differences from the plain average by seed."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for row in rows:
        by_rule = found.setdefault((row["chosen"], row["setting"]), {})
        value = np.inf if row["value"] == "diverged" else float(row["value"])
        by_rule.setdefault(row["rule"], {})[str(row["seed"])] = value
    names = [name for name in RULES if any(name in by_rule for by_rule in found.values())]
    names += sorted({row["rule"] for row in rows} - {*RULES})
    lines = []
    for chosen in ("best", "common"):
        lines += [f"\n### Steps: {chosen}\n", f"| setting | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for (which, setting), by_rule in found.items():
            if which == chosen:
                cells = [_cell(by_rule.get(name), by_rule.get("fedavg")) for name in names]
                lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(own: dict[str, float] | None, plain: dict[str, float] | None) -> str:
    if own is None:
        return "–"
    values = np.array(list(own.values()))
    if not np.isfinite(values).all():
        return "diverged"
    text = f"{values.mean():.3g} ± {values.std(ddof=1) / values.size**0.5:.2g}"
    if plain is None or plain is own or not np.isfinite(list(plain.values())).all():
        return text
    apart = values - np.array([plain[seed] for seed in own])
    error = apart.std(ddof=1) / values.size**0.5
    return text + (f" ({apart.mean() / error:+.1f})" if error else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and draw the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--phones", type=Path, help="the charging log, for two more settings")
    parser.add_argument("--rules", nargs="+", default=RULES)
    parser.add_argument("--settings", nargs="+", default=[""], help="words in their names")
    parser.add_argument("--tuned", type=int, default=5, help="number of tuning seeds")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "rows.csv"
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    for name in options.rules:
        for setting in rivals.settings(SEEDS, log_dir=options.phones):
            done = any((row["setting"], row["rule"]) == (setting.name, name) for row in rows)
            if done or not any(word in setting.name for word in options.settings):
                continue
            begin = time.perf_counter()
            rows += rows_of(setting, name, options.tuned)
            partial = path.with_suffix(".part")
            with partial.open("w", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            partial.replace(path)
            print(f"{name}, {setting.name}: {time.perf_counter() - begin:.0f} s", flush=True)
    (options.out / "table.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
