"""Figures of studies: runs that diverge, and names that Matplotlib warns about."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from fedavot.experiments import figures
from fedavot.experiments.canvas import drawing, save
from fedavot.experiments.figures import draw_curves
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.rivals_figure import draw_rivals
from fedavot.experiments.study import Panel

ROUNDS = np.arange(1, 101)
FOREIGN = "学习 उदाहरण 𓀀"
"""Letters that the font Matplotlib comes with has none of."""


def outcome(rule, losses, *, diverged=False):
    losses = np.atleast_2d(losses)
    return Outcome(
        setting="s",
        rule=rule,
        knows="",
        stores="",
        seeds=tuple(range(len(losses))),
        recorded=np.arange(1, losses.shape[1] + 1),
        losses=losses,
        optimum=None,
        metrics={} if diverged else {"tail_loss": [1.0] * len(losses)},
        seconds=1.0,
        message="diverged" if diverged else "",
        fingerprint="x",
    )


def drawn(outcomes, tmp_path, monkeypatch, title="s"):
    """Return the upper axes of a figure of one setting, and its legend's labels."""
    kept = []
    monkeypatch.setattr(
        figures, "save", lambda figure, stem: kept.append(figure) or save(figure, stem)
    )
    panel = Panel("s", np.full(4, 0.25), np.full(4, 0.5), excess=False)
    with drawing():
        for path in draw_curves(outcomes, [panel], tmp_path / "f", title=title):
            assert path.stat().st_size > 1000
    labels = [text.get_text() for text in kept[0].legends[0].get_texts()]
    return kept[0].axes[0], labels


def test_the_legend_says_when_a_run_diverged(tmp_path, monkeypatch):
    runs = [
        outcome("full", 1 / ROUNDS),
        outcome("fedavg", 3.0 ** ROUNDS[:60], diverged=True),
        outcome("horvitz-thompson", np.zeros((1, 0)), diverged=True),
        outcome("self-normalised-ipw", 10.0 ** (3 * ROUNDS), diverged=True),
    ]
    _, labels = drawn(runs, tmp_path, monkeypatch)
    assert len(labels) == 4
    assert "diverged after round 33" in labels[3]
    assert "diverged after round 60" in labels[1]
    assert "diverged after round 0" in labels[2]


@pytest.mark.parametrize("diverged", [True, False])
def test_a_run_far_above_leaves_the_others_in_view(tmp_path, monkeypatch, diverged):
    far = outcome("fedavg", 10.0 ** (3 * ROUNDS), diverged=diverged)
    axes, labels = drawn([outcome("full", 1 / ROUNDS), far], tmp_path, monkeypatch)
    low, high = axes.get_ylim()
    assert low < 1 / ROUNDS[-1]
    assert 1 < high < 1e3
    assert "round" in labels[1]


@pytest.mark.parametrize("growth", [1.0, 100.0, 1e15, 1e290])
def test_runs_that_all_diverge_are_drawn(tmp_path, monkeypatch, growth):
    with np.errstate(over="ignore"):
        losses = np.minimum(growth ** np.arange(1.0, 21.0), 1.7e308)
    axes, _ = drawn([outcome("fedavg", losses, diverged=True)], tmp_path, monkeypatch)
    assert np.isfinite(axes.get_ylim()).all()


@pytest.mark.parametrize("losses", [np.zeros(5), np.zeros((1, 0))])
def test_runs_without_a_positive_loss_are_drawn(tmp_path, monkeypatch, losses):
    axes, _ = drawn([outcome("fedavg", losses)], tmp_path, monkeypatch)
    assert axes.get_ylim()[0] > 0


def test_rivals_that_all_diverge_are_drawn(tmp_path):
    paths = draw_rivals([outcome("fedavg", np.ones(3), diverged=True)], tmp_path / "rivals")
    assert all(path.exists() for path in paths)


def test_letters_that_the_font_lacks_cause_no_warning(tmp_path, monkeypatch):
    runs = [outcome("full", 1 / ROUNDS)]
    panel = Panel("s", np.full(4, 0.25), None, excess=False)
    with pytest.warns(UserWarning, match="Glyph"):
        draw_curves(runs, [panel], tmp_path / "loud", title=FOREIGN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn(runs, tmp_path, monkeypatch, title=FOREIGN)


def test_the_command_line_says_nothing_of_matplotlibs(tmp_path):
    (tmp_path / "c.toml").write_text(
        f"""name = "{FOREIGN}"
rules = ["fedavg"]
[task]
kind = "heterogeneous-regression"
n_clients = 3
[availability]
law = "uniform-cohorts"
cohort_size = 1
[training]
rounds = 5
step = 0.01
seeds = 1
""",
        encoding="utf-8",
    )
    (tmp_path / "file").touch()
    # Where Matplotlib may not write its cache it says so, and uses the user's style elsewhere.
    told = {"MPLCONFIGDIR": str(tmp_path / "file" / "there"), "HOME": str(tmp_path / "file")}
    done = subprocess.run(
        [sys.executable, "-m", "fedavot", "simulate", "c.toml", "--out", "o"],
        cwd=tmp_path,
        env={**os.environ, **told, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert "atplotlib" not in done.stderr
    assert "Warning" not in done.stderr
