"""A study's results in sentences and Markdown tables, from its outcomes alone.

Where a simpler rule does better than FedAVOT, the text says so by name and number.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments.outcome import Outcome
from fedavot.rules.names import RuleName, label_of

OURS = RuleName.FEDAVOT
"""The rule that the others, including its variants, are compared with."""

ROUNDING = 1e-12
"""Smaller numbers are shown as 0."""

COLUMNS = {
    "tail_loss": "tail loss",
    "final_loss": "final loss",
    "excess": "excess",
    "realised_gap": "realised gap",
    "rounds_to_target": "rounds to target",
    "seconds": "seconds",
}


def table(
    outcomes: Sequence[Outcome], *, knowledge: bool = False, without: Sequence[str] = ()
) -> list[list[str]]:
    """Return a setting's table: a row of headings, then one row per rule.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Outcomes of one setting.
    knowledge : bool
        Whether to add what each rule knows and stores.
    without : sequence of str
        Metrics to leave out.
    """
    shown = [name for name in COLUMNS if any(_has(outcome, name) for outcome in outcomes)]
    shown = [name for name in shown if name not in without]
    heading = ["rule", *(COLUMNS[name] for name in shown)]
    rows = []
    for outcome in outcomes:
        cells = [label_of(outcome.rule), *(_cell(outcome, name) for name in shown)]
        rows.append(cells + [outcome.knows, outcome.stores] * knowledge)
    return [heading + ["knows", "stores"] * knowledge, *rows]


def findings(outcomes: Sequence[Outcome]) -> list[str]:
    """Return sentences that compare FedAVOT with the other rules of one setting.

    Rules are compared seed by seed, as they see the same cohorts. A mean difference within two
    standard errors counts as none, unless it has the same sign for every seed: one extreme seed
    does not make a draw.
    """
    by_rule = {outcome.rule: outcome for outcome in outcomes}
    metric = "excess" if any(_has(outcome, "excess") for outcome in outcomes) else "tail_loss"
    found = [f"{outcome.message}." for outcome in outcomes if outcome.message]
    ours = by_rule[OURS].values(metric) if OURS in by_rule else None
    if ours is None:
        return found
    name = COLUMNS[metric]
    verdicts: dict[str, list[str]] = {}
    for rule, outcome in by_rule.items():
        theirs = outcome.values(metric)
        if rule not in (RuleName.FULL, OURS) and theirs is not None:
            text = f"{label_of(rule)} ({theirs.mean():.3g})"
            verdicts.setdefault(_verdict(ours - theirs), []).append(text)
    for verdict, rules in verdicts.items():
        found.append(f"FedAVOT {verdict} {', '.join(rules)}: its {name} is {ours.mean():.3g}.")
    whole = by_rule[RuleName.FULL].mean(metric) if RuleName.FULL in by_rule else None
    if whole is not None:
        found.append(f"Full participation has {whole:.3g}.")
    return found


def _verdict(differences: Floats) -> str:
    """Return the verdict on differences by seed, ours less theirs."""
    error = 0.0
    if differences.size > 1:
        error = differences.std(ddof=1) / np.sqrt(differences.size)
    agreed = bool((differences > 0).all() or (differences < 0).all())
    if abs(differences.mean()) <= 2 * error and not agreed:
        return "is level with"
    return "**loses** to" if differences.mean() > 0 else "beats"


def summary(title: str, text: str, settings: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """Return the report of a study with a table for each setting.

    Parameters
    ----------
    title, text : str
        Heading and introduction.
    settings : sequence of str
        Names of the settings, in order.
    outcomes : sequence of Outcome
        Outcomes of all settings.
    """
    parts = [f"# {title}", text]
    for setting in settings:
        held = [outcome for outcome in outcomes if outcome.setting == setting]
        if not held:
            parts.append(f"## {setting}\n\nNot run yet.")
            continue
        knowledge = any(outcome.rule == RuleName.FEDAU for outcome in held)
        lines = [f"* {finding}" for finding in findings(held)]
        parts += [f"## {setting}", markdown(table(held, knowledge=knowledge))]
        parts += ["\n".join(lines)] * bool(lines)
    return _joined(parts)


def combined(title: str, text: str, tables: Sequence[list[list[str]]]) -> str:
    """Return the report of a study with one table over all settings, and what follows from it."""
    return _joined([f"# {title}", text, *(markdown(cells) for cells in tables)])


def excess_table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return one row per setting and rule, with the excess alone."""
    heading = ["setting", "rule", COLUMNS["excess"]]
    return [heading, *([one.setting, label_of(one.rule), _cell(one, "excess")] for one in outcomes)]


def derived_table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return derived rows of results as a table."""
    heading = ["setting", "rule", "metric", "value"]
    return [
        heading,
        *(
            [
                row["setting"],
                label_of(row["rule"]),
                row["metric"],
                plus_minus(row["mean"], row["std"]),
            ]
            for row in rows
        ),
    ]


def _joined(parts: list[str]) -> str:
    foot = (
        "Means ± sample standard deviations over seeds. Seconds are wall-clock time for all seeds, "
        "compilation included, with two runs at a time."
    )
    return "\n\n".join([*parts, foot]) + "\n"


def markdown(cells: list[list[str]]) -> str:
    """Return cells as a Markdown table whose heading is the first row."""
    heading, *rows = cells
    rule = ["---", *["---:"] * (len(heading) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heading, rule, *rows))


def plus_minus(mean: float | None, std: float | None) -> str:
    """Return "mean ± std" in a few digits."""
    if mean is None or std is None:
        return "–"
    if abs(mean) < ROUNDING:
        return "0"
    return (
        f"{_short(mean, 4)} ± {_short(std, 1)}" if std > ROUNDING * abs(mean) else _short(mean, 4)
    )


def _short(value: float, digits: int) -> str:
    """Return a number in a few digits, without the zeros of an exponent."""
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _cell(outcome: Outcome, metric: str) -> str:
    if metric == "seconds":
        return f"{outcome.seconds:.1f}"
    if outcome.diverged:
        return "diverged"
    found = [row for row in outcome.rows() if row["metric"] == metric]
    return plus_minus(found[0]["mean"], found[0]["std"]) if found else "–"


def _has(outcome: Outcome, metric: str) -> bool:
    return any(row["metric"] == metric for row in outcome.rows())
