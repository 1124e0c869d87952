"""What pictures of an audit have in common: size, style, marks and axes.

Pictures are narrow enough for a phone. Their colours are those of `COLOURS` and no other: on the
page a style sheet puts lighter ones in their place on a dark screen. They are Okabe and Ito's,
darkened where they were too pale for text; shapes differ as well, so that no picture needs its
colours.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers
from fedavot.audit.report.numerals import NARROW, NOTHING, count, shown

COLOURS = {
    "ink": "#1b1f24",
    "muted": "#59636e",
    "grid": "#d5dae0",
    "wanted": "#0072b2",
    "plain": "#c85000",
    "attained": "#008561",
}
"""Names of the style sheet's variables, and what they are on white paper."""
MOST_ROWS = 16
"""Rows of a picture by client or group: more do not fit a phone's screen."""
_WIDTH = 4.5
"""Inches; with text of 10 points, legible on a screen 360 pixels wide."""
_ROW = 0.27
_LEGEND = 0.28
_LONGEST = 22
_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": COLOURS["ink"],
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.6,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": COLOURS["ink"],
    "text.parse_math": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedavot",
}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, what it is called, and what it shows.

    Attributes
    ----------
    name : str
        For files and anchors: lower case, no spaces.
    title : str
        For its heading.
    alt : str
        What it shows, with numbers, for those who cannot see it.
    figure : matplotlib Figure
    """

    name: str
    title: str
    alt: str
    figure: Any


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the house's style whatever the user's is, and keep Matplotlib's warnings to itself.

    They are about letters that a font lacks and labels that leave no room: nothing that whoever
    audits a log could act on.
    """
    import matplotlib.style

    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        warnings.simplefilter("ignore", UserWarning)
        yield


def new_figure(height: float, **options: Any) -> tuple[Any, Any]:
    """Return a figure so many inches high, apart from Matplotlib's global state, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**options)


def settle(figure: Any) -> None:
    """Lay a figure out and leave it so, however often and in whatever size it is drawn."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def short(name: str) -> str:
    """Return a name on one line, cut where it is too long for a picture."""
    return shown(" ".join(name.split()), _LONGEST) or "(no name)"


def height_of(rows: int) -> float:
    """Return how many inches a picture of so many rows needs."""
    return 0.75 + _ROW * rows


def name_rows(axes: Any, labels: Sequence[str]) -> None:
    """Make one row a label, from the top, with grid lines for the values alone."""
    axes.set_yticks(np.arange(len(labels)), labels, color=COLOURS["ink"], parse_math=False)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")


def dots(axes: Any, across: ArrayLike, up: ArrayLike, **look: Any) -> None:
    """Draw marks of a colour and a shape, filled or hollow."""
    colour = COLOURS[look.pop("colour")]
    hollow = look.pop("hollow", False)
    axes.scatter(
        across,
        up,
        **{"s": 44, "zorder": 3, "linewidths": 1.5, **look},
        facecolors="none" if hollow else colour,
        edgecolors=colour,
    )


def joined(axes: Any, first: Floats, second: Floats) -> None:
    """Join two values in each row by a line."""
    rows = np.arange(first.size)
    axes.hlines(rows, first, second, color=COLOURS["muted"], linewidth=1.2, zorder=2)


def in_percent(axis: Any) -> None:
    """Label an axis of shares in per cent, from 0 to 1 at most."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}{NARROW}%"))


def legend(figure: Any, axes: Any) -> None:
    """Say above the axes what each shape is."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        handletextpad=0.2,
        columnspacing=1.2,
        borderaxespad=0.0,
    )
    below = 1 - _LEGEND / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0, 1, below))


def fewer(drawn: int, there: int, which: str) -> str:
    """Say how many are shown, where not all are."""
    return f" Shown are the {drawn} {which}, of {count(there)}." if drawn < there else ""


def extremes(excess: Floats) -> Integers:
    """Return the rows farthest from 0, at most `MOST_ROWS`, from the most above to the most below.

    Half of them are above and half below, as far as there are so many. Rows at 0 are left out
    where not all fit.
    """
    order = np.argsort(-excess, kind="stable")
    if order.size <= MOST_ROWS:
        return order
    rows = np.concatenate([order[: MOST_ROWS // 2], order[-(MOST_ROWS // 2) :]])
    off = rows[np.abs(excess[rows]) > NOTHING]
    return off if off.size else rows


def from_zero(axes: Any) -> None:
    """Make the values an axis of shares that starts at 0."""
    in_percent(axes.xaxis)
    axes.margins(x=0.06)
    axes.set_xlim(left=-0.03 * axes.get_xlim()[1])
