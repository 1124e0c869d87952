"""Draw tables and figures from the rows that `studies.deep.run` measured.

    python -m studies.deep.draw results/deep/rows.csv --out results/deep

One page of tables and one figure per design and horizon. Cells are means over the seeds and their
standard errors; in parentheses, the difference from the plain average in standard errors of the
seeds' own differences, negative where the loss is less. Full participation does not see
availability: its runs stand in every column.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from studies.deep.contenders import RULES
from studies.deep.files import written
from studies.deep.run import TUNING
from studies.deep.world import DESIGNS

BASE, FULL = "plain", "full"
MEASURES = {
    "tail_loss": "Weighted training loss, mean of the last quarter",
    "test_accuracy": "Test accuracy, all 10,000 images",
    "worst_class_accuracy": "Test accuracy of the worst class",
    "worst_group_loss": "Training loss of the worst tenth of the clients",
}
COLOURS = {"uniform": "#1f5aa6", "skewed": "#d1662b"}

Values = dict[int, float]
"""A measure by seed."""


class Cell(NamedTuple):
    """A rule on a setting, with an importance."""

    rule: str
    setting: str
    p: str


class Page:
    """What was measured on a design at a horizon."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        self.found: dict[tuple[str, Cell], Values] = defaultdict(dict)
        for row in rows:
            cell = Cell(row["rule"], row["setting"], row["p"])
            if row["measure"] in MEASURES:
                self.found[row["measure"], cell][int(row["seed"])] = float(row["value"])
        cells = {cell for _, cell in self.found}
        order = [one for design in DESIGNS.values() for one in design.settings]
        self.settings = sorted({cell.setting for cell in cells}, key=order.index)
        listed = {rule: place for place, rule in enumerate(RULES)}
        self.rules = sorted(
            {cell.rule for cell in cells}, key=lambda rule: (listed.get(rule, len(listed)), rule)
        )
        self.importances = [p for p in COLOURS if any(cell.p == p for cell in cells)]
        self.seeds = len({seed for values in self.found.values() for seed in values})

    def values(self, measure: str, cell: Cell) -> Values:
        """Return a measure by seed; empty if there is none."""
        if cell.rule == FULL:
            own = [key for key in self.found if key[0] == measure and key[1].rule == FULL]
            own = [key for key in own if key[1].p == cell.p]
            return self.found[own[0]] if own else {}
        return self.found.get((measure, cell), {})

    def difference(self, measure: str, cell: Cell) -> NDArray[np.float64]:
        """Return the differences from the plain average, of the seeds that both have."""
        own = self.values(measure, cell)
        plain = self.values(measure, cell._replace(rule=BASE))
        return np.array([own[seed] - plain[seed] for seed in sorted(own.keys() & plain.keys())])


def tables(page: Page) -> str:
    """Return the tables in Markdown."""
    lines = []
    for measure, title in MEASURES.items():
        for p in page.importances:
            lines += [f"### {title}, {p} p", ""]
            lines += ["| rule | " + " | ".join(page.settings) + " |"]
            lines += ["|---" * (len(page.settings) + 1) + "|"]
            best = {setting: _best(page, measure, setting, p) for setting in page.settings}
            for rule in page.rules:
                texts = [
                    _text(page, measure, Cell(rule, setting, p), bold=best[setting] == rule)
                    for setting in page.settings
                ]
                lines.append(f"| {rule} | " + " | ".join(texts) + " |")
            lines.append("")
    return "\n".join(lines)


def _best(page: Page, measure: str, setting: str, p: str) -> str:
    """Return the rule with the best mean, full participation apart."""
    sign = 1 if measure.endswith("loss") else -1
    means = {
        rule: sign * _mean(values)[0]
        for rule in page.rules
        if rule != FULL and (values := page.values(measure, Cell(rule, setting, p)))
    }
    finite = {rule: mean for rule, mean in means.items() if np.isfinite(mean)}
    return min(finite, key=lambda rule: finite[rule]) if finite else ""


def _mean(values: Values) -> tuple[float, float]:
    """Return the mean and its standard error."""
    array = np.array(list(values.values()))
    spread = array.std(ddof=1) / np.sqrt(array.size) if array.size > 1 else np.nan
    return float(array.mean()), float(spread)


def _text(page: Page, measure: str, cell: Cell, *, bold: bool) -> str:
    values = page.values(measure, cell)
    if not values:
        return "–"
    mean, spread = _mean(values)
    if not np.isfinite(mean):
        return "diverged"
    text = f"{mean:.3f}".lstrip("0")
    text = f"**{text}**" if bold else text
    if np.isfinite(spread):
        text += f" ± {spread:.3f}".replace("0.", ".")
    apart = page.difference(measure, cell)
    if cell.rule != BASE and apart.size > 1:
        error = apart.std(ddof=1) / np.sqrt(apart.size)
        text += f" ({apart.mean() / error:+.1f})" if error > 0 else ""
    return text


def figure(page: Page, title: str, path: Path) -> None:
    """Draw every rule's difference in loss from the plain average, one panel per setting."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rules = [rule for rule in page.rules if rule != BASE][::-1]
    columns = min(4, len(page.settings))
    lines = -(-len(page.settings) // columns)
    drawing, axes = plt.subplots(
        lines,
        columns,
        figsize=(1.8 + 2.5 * columns, 0.8 + lines * (0.9 + 0.21 * len(rules))),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, setting in zip(axes.flat, page.settings, strict=False):
        _panel(axis, page, setting, rules)
    for axis in axes.flat[len(page.settings) :]:
        axis.set_visible(False)
    marks, names = axes.flat[0].get_legend_handles_labels()
    if len(names) > 1:
        drawing.legend(marks, names, loc="outside lower right", ncols=2, frameon=False)
    drawing.suptitle(title, x=0.01, ha="left", fontsize=11)
    drawing.supxlabel("loss − loss of the plain average (less is better; bars: standard error)")
    written(path, lambda stream: drawing.savefig(stream, format="png", dpi=150))
    plt.close(drawing)


def _panel(axis: "object", page: Page, setting: str, rules: Sequence[str]) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    reach = []
    for shift, p in zip((0.16, -0.16), page.importances, strict=False):
        apart = [page.difference("tail_loss", Cell(rule, setting, p)) for rule in rules]
        means = np.array([one.mean() if one.size else np.nan for one in apart])
        errors = np.array([one.std(ddof=1) / one.size**0.5 if one.size > 1 else 0 for one in apart])
        places = np.arange(len(rules)) + shift
        style = {"color": COLOURS[p], "label": f"{p} p"}
        axis.errorbar(means, places, xerr=errors, fmt="o", ms=3.5, elinewidth=1, **style)
        reach += list(means[np.isfinite(means)])
    axis.axvline(0, color="0.4", lw=0.8)
    for place in range(len(rules)):
        axis.axhline(place, color="0.92", lw=0.8, zorder=0)
    # Rules that are far worse stand at the edge, with an arrow, so that the others can be told.
    edge = 2.5 * float(np.quantile(np.abs(reach), 0.7)) if reach else 1.0
    axis.set_xlim(-edge, edge)
    for line in list(axis.lines):
        points = np.column_stack([np.ravel(line.get_xdata()), np.ravel(line.get_ydata())])
        if line.get_marker() == "o":
            for _, at in points[points[:, 0] > edge]:
                axis.plot(0.97 * edge, at, ">", ms=4, color=line.get_color())
    axis.set_yticks(range(len(rules)), rules, fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.set_title(setting, fontsize=10)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw everything in a file of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    with options.rows.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["seed"] != str(TUNING)]
    for design, rounds in sorted({(row["design"], int(row["rounds"])) for row in rows}):
        page = Page([r for r in rows if (r["design"], int(r["rounds"])) == (design, rounds)])
        name, title = f"{design}-{rounds}", f"{design}, {rounds:,} rounds, {page.seeds} seeds"
        text = f"# {title}\n\n{tables(page)}"
        written(options.out / f"{name}.md", lambda stream, text=text: stream.write(text.encode()))
        figure(page, title, options.out / f"{name}.png")
        print(f"{options.out / name}.md, .png")


if __name__ == "__main__":
    main()
