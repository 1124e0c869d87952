"""The figure of the rivals shows every rule of every setting, best first, and redraws alike."""

import matplotlib.image
import numpy as np
import pytest

from fedavot.experiments import rivals_figure
from fedavot.experiments.canvas import new_figure
from fedavot.experiments.outcome import Outcome
from fedavot.rules.names import label_of

LOSSES = {"full": 0.1, "fedavot": 0.15, "fedavg": 0.2, "fedau": 0.12, "fedawe": 25.0}


def outcome(setting, rule, loss):
    metrics = {} if loss is None else {"tail_loss": [0.9 * loss, 1.1 * loss]}
    return Outcome(
        setting,
        rule,
        "",
        "",
        (0, 1),
        np.array([1]),
        np.ones((2, 1)),
        None,
        metrics,
        seconds=0.0,
        message="" if metrics else "diverged",
        fingerprint="",
    )


@pytest.fixture
def outcomes():
    settings = ("stationary, uniform p", "stationary, skewed p", "sine, uniform p")
    found = [outcome(name, rule, loss) for name in settings for rule, loss in LOSSES.items()]
    return [*found, outcome("sine, uniform p", "afl", None)]


def test_rules_are_listed_best_first_with_the_diverged_last(outcomes):
    axes = new_figure(width=3, height=3).add_subplot()
    rivals_figure._panel(axes, [one for one in outcomes if one.setting == "sine, uniform p"])
    listed = [label.get_text() for label in axes.get_yticklabels()]
    assert listed == [label_of(rule) for rule in (*sorted(LOSSES, key=LOSSES.get), "afl")]
    written = [text.get_text() for text in axes.texts]
    assert written == ["25 →", "diverged"]


def test_dots_stand_at_the_means(outcomes):
    axes = new_figure(width=3, height=3).add_subplot()
    rivals_figure._panel(axes, outcomes[: len(LOSSES)])
    dots = [container.lines[0].get_xdata()[0] for container in axes.containers]
    shown = [loss for loss in sorted(LOSSES.values()) if loss <= axes.get_xlim()[1]]
    assert dots == pytest.approx(shown)


def test_the_figure_is_drawn_whole_and_redrawn_alike(outcomes, tmp_path):
    png, pdf = rivals_figure.draw_rivals(outcomes, tmp_path / "rivals")
    before = png.read_bytes(), pdf.read_bytes()
    height, width, _ = matplotlib.image.imread(png).shape
    assert (width, height) == (1400, 1480)
    assert before[1].startswith(b"%PDF")
    rivals_figure.draw_rivals(outcomes, tmp_path / "rivals")
    assert (png.read_bytes(), pdf.read_bytes()) == before
