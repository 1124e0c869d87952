"""What pictures have in common: size, style, marks, axes, labels, and how they become markup.

Pictures are narrow enough for a phone. They use only the colours in `COLOURS`: on the page, a style
sheet replaces them with lighter ones on a dark screen. They are Okabe and Ito's, darkened where
they were too pale for text; shapes differ as well, so that every picture can be read without its
colours.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats
from fedavot.audit.report.terms import NARROW, count, shown

COLOURS = {
    "ink": "#1b1f24",
    "muted": "#59636e",
    "grid": "#d5dae0",
    "wanted": "#0072b2",
    "plain": "#c85000",
    "attained": "#008561",
}
"""Names of the style sheet's variables, and their colours on white paper."""
_WIDTH = 4.5
"""Inches; with text of 10 points, legible on a screen 360 pixels wide."""
_ROW = 0.27
_LEGEND = 0.28
_LONGEST = 22
_STYLE = {
    "font.size": 10,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor"), COLOURS["muted"]),
    **dict.fromkeys(("xtick.color", "ytick.color"), COLOURS["muted"]),
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.6,
    "text.color": COLOURS["ink"],
    "text.parse_math": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedavot",
}
_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_DROPPED = {"metadata", "style"}
_FAMILY = re.compile(r"font-family: [^;]*(; )?")
_FONT = re.compile(r"font: (?:(?P<weight>bold|\d+) )?(?P<size>[\d.]+)px [^;]*")
"""How Matplotlib names fonts, since 3.11 and before."""


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
    """Draw in the report's style, whatever the user's style is, and silence Matplotlib's warnings.

    They are about letters that a font lacks and labels that leave no room, about which a user who
    audits a log can do nothing.
    """
    import matplotlib.style

    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        warnings.simplefilter("ignore", UserWarning)
        yield


def new_figure(height: float, **options: Any) -> tuple[Any, Any]:
    """Return a figure of this height in inches, outside pyplot's global state, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**options)


def settle(figure: Any) -> None:
    """Lay out a figure and fix the layout, however often and at whatever size it is drawn."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def short(name: str) -> str:
    """Return a name on one line, truncated if it is too long for a picture."""
    return shown(" ".join(name.split()), _LONGEST)


def name_rows(axes: Any, labels: Sequence[str]) -> None:
    """Label one row per name, from the top, with grid lines for the values only."""
    axes.set_yticks(
        np.arange(len(labels)), [*map(short, labels)], color=COLOURS["ink"], parse_math=False
    )
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")


def dots(axes: Any, across: ArrayLike, up: ArrayLike, **look: Any) -> None:
    """Draw markers of a colour and a shape, filled or hollow."""
    colour = COLOURS[look.pop("colour")]
    hollow = look.pop("hollow", False)
    axes.scatter(
        across,
        up,
        **{"s": 44, "zorder": 3, "linewidths": 1.5, **look},
        facecolors="none" if hollow else colour,
        edgecolors=colour,
    )


def in_percent(axis: Any) -> None:
    """Label an axis of shares in per cent."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}{NARROW}%"))


def row_figure(labels: Sequence[str], marks: Sequence[tuple[Floats, dict[str, Any]]]) -> Any:
    """Return a figure with one row per label, and a legend of the shapes above the axes.

    Every kind of mark has its shares, one per row, and its look. A line joins the first two kinds.
    """
    figure, axes = new_figure(0.75 + _ROW * len(labels))
    name_rows(axes, labels)
    rows = np.arange(len(labels))
    axes.hlines(rows, marks[0][0], marks[1][0], color=COLOURS["muted"], linewidth=1.2, zorder=2)
    for shares, look in marks:
        dots(axes, shares, rows, **look)
    in_percent(axes.xaxis)
    axes.margins(x=0.06)
    axes.set_xlim(left=-0.03 * axes.get_xlim()[1])
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="upper left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        handletextpad=0.2,
        columnspacing=1.2,
        borderaxespad=0.0,
    )
    below = 1 - _LEGEND / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0, 1, below))
    return figure


def label_beside(
    axes: Any, points: Sequence[tuple[float, float]], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Label points to the right of the axes, one below the other, with a line to each.

    Labels keep the points' order from top to bottom, and are placed as close to the height of their
    points as the other labels allow. Labels in any colour but ``muted`` are bold.
    """
    from matplotlib.collections import LineCollection

    axes.get_xlim(), axes.get_ylim()  # updates the limits to what was drawn
    marks = axes.transAxes.inverted().transform(axes.transData.transform(points))
    order = np.argsort(marks[:, 1], kind="stable")
    step = 12.5 / (72 * 0.85 * axes.figure.get_figheight())
    rows = step * np.arange(len(labels))
    # From the bottom, each at least a step above the one before; then all down, if too high.
    raised = np.maximum.accumulate(marks[order, 1] - rows) + rows
    heights = np.maximum(np.minimum(raised, 1.0 + rows - rows[-1]), rows - step)
    for at, height in zip(order.tolist(), heights.tolist(), strict=True):
        bold = colours[at] != "muted"
        axes.text(
            *(1.07, height, labels[at]),
            transform=axes.transAxes,
            va="center",
            size=9,
            weight="bold" if bold else "normal",
            color=COLOURS[colours[at] if bold else "ink"],
        )
    ends = np.column_stack([np.full(order.size, 1.05), heights])
    lines = list(np.stack([marks[order], ends], axis=1))
    look: Any = {"colors": COLOURS["muted"], "linewidths": 0.6, "clip_on": False}
    axes.add_collection(LineCollection(lines, transform=axes.transAxes, **look), autolim=False)


def fewer(drawn: int, there: int, which: str) -> str:
    """Say how many are shown, if not all are."""
    return f" Shown are the {drawn} {which}, of {count(there)}." if drawn < there else ""


def write_png(picture: Picture, stream: IO[bytes]) -> None:
    """Write a picture with its title, on white, at 160 dots per inch."""
    look = {"ha": "left", "va": "bottom", "weight": "bold", "size": 11}
    with drawing():
        title = picture.figure.text(0.01, 1.01, picture.title, **look)
        try:
            picture.figure.savefig(
                *(stream,), format="png", dpi=160, facecolor="white", bbox_inches="tight"
            )
        finally:
            title.remove()


def inline(picture: Picture) -> str:
    """Return a picture as an ``svg`` element with a title and a description.

    Anything that an HTML page does not need is dropped, colours become the page's variables, and
    ids are prefixed with the picture's name, so that pictures on one page do not clash.
    """
    root = ElementTree.fromstring(_document(picture))
    values = (value for element in root.iter() for value in element.attrib.values())
    used = set(re.findall(r"#([\w-]+)", " ".join(values)))
    _clean(root, used, f"{picture.name}-")
    box, titles = root.get("viewBox", ""), f"{picture.name}-title {picture.name}-desc"
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "role": "img", "aria-labelledby": titles})
    for place, (tag, text) in enumerate((("title", picture.title), ("desc", picture.alt))):
        element = ElementTree.Element(tag, {"id": f"{picture.name}-{tag}"})
        element.text = text
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _document(picture: Picture) -> str:
    stream, nothing = io.StringIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with drawing():
        picture.figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    return stream.getvalue()


def _clean(element: ElementTree.Element, used: set[str], prefix: str) -> None:
    """Strip an element and its descendants of namespaces, unused ids, fonts and fixed colours."""
    element.tag = _local(element.tag)
    kept = {key: one for key, one in element.attrib.items() if key != "id" or one in used}
    element.attrib.clear()
    for key, one in kept.items():
        element.set(_local(key), prefix + one if key == "id" else _value(one, prefix))
    element.tail = None
    if element.text is not None and not element.text.strip():
        element.text = None
    for child in list(element):
        if _local(child.tag) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, used, prefix)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(value: str, prefix: str) -> str:
    """Return an attribute's value with the page's colours and font, and the picture's ids."""
    value = _FONT.sub(_font, _FAMILY.sub("", value))
    value = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), value)
    return re.sub(r"(^|url\()#([\w-]+)", rf"\g<1>#{prefix}\g<2>", value)


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found['weight']}; " if found["weight"] else ""
    return f"{weight}font-size: {found['size']}px"
