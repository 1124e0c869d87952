"""The figures of the rivals show every rule of every setting, and redraw alike."""

import matplotlib.image
import numpy as np
import pytest

from fedavot.experiments import rivals_figure
from fedavot.experiments.canvas import new_figure
from fedavot.experiments.comparison import compared
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.study import COMMON, common
from fedavot.rules.names import label_of

SETTINGS = ("softmax, sine, uniform p", "softmax, sine, skewed p", "phones, uniform p")
LOSSES = {"full": 0.05, "fedavot-steady": 0.1, "fedau": 0.12, "fedavg": 0.2, "fedawe": 25.0}
"""In the order of the figure."""


def outcome(setting, rule, loss, steps="0.1 constant"):
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
        steps=steps,
    )


@pytest.fixture
def outcomes():
    found = [outcome(name, rule, loss) for name in SETTINGS for rule, loss in LOSSES.items()]
    found += [outcome(common(one.setting), one.rule, 1.0, COMMON) for one in found]
    return [*found, outcome(SETTINGS[-1], "afl", None)]


def axes_of(draw, outcomes):
    axes = new_figure(width=7, height=4).add_subplot()
    draw(axes, compared([one for one in outcomes if one.steps != COMMON]))
    return axes


def test_rules_are_listed_best_first_below_full_participation(outcomes):
    axes = axes_of(rivals_figure._heat_map, outcomes)
    listed = [label.get_text() for label in axes.get_yticklabels()]
    assert listed == [label_of(rule) for rule in (*LOSSES, "afl")]
    assert [label.get_text() for label in axes.get_xticklabels()] == [*SETTINGS]
    weights = {text.get_text(): text.get_weight() for text in axes.get_yticklabels()}
    assert [name for name, weight in weights.items() if weight == "bold"] == [listed[1]]


def test_cells_have_the_ratio_to_the_best_but_full_participation(outcomes):
    axes = axes_of(rivals_figure._heat_map, outcomes)
    written = {text.get_position(): text.get_text() for text in axes.texts}
    column = ["0.50", "1.00", "1.20", "2.00", ">99"]
    assert [written[0, row] for row in range(5)] == column
    assert (0, 5) not in written  # afl was not run there
    assert written[2, 5] == "div."
    bold = [text.get_position() for text in axes.texts if text.get_weight() == "bold"]
    assert bold == [(at, 1) for at in range(3)]


def test_dots_stand_at_the_ratio_to_the_steady_rule(outcomes):
    axes = axes_of(rivals_figure._dots, outcomes)
    dots = {line.get_label(): line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 3}
    for label, ratio in {
        label_of("fedavot-steady"): 1.0,
        "best rival": 1.2,
        label_of("fedavg"): 2.0,
        label_of("full"): 0.5,
    }.items():
        assert dots[label] == pytest.approx(np.full(3, ratio))
    assert [text.get_text() for text in axes.texts] == [label_of("fedau")] * 3


def test_ratios_beyond_the_axes_are_written_at_their_edge():
    held = {"fedavot-steady": 0.1, "fedavg": 9.0, "full": 1e-9}
    axes = axes_of(rivals_figure._dots, [outcome("s", *one) for one in held.items()])
    assert {"90", "0"} < {text.get_text() for text in axes.texts}


def test_the_figures_are_drawn_whole_and_redrawn_alike(outcomes, tmp_path):
    paths = rivals_figure.draw_rivals(outcomes, tmp_path / "rivals")
    assert [path.name for path in paths] == [
        f"rivals{which}.{kind}" for which in ("", "-steady") for kind in ("png", "pdf")
    ]
    before = [path.read_bytes() for path in paths]
    for path in paths[::2]:
        assert matplotlib.image.imread(path).shape[1] == 1400
    assert all(content.startswith(b"%PDF") for content in before[1::2])
    rivals_figure.draw_rivals(outcomes, tmp_path / "rivals")
    assert [path.read_bytes() for path in paths] == before


def test_without_the_steady_rule_there_is_one_figure(tmp_path):
    found = [outcome("s", rule, loss) for rule, loss in LOSSES.items() if "steady" not in rule]
    assert len(rivals_figure.draw_rivals(found, tmp_path / "rivals")) == 2
