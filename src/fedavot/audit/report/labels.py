"""Labels of marks that hide neither each other nor marks nor lines, where there is room.

Each label takes, in turn, the cheapest of some places around its mark. A place costs the distance
from the mark, and much more what it hides, whose it may be mistaken for, and how far it leaves the
axes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.report.canvas import COLOURS, settle

_STEPS = (7.0, 13.0, 21.0, 31.0, 43.0)
"""How far from its mark a label may stand, in points."""
_TURNS = np.arange(16) * np.pi / 8
_LEADER = 12.0


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
    settle(figure)
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
            _cost(box, step, axes.bbox.extents, marks, lines, boxed)
            + _crossed(_leader(marks[at], step * scale, turn), boxed)
            + _mistaken(box, marks, at)
            for step, turn, box in boxes
        ]
        step, turn, box = boxes[int(np.argmin(costs))]
        boxed.append(box)
        lines = np.concatenate([lines, _leader(marks[at], step * scale, turn)])
        _put(note, step, turn)


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


def _leader(mark: Floats, step: float, turn: float) -> Floats:
    """Return points along the line from a mark to its label, past the mark itself."""
    reach = np.linspace(0.3, 1.0, 12)[:, None] * step
    return np.asarray(mark + reach * np.array([np.cos(turn), np.sin(turn)]))


def _crossed(leader: Floats, taken: Sequence[Floats]) -> float:
    """Return how bad it is where a line to a label runs through other labels."""
    return 40.0 * sum(_inside(leader, other, margin=0) for other in taken)


def _mistaken(box: Floats, marks: Floats, own: int) -> float:
    """Return how bad it is where other marks are as near to a label as its own."""
    gaps = np.maximum(np.maximum(box[:2] - marks, marks - box[2:]), 0.0)
    away = np.hypot(*gaps.T)
    return 30.0 * int(np.count_nonzero(np.delete(away, own) < away[own] + 4.0))


def _inside(points: Floats, box: Floats, *, margin: float) -> int:
    inside = (points > box[:2] - margin) & (points < box[2:] + margin)
    return int(inside.all(axis=1).sum())


def _put(note: Any, step: float, turn: float) -> None:
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
