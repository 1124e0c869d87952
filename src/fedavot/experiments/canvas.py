"""What all figures share: each rule's colour and line, empty figures, and files.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles differ as well.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot._files import write_whole
from fedavot.rules.names import RuleName


class Look(NamedTuple):
    """How a rule's curve is drawn."""

    colour: str
    dashes: str = "-"


LOOKS: dict[str, Look] = {
    RuleName.FULL: Look("#000000"),
    RuleName.STEADY: Look("#009E73"),
    RuleName.FEDAVOT: Look("#0072B2"),
    RuleName.VARIANCE: Look("#0072B2", "--"),
    RuleName.SOFT: Look("#0072B2", ":"),
    RuleName.ONLINE: Look("#56B4E9"),
    RuleName.SELECT: Look("#CC79A7"),
    RuleName.FEDAVG: Look("#E69F00"),
    RuleName.IMPORTANCE_AVERAGE: Look("#E69F00", "--"),
    RuleName.SELF_NORMALISED_IPW: Look("#D55E00"),
    RuleName.HORVITZ_THOMPSON: Look("#999999", "--"),
    RuleName.FEDAVG_K: Look("#999999", ":"),
    RuleName.FEDAVGM: Look("#E69F00", ":"),
    RuleName.FEDADAM: Look("#E69F00", "-."),
    RuleName.FEDAU: Look("#882255"),
    RuleName.F3AST: Look("#882255", "--"),
    RuleName.MIFA: Look("#117733", "--"),
    RuleName.FEDVARP: Look("#117733", ":"),
    RuleName.FEDSTALE: Look("#117733", "-."),
    RuleName.FOCUS: Look("#44AA99"),
    RuleName.FEDAWE: Look("#AA4499", "--"),
    RuleName.AREA: Look("#AA4499", ":"),
    RuleName.FEDPROX: Look("#DDCC77", "--"),
    RuleName.SCAFFOLD: Look("#332288", "--"),
    RuleName.AMPLIFIED_FEDAVG: Look("#332288", ":"),
    RuleName.AMPLIFIED_SCAFFOLD: Look("#332288", "-."),
    RuleName.CA_FED: Look("#882255", ":"),
    RuleName.QFFL: Look("#888888", "-."),
    RuleName.AFL: Look("#888888", ":"),
}


def look_of(rule: str) -> Look:
    """Return how to draw a rule by its name; rules that are not the library's own are brown."""
    return LOOKS.get(rule, Look("#8B4513"))


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in Matplotlib's default style, without its warnings.

    They concern missing glyphs and crowded labels, which the user of a study cannot change.
    """
    import matplotlib.style

    with warnings.catch_warnings(), matplotlib.style.context("default"):
        warnings.simplefilter("ignore", UserWarning)
        yield


def new_figure(*, width: float, height: float) -> Any:
    """Return an empty figure, sized in inches, independent of Matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_mean(axes: Any, rounds: Any, values: Floats, **line: Any) -> Any:
    """Draw mean ± standard deviation of values, shape (n_seeds, n_rounds); return the line."""
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=min(1, len(values) - 1))
    # On a log scale a band that reaches zero would fill the axes: it stops at a tenth of the mean.
    low = np.maximum(mean - spread, mean / 10)
    axes.fill_between(rounds, low, mean + spread, color=line["color"], alpha=0.15, linewidth=0)
    return axes.plot(rounds, mean, **line)[0]


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as PNG and PDF, each completely or not at all, without the date."""
    from fedavot.audit.report.drawing import settle

    settle(figure)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    write_whole(paths[0], lambda stream: figure.savefig(stream, format="png", dpi=200))
    metadata = {"CreationDate": None}
    write_whole(paths[1], lambda stream: figure.savefig(stream, format="pdf", metadata=metadata))
    return paths
