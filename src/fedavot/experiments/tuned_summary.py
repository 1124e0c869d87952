"""The report of a study in which every rule has its own best steps.

Tables of the losses at the best steps, of the steps chosen, and of the losses at the common step,
each with its settings in groups; then the steady rule against the best of the others. Where it
loses, the text says so by name and number, as plainly as where it wins.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedavot.experiments.comparison import OURS, Comparison, compared
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.study import COMMON
from fedavot.experiments.summary import Cells, Section, plus_minus
from fedavot.rules.names import RuleName, label_of

FOOT = (
    "Means ± standard errors over seeds, of the tail loss, or of the excess in the paper's "
    "regression; a dash where a rule was not run. Rules are in the order of the geometric mean, "
    "over settings, of their loss over the best rule's, those run on less than half of the "
    "settings last. Standard errors between two rules are those of their difference by seed."
)
CLEAR = 2.0
"""A lead of this many standard errors is clear; up to one, rules are level."""
NEAR = 1.05
"""Ratio to full participation that is counted."""
COLUMNS, NARROW = 6, 3
"""Largest number of settings in a table, and in a narrow one."""
_BESIDE = (
    "SE: the difference in standard errors, negative where ours is lower. The steps chosen and the "
    "common step are in summary.md."
)


def tuned_sections(outcomes: Sequence[Outcome], *, narrow: bool = False) -> list[Section]:
    """Return the parts of the report; narrow ones leave the steps and the common step to others."""
    best = compared([one for one in outcomes if one.steps != COMMON])
    steps = {(one.setting, one.rule): one.steps for one in outcomes}
    shared = compared([one for one in outcomes if one.steps == COMMON])

    def loss_of(held: Comparison) -> Callable[[str, str], str]:
        return lambda setting, rule: _loss(held, setting, rule, narrow=narrow)

    found = [Section("Each rule at its best steps", _tables(best, loss_of(best), narrow=narrow))]
    if not narrow:
        chosen = _tables(best, lambda *key: steps.get(key, "–"), narrow=narrow)
        found.append(Section("The steps that each rule chose", chosen))
        found.append(Section("Each rule at the common step", _tables(shared, loss_of(shared))))
    if OURS in best.rules:
        sentences = (*findings(best), *at_common_step(shared), *missing(best))
        if narrow:
            sentences = (_BESIDE, *sentences)
        title = f"{OURS.label} against the best of the others"
        found.append(Section(title, (against_best(best, narrow=narrow),), sentences))
    return found


def _tables(
    held: Comparison, cell: Callable[[str, str], str], *, narrow: bool = False
) -> tuple[Cells, ...]:
    """Return tables of all rules, one for each kind of setting."""
    groups: dict[str, list[str]] = {}
    for setting in held.settings:
        groups.setdefault(setting.partition(",")[0], []).append(setting)
    found = []
    for kind, settings in groups.items():
        size = NARROW if narrow else COLUMNS
        for at in range(0, len(settings), size):
            shown = settings[at : at + size]
            names = [_short(setting, kind) for setting in shown]
            if narrow:
                names = [name.replace(", ", "\n") for name in names]
            rows = [
                [label_of(rule), *(cell(setting, rule) for setting in shown)]
                for rule in held.rules
                if any((setting, rule) in held.losses for setting in shown)
            ]
            found.append([[kind, *names], *rows])
    return tuple(found)


def _short(setting: str, kind: str) -> str:
    """Return a setting's name without its kind, nor the mention of the common step."""
    name = setting.removeprefix(kind).removesuffix(COMMON).strip(", ")
    return name or "loss"


def _loss(held: Comparison, setting: str, rule: str, *, narrow: bool) -> str:
    if (setting, rule) not in held.losses:
        return "–"
    values = held.losses[setting, rule]
    if values is None:
        return "diverged"
    error = 0.0
    if not narrow and values.size > 1:
        error = float(values.std(ddof=1) / np.sqrt(values.size))
    return plus_minus(_rounded(float(values.mean())), error)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def against_best(held: Comparison, *, narrow: bool = False) -> Cells:
    """Return a table with the steady rule, its best rival and the plain average by setting."""
    heading = ["setting", OURS.label, "best rival", "its loss", "difference", "rules compared"]
    if narrow:
        heading[1:] = ["ours", "best rival", "its loss", "SE"]
    rows = []
    for setting in _fought(held):
        rival = held.best(setting, but=OURS)
        shown = [
            _number(held.mean(setting, OURS)),
            "–" if rival is None else label_of(rival),
            "–" if rival is None else _number(held.mean(setting, rival)),
            "–" if rival is None else _difference(held, setting, rival, narrow=narrow),
            str(sum((setting, rule) in held.losses for rule in held.rules)),
        ]
        name = setting.replace(",", "") if narrow else setting
        rows.append([name, *shown][: len(heading)])
    return [heading, *rows]


def _difference(held: Comparison, setting: str, rival: str, *, narrow: bool) -> str:
    errors = held.errors(setting, OURS, rival)
    if np.isnan(errors):
        return "–"
    if narrow:
        return f"{errors:+.1f}"
    where = "ahead" if errors < 0 else "behind"
    return f"{where} by {abs(errors):.1f} standard errors" if errors else "none"


def findings(held: Comparison) -> list[str]:
    """Return sentences on how often the steady rule leads, and where it loses."""
    fought = {
        setting: (rival, held.errors(setting, OURS, rival))
        for setting in _fought(held)
        if (rival := held.best(setting, but=OURS)) is not None
    }
    errors = np.array([value for _, value in fought.values()])
    if not fought or np.isnan(errors).all():
        return ["There are too few seeds or rules for standard errors."]
    ahead, level = int((errors <= -CLEAR).sum()), int((np.abs(errors) <= 1).sum())
    between = int(((errors < -1) & (errors > -CLEAR)).sum())
    found = [
        f"On {ahead} of {len(fought)} settings {OURS.label} leads the best of the others by "
        f"{CLEAR:g} standard errors or more; on {between} by one to {CLEAR:g}; on {level} the two "
        "are within one."
    ]
    for setting, (rival, value) in fought.items():
        if value > 0:
            verdict = "is **behind**" if value <= 1 else "**loses** to"
            found.append(
                f"It {verdict} {label_of(rival)} on {setting}: {_both(held, setting, rival)}, "
                f"{value:.1f} standard errors."
            )
    behind = [
        f"{setting} ({_both(held, setting, RuleName.FEDAVG)})"
        for setting in _fought(held)
        if held.mean(setting, OURS) > held.mean(setting, RuleName.FEDAVG)
    ]
    shown = "; ".join(behind) or "none of the settings"
    return [*found, f"It is behind the plain average on {shown}."]


def at_common_step(held: Comparison) -> list[str]:
    """Return a sentence on the steady rule and full participation, both at the common step."""
    ratios = {
        setting: held.mean(setting, OURS) / held.mean(setting, RuleName.FULL)
        for setting in _fought(held)
        if (setting, RuleName.FULL) in held.losses
    }
    if not ratios:
        return []
    above = [
        f"{setting.removesuffix(COMMON).strip(', ')} ({_ratio(value)})"
        for setting, value in ratios.items()
        if not value <= NEAR
    ]
    near = len(ratios) - len(above)
    more = f"; more on {', '.join(above)}" if above else ""
    return [
        f"At the common step its loss is at most {NEAR:g} × full participation's on {near} of "
        f"{len(ratios)} settings{more}."
    ]


def missing(held: Comparison) -> list[str]:
    """Return a sentence on the rules that were run on some settings only, if there are any."""
    n_settings = {
        rule: sum((setting, rule) in held.losses for setting in held.settings)
        for rule in held.rules
    }
    partly = [
        f"{label_of(rule)} ({number})"
        for rule, number in n_settings.items()
        if number < len(held.settings)
    ]
    if not partly:
        return []
    return [
        f"Not every rule was run on all {len(held.settings)} settings. Run on some only (on how "
        f"many): {'; '.join(partly)}."
    ]


def _fought(held: Comparison) -> list[str]:
    return [setting for setting in held.settings if (setting, OURS) in held.losses]


def _both(held: Comparison, setting: str, rival: str) -> str:
    ours, theirs = held.mean(setting, OURS), held.mean(setting, rival)
    return f"{_number(ours)} against {_number(theirs)}"


def _number(value: float) -> str:
    return plus_minus(_rounded(value), 0.0) if np.isfinite(value) else "diverged"


def _ratio(value: float) -> str:
    return f"{value:.3g} ×" if np.isfinite(value) else "diverged"
