"""What pictures of an audit have in common: size, style, marks, and labels that stay apart.

Pictures are narrow enough for a phone. Their colours are those of `COLOURS` and no other: on the
page a style sheet puts lighter ones in their place on a dark screen. They are Okabe and Ito's,
darkened where they were too pale for text; shapes differ as well, so that no picture needs its
colours.
"""

import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats
from fedavot.audit.numerals import NARROW

COLOURS = {
    "ink": "#1b1f24",
    "muted": "#59636e",
    "grid": "#d5dae0",
    "wanted": "#0072b2",
    "plain": "#c85000",
    "attained": "#008561",
}
"""Names of the style sheet's variables, and what they are on white paper."""
_WIDTH = 4.5
"""Inches; with text of 10 points, legible on a screen 360 pixels wide."""
_ROW = 0.27
_LEGEND = 0.28
_LONGEST = 22
_UNPRINTED = {"Cc", "Cn", "Co", "Cs"}
"""Control characters, surrogates and the like: they break documents."""
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
_STEPS = (7.0, 13.0, 21.0, 31.0, 43.0)
"""How far from its mark a label may stand, in points."""
_TURNS = np.arange(16) * np.pi / 8
_LEADER = 12.0


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the house's style whatever the user's is, without a word on letters a font lacks."""
    import matplotlib.style

    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        warnings.filterwarnings("ignore", message="Glyph")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def new_figure(height: float, **options: Any) -> tuple[Any, Any]:
    """Return a figure so many inches high, apart from Matplotlib's global state, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**options)


def short(name: str) -> str:
    """Return a name on one line, cut where it is too long for a picture."""
    printed = (" " if unicodedata.category(letter) in _UNPRINTED else letter for letter in name)
    line = " ".join("".join(printed).split()) or "(no name)"
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


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


def place_labels(
    axes: Any,
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    *,
    bold: Sequence[bool],
    avoid: Sequence[tuple[float, float]] = (),
    taken: Sequence[Any] = (),
) -> None:
    """Label points so that no label hides another, a mark, or a line, where there is room.

    The figure's layout is settled first and stays as it is.

    Parameters
    ----------
    axes : matplotlib Axes
    points : sequence of pair of float
        What is labelled.
    labels : sequence of str
    bold : sequence of bool
        Which labels stand out; they are placed first.
    avoid : sequence of pair of float
        Further points that labels should not hide.
    taken : sequence of matplotlib Text
        What is already written there.
    """
    figure = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    scale = figure.dpi / 72
    marks = axes.transData.transform(np.asarray(points, dtype=float).reshape(-1, 2))
    lines = axes.transData.transform(np.asarray(avoid, dtype=float).reshape(-1, 2))
    boxed = [np.asarray(text.get_window_extent().extents) for text in taken]
    for at in sorted(range(len(labels)), key=lambda at: (not bold[at], -marks[at][0])):
        note = axes.annotate(
            labels[at],
            points[at],
            xytext=(0, 0),
            textcoords="offset points",
            size=9,
            weight="bold" if bold[at] else "normal",
            parse_math=False,
            zorder=6,
        )
        extent = note.get_window_extent()
        boxes = [
            (step, turn, _box(marks[at], step * scale, turn, (extent.width, extent.height)))
            for step in _STEPS
            for turn in _TURNS
        ]
        costs = [
            _cost(box, step, axes.bbox.extents, marks, lines, boxed) for step, _, box in boxes
        ]
        step, turn, box = boxes[int(np.argmin(costs))]
        boxed.append(box)
        _settle(note, step, turn)


def _box(mark: Floats, step: float, turn: float, size: tuple[float, float]) -> Floats:
    """Return left, bottom, right and top of a label that starts a step away from its mark."""
    across, up = np.cos(turn), np.sin(turn)
    left = mark[0] + step * across - size[0] * _before(across)
    bottom = mark[1] + step * up - size[1] * _before(up)
    return np.array([left, bottom, left + size[0], bottom + size[1]])


def _before(direction: float) -> float:
    """Return how much of a label lies before where it is anchored: none, half or all."""
    return 0.0 if direction > 0.3 else 1.0 if direction < -0.3 else 0.5


def _cost(
    box: Floats,
    step: float,
    frame: Floats,
    marks: Floats,
    lines: Floats,
    taken: Sequence[Floats],
) -> float:
    """Return how bad a place is: what it hides, how far it leaves the axes and its mark."""
    outside = np.maximum(frame[:2] - box[:2], 0).sum() + np.maximum(box[2:] - frame[2:], 0).sum()
    hidden = sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]) + 9)
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]) + 1)
        for other in taken
    )
    return float(
        step
        + 50 * outside
        + 50 * hidden
        + 400 * _inside(marks, box, margin=5)
        + 15 * _inside(lines, box, margin=1)
    )


def _inside(points: Floats, box: Floats, *, margin: float) -> int:
    inside = (points > box[:2] - margin) & (points < box[2:] + margin)
    return int(inside.all(axis=1).sum())


def _settle(note: Any, step: float, turn: float) -> None:
    """Put a label in its place, with a line to its mark if that is far."""
    across, up = float(np.cos(turn)), float(np.sin(turn))
    note.set_position((step * across, step * up))
    note.set_horizontalalignment({0.0: "left", 0.5: "center", 1.0: "right"}[_before(across)])
    note.set_verticalalignment({0.0: "bottom", 0.5: "center", 1.0: "top"}[_before(up)])
    if step > _LEADER:
        note.axes.annotate(
            "",
            note.xy,
            xytext=(step * across, step * up),
            textcoords="offset points",
            arrowprops={
                "arrowstyle": "-",
                "color": COLOURS["muted"],
                "linewidth": 0.7,
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )
