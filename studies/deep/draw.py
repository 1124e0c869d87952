"""Draw tables and figures from the rows that `studies.deep.run` measured.

    python -m studies.deep.draw results/deep/rows.csv --out results/deep

One page of tables and one figure per design and horizon. Cells are means over the seeds and their
standard errors; in parentheses, the difference from the plain average in standard errors of the
seeds' own differences, negative where the value is less. Full participation does not see
availability: its runs stand in every column.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from studies.deep.contenders import RULES
from studies.deep.files import written
from studies.deep.run import TUNING
from studies.deep.world import DESIGNS

BASE, FULL = "plain", "full"
MEASURES = {
    "tail_loss": "Weighted training loss, mean of the last quarter",
    "test_accuracy": "Test accuracy, all test images",
    "worst_class_accuracy": "Test accuracy of the worst class",
    "worst_group_loss": "Training loss of the worst tenth of the clients",
}
COLOURS = {"uniform": "#1f5aa6", "skewed": "#d1662b"}
REACH = 2.5
"""Half the width of a panel, in units of the 70 % quantile of its differences."""


class Key(NamedTuple):
    """What a row belongs to, apart from its seed."""

    measure: str
    rule: str
    setting: str
    p: str


class Page:
    """What was measured on a design at a horizon, by key and seed."""

    def __init__(self, design: str, rows: Sequence[dict[str, str]]) -> None:
        order = DESIGNS[design].settings
        seen = {row["setting"] for row in rows if row["rule"] != FULL} or {order[0]}
        self.settings = [one for one in order if one in seen]
        self.found: dict[Key, dict[int, float]] = defaultdict(dict)
        for row in rows:
            everywhere = row["rule"] == FULL
            for setting in self.settings if everywhere else [row["setting"]]:
                key = Key(row["measure"], row["rule"], setting, row["p"])
                self.found[key][int(row["seed"])] = float(row["value"])
        names = {key.rule for key in self.found}
        self.rules = [rule for rule in RULES if rule in names] + sorted(names - {*RULES})
        self.importances = [p for p in COLOURS if p in {key.p for key in self.found}]

    def difference(self, key: Key) -> tuple[float, float]:
        """Return the mean difference from the plain average, paired by seed, and its error."""
        own, plain = self.found.get(key, {}), self.found.get(key._replace(rule=BASE), {})
        return mean_of([own[seed] - plain[seed] for seed in own.keys() & plain.keys()])


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, NaN where there are too few values."""
    array = np.array(values)
    error = array.std(ddof=1) / array.size**0.5 if array.size > 1 else np.nan
    return float(array.mean()) if array.size else np.nan, float(error)


def tables(page: Page) -> str:
    """Return the tables in Markdown, the best rule of each column in bold."""
    lines = []
    for measure, title in MEASURES.items():
        for p in page.importances:
            lines += [f"### {title}, {p} p", "", f"| rule | {' | '.join(page.settings)} |"]
            lines += ["|---" * (len(page.settings) + 1) + "|"]
            keys = {
                rule: [Key(measure, rule, setting, p) for setting in page.settings]
                for rule in page.rules
            }
            sign = 1 if measure.endswith("loss") else -1
            means = [
                [sign * mean_of(list(page.found.get(key, {}).values()))[0] for key in keys[rule]]
                for rule in page.rules
                if rule != FULL
            ]
            best = np.where(np.isfinite(means), means, np.inf).min(axis=0) * sign
            for rule in page.rules:
                texts = [_text(page, key, top) for key, top in zip(keys[rule], best, strict=True)]
                lines.append(f"| {rule} | {' | '.join(texts)} |")
            lines.append("")
    return "\n".join(lines)


def _text(page: Page, key: Key, best: float) -> str:
    mean, error = mean_of(list(page.found.get(key, {}).values()))
    if not np.isfinite(mean):
        return "diverged" if key in page.found else "–"
    text = f"{mean:.3f}"
    text = f"**{text}**" if mean == best and key.rule != FULL else text
    apart, spread = page.difference(key)
    text += f" ± {error:.3f}" if np.isfinite(error) else ""
    return text + (f" ({apart / spread:+.1f})" if spread > 0 else "")


def figure(page: Page, title: str, path: Path) -> None:
    """Draw every rule's difference in loss from the plain average, one panel per setting."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rules = [rule for rule in page.rules if rule != BASE][::-1]
    columns = min(4, len(page.settings))
    lines = -(-len(page.settings) // columns)
    size = (1.8 + 2.5 * columns, 0.8 + lines * (0.9 + 0.21 * len(rules)))
    drawing, axes = plt.subplots(
        lines, columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(page.settings) :]:
        axis.set_visible(False)
    for axis, setting in zip(axes.flat, page.settings, strict=False):
        _panel(axis, page, setting, rules)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
    drawing.suptitle(title, x=0.01, ha="left", fontsize=11)
    drawing.supxlabel("loss − loss of the plain average (left is better; bars: standard error)")
    written(path, lambda stream: drawing.savefig(stream, format="png", dpi=150))
    plt.close(drawing)


def _panel(axis: Any, page: Page, setting: str, rules: Sequence[str]) -> None:
    places = np.arange(len(rules))
    apart = np.array(
        [
            [page.difference(Key("tail_loss", rule, setting, p)) for rule in rules]
            for p in page.importances
        ]
    )
    means, errors = apart[..., 0], np.nan_to_num(apart[..., 1])
    known = np.abs(means[np.isfinite(means)])
    edge = REACH * np.quantile(known, 0.7) if known.any() else 1.0
    for p, shift, mean, error in zip(page.importances, (0.16, -0.16), means, errors, strict=False):
        style = {"color": COLOURS[p], "ms": 3.5, "ls": ""}
        axis.errorbar(mean, places + shift, xerr=error, marker="o", label=f"{p} p", **style)
        # Rules that are far off stand at the edge, as arrows, so that the others can be told apart.
        for sign, mark in ((1, ">"), (-1, "<")):
            far = places[sign * mean > edge]
            axis.plot(np.full(far.size, 0.96 * edge * sign), far + shift, marker=mark, **style)
    axis.set_xlim(-edge, edge)
    axis.axvline(0, color="0.4", lw=0.8)
    axis.set_yticks(places, rules, fontsize=8)
    axis.grid(axis="y", color="0.92")
    axis.tick_params(axis="x", labelsize=8)
    axis.tick_params(axis="y", length=0)
    axis.set_title(setting, fontsize=10)
    axis.spines[["top", "right", "left"]].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw everything in a file of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    pages = defaultdict(list)
    with options.rows.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["seed"] != str(TUNING) and row["measure"] in MEASURES:
                pages[row["design"], int(row["rounds"])].append(row)
    for (design, rounds), rows in sorted(pages.items()):
        page, path = Page(design, rows), options.out / f"{design}-{rounds}"
        title = f"{design}, {rounds:,} rounds, {len({row['seed'] for row in rows})} seeds"
        written(path.with_suffix(".md"), f"# {title}\n\n{tables(page)}")
        figure(page, title, path.with_suffix(".png"))
        print(f"{path}.md, .png")


if __name__ == "__main__":
    main()
