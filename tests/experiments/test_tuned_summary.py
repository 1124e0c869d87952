"""The report of rules at their best steps: who leads, by how much, and where ours loses."""

import numpy as np
import pytest

from fedavot.experiments.comparison import compared
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.study import COMMON, Study, common
from fedavot.experiments.summary import markdown, sections
from fedavot.experiments.tuned_summary import (
    FOOT,
    against_best,
    at_common_step,
    findings,
    missing,
    tuned_sections,
)
from fedavot.rules.names import label_of

STUDY = Study("rivals", "Rivals", "All of them.", tuned=True, tables=tuned_sections, foot=FOOT)
NOISE = np.array([-2.0, 0.0, 2.0, 1.0, -1.0]) * 1e-3
"""Differences with a standard error of about .0007."""
LOSSES = {
    "softmax, won": {"full": 0.05, "fedavot-steady": 0.1, "fedau": 0.2, "fedavg": 0.3},
    "softmax, level": {"full": 0.1, "fedavot-steady": 0.2, "fedau": 0.2004, "fedavg": 0.3},
    "phones, lost": {"fedavot-steady": 0.2, "fedau": 0.19, "fedavg": 0.18},
}


def outcome(setting, rule, losses, *, steps="0.1 cosine, server 2", metric="tail_loss"):
    metrics = {} if losses is None else {metric: np.atleast_1d(losses).tolist()}
    n_seeds = 5 if losses is None else len(metrics[metric])
    return Outcome(
        setting,
        rule,
        "",
        "",
        tuple(range(n_seeds)),
        np.array([1]),
        np.ones((n_seeds, 1)),
        None,
        metrics,
        seconds=0.0,
        message="" if metrics else "diverged",
        fingerprint="",
        steps=steps,
    )


@pytest.fixture
def outcomes():
    found = []
    for setting, held in LOSSES.items():
        for rule, loss in held.items():
            noise = NOISE if rule == "fedavot-steady" else 0 * NOISE
            found.append(outcome(setting, rule, loss + noise))
            found.append(outcome(common(setting), rule, 2 * loss + noise, steps=COMMON))
    return found


@pytest.fixture
def best(outcomes):
    return compared([one for one in outcomes if one.steps != COMMON])


def test_rules_are_sorted_by_their_geometric_mean_below_full_participation(best):
    assert best.rules == ("full", "fedavot-steady", "fedau", "fedavg")
    assert best.ratio("softmax, won", "fedau") == pytest.approx(2.0)
    assert best.best("phones, lost") == "fedavg"
    assert best.best("phones, lost", but="fedavg") == "fedau"


def test_rules_that_were_seldom_run_are_last():
    found = [outcome(name, rule, np.ones(2)) for name in "abc" for rule in ("fedavg", "fedau")]
    held = compared([outcome("a", "afl", np.full(2, 0.5)), *found])
    assert held.rules == ("fedavg", "fedau", "afl")
    (said,) = missing(held)
    assert f"{label_of('afl')} (1)" in said
    assert missing(compared(found)) == []


def test_standard_errors_are_those_of_the_difference_by_seed(best):
    expected = -0.1 / (NOISE.std(ddof=1) / np.sqrt(NOISE.size))
    assert best.errors("softmax, won", "fedavot-steady", "fedau") == pytest.approx(expected)
    # Noise that both rules share does not count.
    shared = compared([outcome("s", "fedavg", 1 + NOISE), outcome("s", "fedau", 0.9 + NOISE)])
    assert abs(shared.errors("s", "fedavg", "fedau")) > 1e10


def test_rounding_in_the_excess_is_no_difference():
    held = compared(
        [
            outcome("s", "fedavot-steady", [1e-16, -1e-15], metric="excess"),
            outcome("s", "fedavg", [0.0, 1e-14], metric="excess"),
        ]
    )
    assert held.errors("s", "fedavot-steady", "fedavg") == 0.0
    assert held.ratio("s", "fedavg") == 1.0


def test_leads_draws_and_losses_are_counted_and_losses_named(best):
    counts, *losses, plain = findings(best)
    assert counts.startswith("On 1 of 3 settings")
    assert "on 1 the two are within one" in counts
    (lost,) = losses
    assert "**loses**" in lost
    assert label_of("fedavg") in lost
    assert "phones, lost" in lost
    assert "0.2 against 0.18" in lost
    assert "phones, lost (0.2 against 0.18)" in plain


def test_the_table_has_the_best_rival_of_every_setting(best):
    heading, *rows = against_best(best)
    assert [row[0] for row in rows] == [*LOSSES]
    assert [row[2] for row in rows] == [label_of(rule) for rule in ("fedau", "fedau", "fedavg")]
    assert [row[-1] for row in rows] == ["4", "4", "3"]
    assert {len(row) for row in rows} == {len(heading)}
    assert {len(row) for row in against_best(best, narrow=True)} == {5}


def test_the_common_step_is_compared_with_full_participation(outcomes):
    (said,) = at_common_step(compared([one for one in outcomes if one.steps == COMMON]))
    assert "on 0 of 2 settings" in said
    assert "softmax, won (2 ×)" in said


def test_tables_have_losses_steps_and_the_common_step_by_kind_of_setting(outcomes):
    parts = sections(STUDY, [], outcomes)
    assert [len(part.tables) for part in parts] == [2, 2, 2, 1]
    losses, steps, shared = (part.tables[0] for part in parts[:3])
    assert losses[0] == steps[0] == shared[0] == ["softmax", "won", "level"]
    assert losses[1][0] == label_of("full")
    assert losses[2][1] == "0.1 ± 0.0007"
    assert steps[2][1] == "0.1 cosine, server 2"
    assert shared[2][1] == "0.2 ± 0.0007"
    assert FOOT in markdown(STUDY, parts)
    assert [len(part.tables) for part in sections(STUDY, [], outcomes, narrow=True)] == [2, 1]


def test_at_most_six_settings_are_in_one_table():
    found = [outcome(f"softmax, {at}", "fedavg", np.ones(2)) for at in range(8)]
    (part, *_) = tuned_sections(found)
    assert [len(table[0]) for table in part.tables] == [7, 3]


def test_runs_that_diverged_one_seed_and_a_missing_steady_rule_are_reported():
    diverged = [outcome("s", "fedavg", None), outcome("s", "fedavot-steady", np.ones(1))]
    best, *_, ours = tuned_sections(diverged)
    assert best.tables[0][2] == [label_of("fedavg"), "diverged"]
    assert ours.tables[0][1][2:5] == ["–", "–", "–"]
    single = [outcome("s", rule, np.ones(1)) for rule in ("fedavg", "fedavot-steady")]
    assert "too few" in tuned_sections(single)[-1].sentences[0]
    assert len(tuned_sections([outcome("s", "fedavg", np.ones(2))])) == 3
    assert len(tuned_sections([outcome("s", "fedavot-steady", None)])) == 4
