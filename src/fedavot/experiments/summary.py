"""A study's results as tables and sentences, from its outcomes alone.

Where a simpler rule does better than ours, the text says so by name and number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments.outcome import METRICS, Outcome
from fedavot.experiments.study import Panel, Study
from fedavot.rules.names import RuleName, label_of

LOSES = "**loses** to"
OURS = (RuleName.STEADY, RuleName.FEDAVOT)
"""The rule that the others are compared with: the first of these that a study has."""
ROUNDING = 1e-12
"""Smaller numbers are shown as 0."""
_SINGLE = 1e-7
"""Deviations below this part of the mean are rounding in single precision, and not shown."""
_SPREADS = 3
"""Number of columns up to which a terminal has room for standard deviations."""

Cells = list[list[str]]
"""A table: a row of headings, then one row per line."""


class Section(NamedTuple):
    """A part of a report: its heading, tables, and sentences about them."""

    title: str
    tables: tuple[Cells, ...]
    sentences: tuple[str, ...] = ()


def sections(
    study: Study, panels: Sequence[Panel], outcomes: Sequence[Outcome], *, narrow: bool = False
) -> list[Section]:
    """Return the parts of a report: one per setting, unless the study has others.

    Narrow tables are for a terminal, without what other columns show as well.
    """
    if study.tables is not None:
        return study.tables(outcomes, narrow=narrow)
    if study.combined:
        rows = [row for one in outcomes for row in one.rows() if row["metric"] == "excess"]
        return [
            Section("Excess", (_listed(rows),)),
            Section("Derived from it", (_listed(study.derive(outcomes)),)),
        ]
    held = [(panel, [one for one in outcomes if one.setting == panel.setting]) for panel in panels]
    return [_section(panel, own, narrow=narrow) for panel, own in held]


def markdown(study: Study, parts: Iterable[Section]) -> str:
    """Return a report in Markdown."""
    texts = [f"# {study.title}", study.text]
    for part in parts:
        texts.append(f"## {part.title}")
        for heading, *rows in part.tables:
            rule = ["---", *["---:"] * (len(heading) - 1)]
            texts.append("\n".join(f"| {' | '.join(row)} |" for row in (heading, rule, *rows)))
        texts += ["\n".join(f"* {sentence}" for sentence in part.sentences)] * bool(part.sentences)
    return "\n\n".join([*texts, study.foot]) + "\n"


def _section(panel: Panel, outcomes: Sequence[Outcome], *, narrow: bool) -> Section:
    if not outcomes:
        return Section(panel.setting, (), ("Not run yet.",))
    shown = [name for name in METRICS if any(_has(one, name) for one in outcomes)]
    grouped = {name for one in outcomes for own in one.groups.values() for name in own}
    if narrow:
        # Beside a test's figures those of training say little, as does one round beside the tail.
        hidden = {"final_loss", "accuracy"} if "test_loss" in {*shown, *grouped} else set()
        last = ["final_loss"] if panel.excess or "rounds_to_target" in shown else []
        shown = [name for name in shown if name not in {*hidden, *last, "seconds"}]
        grouped -= hidden
    columns = {METRICS[name]: (name, None) for name in shown}
    tables = [_table("rule", outcomes, columns, narrow=narrow)]
    if not narrow and any(one.rule == RuleName.FEDAU for one in outcomes):
        tables[0][0] += ["knows", "stores"]
        for one, cells in zip(outcomes, tables[0][1:], strict=True):
            cells += [one.knows, one.stores]
    groups = list(dict.fromkeys(group for one in outcomes for group in one.groups))
    for name in filter(grouped.__contains__, METRICS):
        of_groups = {group: (name, group) for group in groups}
        tables.append(_table(f"{METRICS[name]} by group", outcomes, of_groups, narrow=narrow))
    return Section(panel.setting, tuple(tables), (*panel.notes, *findings(outcomes)))


def _table(
    first: str,
    outcomes: Sequence[Outcome],
    columns: Mapping[str, tuple[str, str | None]],
    *,
    narrow: bool,
) -> Cells:
    """Return one row per rule, and one column per metric or per group; narrow ones of means."""
    brief = narrow and len(columns) > _SPREADS
    rows = [
        [label_of(one.rule), *(_cell(one, *column, brief=brief) for column in columns.values())]
        for one in outcomes
    ]
    return [[first, *columns], *rows]


def _listed(rows: Iterable[dict[str, Any]]) -> Cells:
    """Return rows of results as a table, one line each."""
    heading = ["setting", "rule", "metric", "value"]
    lines = [
        [one["setting"], label_of(one["rule"]), one["metric"], plus_minus(one["mean"], one["std"])]
        for one in rows
    ]
    return [heading, *lines]


def findings(outcomes: Sequence[Outcome]) -> list[str]:
    """Return sentences that compare our rules with the others of one setting.

    The first of our rules is compared with all others; of FedAVOT without memory, only which rules
    it loses to is said besides.

    Rules are compared seed by seed, as they see the same cohorts. A mean difference within two
    standard errors counts as none, unless it has the same sign for every seed: one extreme seed
    does not make a draw.
    """
    by_rule = {outcome.rule: outcome for outcome in outcomes}
    metric = "excess" if any(_has(outcome, "excess") for outcome in outcomes) else "tail_loss"
    found = _messages(outcomes)
    own = next((rule for rule in OURS if rule in by_rule), None)
    ours = None if own is None else by_rule[own].values(metric)
    if own is None or ours is None:
        return found
    verdicts = _verdicts(own, by_rule, metric)
    found += verdicts.values()
    if own != RuleName.FEDAVOT and RuleName.FEDAVOT in by_rule:
        plain = _verdicts(RuleName.FEDAVOT, by_rule, metric)
        found += [plain[LOSES]] if LOSES in plain else []
    if verdicts and ours.size == 1:
        found.append("There is one seed, so that any of this may be chance.")
    whole = by_rule[RuleName.FULL].mean(metric) if RuleName.FULL in by_rule else None
    if whole is not None:
        found.append(f"Full participation has {_short(whole, 3)}.")
    return found


def _verdicts(own: RuleName, by_rule: Mapping[str, Outcome], metric: str) -> dict[str, str]:
    """Return a sentence for each verdict on a rule of ours beside the others."""
    ours = by_rule[own].values(metric)
    if ours is None:
        return {}
    verdicts: dict[str, list[str]] = {}
    for rule, outcome in by_rule.items():
        theirs = outcome.values(metric)
        if rule not in (RuleName.FULL, own) and theirs is not None:
            text = f"{label_of(rule)} ({_short(theirs.mean(), 3)})"
            verdicts.setdefault(_verdict(ours - theirs), []).append(text)
    said = f"its {METRICS[metric]} is {_short(ours.mean(), 3)}"
    return {
        verdict: f"{own.label} {verdict} {'; '.join(rules)}: {said}."
        for verdict, rules in verdicts.items()
    }


def _messages(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what there is to say of runs, once for all rules that have it in common.

    Rules of one setting see the same cohorts, but not all of them ask the same clients. A rule that
    diverged is named in its message.
    """
    told: dict[str, list[str]] = {}
    for one in outcomes:
        if one.message:
            told.setdefault(one.message, []).append("" if one.diverged else label_of(one.rule))
    differ = sum(all(rules) for rules in told.values()) > 1
    return [
        f"{'; '.join(rules)}: {message}." if differ and all(rules) else f"{message}."
        for message, rules in told.items()
    ]


def _verdict(differences: Floats) -> str:
    """Return the verdict on differences by seed, ours less theirs."""
    error = 0.0
    if differences.size > 1:
        error = differences.std(ddof=1) / np.sqrt(differences.size)
    agreed = bool((differences > 0).all() or (differences < 0).all())
    if abs(differences.mean()) <= 2 * error and not agreed:
        return "is level with"
    return LOSES if differences.mean() > 0 else "beats"


def plus_minus(mean: float | None, std: float | None) -> str:
    """Return "mean ± std" in a few digits."""
    if mean is None or std is None:
        return "–"
    if abs(mean) < ROUNDING:
        return "0"
    value = _short(mean, 4)
    if std <= _SINGLE * abs(mean):
        return value
    if "e-" in value:
        return f"{value} ± {std:.0e}".replace("e-0", "e-")
    return f"{value} ± {_short(std, 1) if 'e' in value else _short(float(f'{std:.1g}'), 4)}"


def _short(value: float, digits: int) -> str:
    """Return a number in a few digits, without the zeros of an exponent; 0 for rounding."""
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _cell(outcome: Outcome, metric: str, group: str | None, *, brief: bool) -> str:
    if metric == "seconds":
        return f"{outcome.seconds:.1f}"
    if outcome.diverged:
        return "diverged"
    values = outcome.values(metric, group)
    if values is None:
        return "–"
    return plus_minus(values.mean(), 0.0 if brief or values.size < 2 else values.std(ddof=1))


def _has(outcome: Outcome, metric: str) -> bool:
    return any(row["metric"] == metric for row in outcome.rows())
