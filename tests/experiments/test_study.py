"""Studies are run once, resumed where they stopped, and told the same from what was saved."""

import csv
import dataclasses
import json
import shutil
from typing import Any

import numpy as np
import pytest

from fedavot import UniformCohorts
from fedavot.errors import (
    FileFormatError,
    InputError,
    InterruptedStudyError,
    RuleError,
)
from fedavot.experiments import running
from fedavot.experiments.canvas import LOOKS
from fedavot.experiments.outcome import METRICS, Outcome, divergence, file_name, row
from fedavot.experiments.report import reopen, report, write_results
from fedavot.experiments.running import conduct
from fedavot.experiments.study import Instance, Setting, Study
from fedavot.experiments.summary import findings, plus_minus, sections
from fedavot.rules import Known, RuleName, build
from fedavot.rules.names import label_of
from fedavot.training import Problem, Training, constant, train
from fedavot.training.run import Run
from fedavot.training.tasks.linear import heterogeneous_regression, optimum
from sealing import sealed

N = 6
IMPORTANCE = np.arange(N, 0, -1.0) / np.arange(N, 0, -1.0).sum()
LAW = UniformCohorts(N, 2)
TASK = heterogeneous_regression(n_clients=N, n_features=3, n_examples=8)
OPTIMUM = optimum(TASK, IMPORTANCE)[1]
STUDY = Study("tiny", "A tiny study", "Nothing to see.")


def silent(*_):
    """Ignore progress."""


def rules(*names):
    return tuple(build(name, Known(IMPORTANCE, LAW)) for name in names)


def setting(*names, seeds=(0, 1), optimum=OPTIMUM, **changes):
    problem = Problem(TASK, IMPORTANCE, LAW.sample)
    training = Training(40, constant(0.02), local_steps=2, record_every=2)
    held = Setting(
        "tiny",
        (Instance(problem, seeds, optimum),),
        rules(*names),
        training,
        tail=10,
        inclusion=LAW.inclusion(),
    )
    return dataclasses.replace(held, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return folder, conduct([setting("full", "fedavot", "fedavg")], folder / "runs", progress=silent)


def test_an_outcome_holds_what_training_gives(finished):
    _, outcomes = finished
    held = setting("fedavot")
    run = train(
        held.instances[0].problem,
        held.rules[0],
        dataclasses.replace(held.training, seeds=(0, 1)),
    )
    (ours,) = [outcome for outcome in outcomes if outcome.rule == "fedavot"]
    assert ours.metrics["final_loss"] == run.final_loss.tolist()
    assert ours.metrics["tail_loss"] == run.losses[:, -5:].mean(axis=1).tolist()
    assert ours.metrics["excess"] == (run.losses[:, -5:].mean(axis=1) - OPTIMUM).tolist()
    gap = np.abs(run.weights - IMPORTANCE).sum(axis=1) / 2
    assert ours.metrics["realised_gap"] == gap.tolist()
    assert ours.seeds == (0, 1)
    np.testing.assert_array_equal(ours.losses, run.losses)


def test_outcomes_come_in_the_order_of_the_settings(finished):
    assert [outcome.rule for outcome in finished[1]] == ["full", "fedavot", "fedavg"]


def test_what_is_done_is_not_run_again(finished, monkeypatch):
    folder, outcomes = finished
    monkeypatch.setattr(running, "finish", None)
    again = conduct([setting("full", "fedavot", "fedavg")], folder / "runs", progress=silent)
    assert [one.metrics for one in again] == [one.metrics for one in outcomes]


@pytest.mark.parametrize(
    "changed",
    [
        setting("fedavot", seeds=(0,)),
        setting("fedavot", tail=4),
        setting("fedavot", training=Training(40, constant(0.01), local_steps=2, record_every=2)),
        setting("fedavot", averaged=True),
    ],
)
def test_what_was_done_with_other_options_is_run_again(changed, tmp_path):
    before = conduct([setting("fedavot")], tmp_path, progress=silent)
    after = conduct([changed], tmp_path, progress=silent)
    assert before[0].metrics != after[0].metrics


def test_a_rule_with_other_options_is_run_again(tmp_path):
    known = Known(IMPORTANCE, LAW)
    for softness in (0.1, 5.0):
        held = setting(rules=(build("fedavot-soft", known, softness=softness),))
        (outcome,) = conduct([held], tmp_path, progress=silent)
        # With the study's seeds: another number of seeds is another compiled program.
        training = dataclasses.replace(held.training, seeds=(0, 1))
        alone = train(held.instances[0].problem, held.rules[0], training)
        assert outcome.metrics["final_loss"] == alone.final_loss.tolist()


def test_the_number_of_workers_changes_nothing(finished, tmp_path):
    held = setting("full", "fedavot", "fedavg")
    alone = conduct([held], tmp_path, progress=silent, workers=1)
    for one, other in zip(alone, finished[1], strict=True):
        assert one.metrics == other.metrics


def test_an_interrupted_study_keeps_what_is_done_and_goes_on_to_the_same_end(finished, tmp_path):
    held = setting("full", "fedavot", "fedavg")

    def interrupt(label, done, total):
        if "FedAVOT" in label and done >= total // 2:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedStudyError) as stopped:
        conduct([held], tmp_path, progress=interrupt, workers=1)
    kept: list[Any] = stopped.value.outcomes
    assert [one.rule for one in kept] == ["full"]
    assert list(tmp_path.glob("*.npz"))
    outcomes = conduct([held], tmp_path, progress=silent, workers=1)
    for one, other in zip(outcomes, finished[1], strict=True):
        assert one.metrics == other.metrics
    assert not list(tmp_path.glob("*.npz"))


def test_a_study_changed_after_an_interruption_starts_afresh(tmp_path):
    def interrupt(label, done, total):
        raise KeyboardInterrupt

    with pytest.raises(InterruptedStudyError):
        conduct([setting("fedavot")], tmp_path, progress=interrupt, workers=1)
    changed = setting("fedavot", seeds=(3,))
    (outcome,) = conduct([changed], tmp_path, progress=silent, workers=1)
    assert outcome.seeds == (3,)
    assert not list(tmp_path.glob("*.npz"))


def test_a_diverged_run_has_null_metrics_and_says_why(tmp_path):
    wild = Training(2000, constant(50.0), local_steps=2, record_every=2)
    (outcome,) = conduct([setting("fedavg", training=wild)], tmp_path, progress=silent)
    assert "diverged in round" in outcome.message
    assert "'fedavg'" in outcome.message
    rows = {one["metric"]: one["mean"] for one in outcome.rows()}
    assert rows["final_loss"] is None
    assert rows["tail_loss"] is None
    (told,) = sections(STUDY, [setting("fedavg").panel], [outcome])
    assert "diverged" in told.tables[0][1]
    assert any("diverged" in sentence for sentence in told.sentences)
    assert any("diverged" in finding for finding in findings([outcome]))


@pytest.mark.parametrize("power", [101, 153, 155, 300, 308])
def test_a_run_whose_finite_losses_are_beyond_all_measure_has_diverged(power):
    losses = np.array([[1.0, 2.0, 1.0], [1.0, 10.0**power, 1.5 * 10.0**power]])
    run = Run(
        rule="fedavg",
        seeds=(3, 5),
        params=np.zeros((2, 1)),
        average=np.zeros((2, 1)),
        recorded=np.array([10, 20, 30]),
        losses=losses,
        weights=np.full((2, 2), 0.5),
        unseen=np.zeros((2, 2), dtype=bool),
        rounds=30,
        seconds=1.0,
    )
    assert "round 20" in divergence(run)
    assert "seed 5" in divergence(run)
    assert divergence(dataclasses.replace(run, losses=np.minimum(losses, 1e100))) == ""


@pytest.mark.parametrize("power", [101, 155, 300, 308])
def test_metrics_beyond_all_measure_are_null(finished, tmp_path, power):
    held = dataclasses.replace(finished[1][0], metrics={"tail_loss": [10.0**power, 1.0]})
    held.save(tmp_path / "one.json")
    held = Outcome.load(tmp_path / "one.json")
    rows = {one["metric"]: (one["mean"], one["std"]) for one in held.rows()}
    assert rows["tail_loss"] == (None, None)
    write_results(tmp_path, held.rows())
    assert json.loads((tmp_path / "results.json").read_text()) == held.rows()


def test_a_study_that_ends_before_its_losses_overflow_is_reported_as_diverged(tmp_path):
    steep = Training(40, constant(50.0), local_steps=2)
    held = setting("fedavg", training=steep)
    (outcome,) = conduct([held], tmp_path, progress=silent)
    assert np.isfinite(outcome.losses).all()
    assert outcome.losses.max() > 1e154
    assert "diverged" in outcome.message
    assert outcome.metrics == {}
    for path in report(STUDY, [held.panel], [outcome], tmp_path / "out"):
        assert path.stat().st_size > 1000
    assert "diverged" in (tmp_path / "out" / "summary.md").read_text()


def test_an_outcome_comes_back_as_it_was_saved(finished, tmp_path):
    for outcome in finished[1]:
        outcome.save(tmp_path / "one.json")
        loaded = Outcome.load(tmp_path / "one.json")
        assert loaded.metrics == outcome.metrics
        np.testing.assert_array_equal(loaded.losses, outcome.losses)
        np.testing.assert_array_equal(loaded.excess_curve, outcome.excess_curve)


def test_a_file_that_is_no_outcome_is_refused(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(sealed({"format": "fedavot-outcome", "version": 2}))
    with pytest.raises(FileFormatError, match="not a valid outcome"):
        Outcome.load(path)


def test_a_row_has_the_published_keys_and_sample_statistics():
    values = np.array([1.0, 2.0, 6.0])
    one = row("text", "fedavot", "excess", values, 3)
    assert list(one) == ["setting", "rule", "group", "metric", "mean", "std", "seeds"]
    assert one["mean"] == 3.0
    assert one["std"] == pytest.approx(np.sqrt(((values - 3) ** 2).sum() / 2))
    assert row("text", "fedavot", "excess", None, 3)["mean"] is None


def test_results_are_a_list_of_rows_that_any_reader_parses(finished, tmp_path):
    rows = [one for outcome in finished[1] for one in outcome.rows()]
    write_results(tmp_path, rows)
    assert json.loads((tmp_path / "results.json").read_text()) == rows
    assert {one["metric"] for one in rows} <= set(METRICS)
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [(one["rule"], one["metric"]) for one in table] == [
        (one["rule"], one["metric"]) for one in rows
    ]
    assert [float(one["mean"]) for one in table] == [one["mean"] for one in rows]


def test_a_report_has_results_summary_and_figures_and_redraws_alike(finished):
    folder, outcomes = finished
    held = setting("full", "fedavot", "fedavg")
    png, pdf = report(STUDY, [held.panel], outcomes, folder)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    text = (folder / "summary.md").read_text()
    for outcome in outcomes:
        assert f"| {label_of(outcome.rule)} |" in text
    before = {path: path.read_bytes() for path in (png, pdf, folder / "results.json")}
    report(*reopen(STUDY, folder), folder)
    assert {path: path.read_bytes() for path in before} == before


def test_runs_made_since_with_other_options_are_not_mixed_in(tmp_path):
    held = setting("full", "fedavg")
    outcomes = conduct([held], tmp_path / "runs", progress=silent)
    report(STUDY, [held.panel], outcomes, tmp_path)
    conduct([setting("fedavg", seeds=(5,))], tmp_path / "runs", progress=silent)
    with pytest.raises(InputError, match="'fedavg' on 'tiny'.*other options"):
        reopen(STUDY, tmp_path)


def test_files_of_others_among_the_runs_are_left_alone(tmp_path):
    held = setting("full")
    report(STUDY, [held.panel], conduct([held], tmp_path / "runs", progress=silent), tmp_path)
    (tmp_path / "runs" / "notes.json").write_text("mine")
    assert [one.rule for one in reopen(STUDY, tmp_path)[2]] == ["full"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("recorded", [1, 2], "losses of shape"),
        ("optimum", [1.0], "optimum of shape"),
        ("metrics", {"tail_loss": []}, "metrics not of 2 seeds"),
        ("metrics", {"tail_loss": ["1", "2"]}, "not a list of numbers"),
        ("metrics", [], "not a valid outcome"),
        ("setting", 3, "3 is not text"),
        ("seeds", [0, 0], "not distinct numbers from 0"),
        ("seeds", [0.0, 1.0], "not a list of integers"),
        ("seeds", [-1, 1], "not distinct numbers from 0"),
        ("recorded", [0] * 12, "losses of shape|do not increase"),
        ("recorded", [10**200], "not a valid outcome"),
        ("losses", [["1"], ["2"]], "not a list of numbers"),
        ("losses", 1.0, "not a valid outcome"),
        ("seconds", -1.0, "seconds are -1"),
        ("seconds", "1", "not a list of numbers"),
    ],
)
def test_an_edited_outcome_whose_arrays_do_not_belong_together_is_refused(
    finished, tmp_path, key, value, told
):
    finished[1][0].save(tmp_path / "one.json")
    held = json.loads((tmp_path / "one.json").read_text())
    (tmp_path / "one.json").write_text(sealed(held | {key: value}))
    with pytest.raises(FileFormatError, match=told):
        Outcome.load(tmp_path / "one.json")


def test_a_folder_without_the_study_is_not_redrawn(finished, tmp_path):
    with pytest.raises(InputError, match="holds no study; run without --redraw first"):
        reopen(STUDY, tmp_path)
    folder, outcomes = finished
    report(STUDY, [setting("full", "fedavot", "fedavg").panel], outcomes, folder)
    with pytest.raises(InputError, match="holds the study 'tiny', not 'other'"):
        reopen(dataclasses.replace(STUDY, name="other"), folder)


@pytest.mark.parametrize("settings", [[{}], 3])
def test_a_damaged_study_is_refused(settings, tmp_path):
    held = {"format": "fedavot-study", "version": 2, "name": "tiny", "settings": settings}
    (tmp_path / "study.json").write_text(sealed(held))
    with pytest.raises(FileFormatError, match="not a valid study"):
        reopen(STUDY, tmp_path)


@pytest.fixture
def told(finished, tmp_path):
    """Return a folder with a study that was told, free to be edited."""
    folder = tmp_path / "study"
    shutil.copytree(finished[0] / "runs", folder / "runs")
    report(STUDY, [setting("full", "fedavot", "fedavg").panel], finished[1], folder)
    return folder


def edited(path, change):
    held = json.loads(path.read_text())
    change(held)
    path.write_text(sealed(held))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda held: held["settings"][0].update(setting="other"), "none of its settings"),
        (lambda held: held["settings"][0].update(importance=[0.5, 0.6]), "importance"),
        (lambda held: held["settings"][0].update(importance=[["1"]]), "not a list of numbers"),
        (lambda held: held["settings"][0].update(inclusion=[0.5]), "one probability per client"),
        (lambda held: held["settings"][0].update(excess=1), "excess must be true or false"),
        (lambda held: held["settings"][0].update(rules="fedavot"), "rules a list"),
        (lambda held: held["settings"][0].update(caption=None), "None is not text"),
        (lambda held: held["runs"].update({"../x.json": "0"}), "none of its settings"),
        (lambda held: held.update(runs=[]), "not a valid study"),
        (lambda held: held.update(title=7), "7 is not text"),
    ],
)
def test_a_study_edited_with_care_is_refused(told, change, message):
    edited(told / "study.json", change)
    with pytest.raises(FileFormatError, match=message):
        reopen(STUDY, told)


def test_a_study_or_a_run_edited_without_care_is_refused(told):
    for path in (told / "study.json", next((told / "runs").glob("*fedavg.json"))):
        before = path.read_text()
        path.write_text(before.replace("0.", "1.", 1))
        with pytest.raises(FileFormatError, match="does not match its checksum"):
            reopen(STUDY, told)
        path.write_text(before)
    reopen(STUDY, told)


def test_a_run_that_is_missing_or_of_another_rule_is_refused(told):
    one, other = (told / "runs" / file_name("tiny", rule) for rule in ("full", "fedavg"))
    one.write_bytes(other.read_bytes())
    with pytest.raises(FileFormatError, match="the run of 'fedavg' on 'tiny', which belongs"):
        reopen(STUDY, told)
    one.unlink()
    with pytest.raises(InputError, match="is missing; run the study without --redraw"):
        reopen(STUDY, told)


def test_a_folder_of_runs_that_is_a_link_is_refused(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "runs").symlink_to(elsewhere)
    with pytest.raises(InputError, match="runs is a symbolic link"):
        conduct([setting("full")], tmp_path / "runs", progress=silent)
    assert not list(elsewhere.iterdir())


def test_a_study_in_which_nobody_takes_part_is_refused(told):
    path = told / "study.json"
    content = json.loads(path.read_text())
    content["settings"][0]["inclusion"] = [0.0] * N
    path.write_text(sealed(content))
    with pytest.raises(FileFormatError, match="not one probability per client"):
        reopen(STUDY, told)


@pytest.mark.parametrize("optimum", [1.7e308, -1.7e308, 1e200])
def test_a_run_with_an_optimum_beyond_all_measure_is_drawn(finished, tmp_path, optimum):
    held = dataclasses.replace(finished[1][0], optimum=np.full(2, optimum))
    far = dataclasses.replace(held, losses=np.full_like(held.losses, -optimum))
    for one in (held, far):
        for path in report(STUDY, [setting("full").panel], [one], tmp_path):
            assert path.stat().st_size > 1000


def test_a_combined_page_has_one_table_of_excesses_and_what_follows(finished, tmp_path):
    def derive(outcomes):
        return [row("tiny", "fedavot", "slope", np.array([-0.5]), 2)]

    study = dataclasses.replace(STUDY, combined=True, derive=derive)
    panels = [setting("full", "fedavot", "fedavg").panel]
    report(study, panels, finished[1], tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert "| setting | rule | metric | value |" in text
    assert "| tiny | FedAVOT | excess |" in text
    assert "| tiny | FedAVOT | slope | -0.5 |" in text
    assert json.loads((tmp_path / "results.json").read_text())[-1]["metric"] == "slope"


def test_a_setting_that_has_not_run_is_said_to_be_missing(finished, tmp_path):
    missing = dataclasses.replace(setting("full").panel, setting="later")
    report(STUDY, [setting("full", "fedavot", "fedavg").panel, missing], finished[1], tmp_path)
    assert "## later\n\n* Not run yet." in (tmp_path / "summary.md").read_text()


def test_every_rule_can_be_drawn_and_told_from_every_other():
    assert set(LOOKS) == set(RuleName)
    assert len({(look.colour, look.dashes) for look in LOOKS.values()}) == len(RuleName)
    assert len({rule.label for rule in RuleName}) == len(RuleName)


def test_losses_to_simpler_rules_are_said():
    def outcome(rule, excess):
        arrays = {"recorded": np.array([1]), "losses": np.array([[excess]])}
        return Outcome(
            "tiny", rule, "", "", (0,), **arrays, optimum=np.zeros(1),
            metrics={"excess": [excess]}, seconds=0.0, message="", fingerprint="",
        )  # fmt: skip

    told = findings(
        [outcome("fedavot", 0.3), outcome("fedavg", 0.1), outcome("self-normalised-ipw", 0.9)]
    )
    assert told[0] == "FedAVOT **loses** to plain average (0.1): its excess is 0.3."
    assert told[1] == "FedAVOT beats self-normalised IPW (0.9): its excess is 0.3."
    assert "one seed" in told[2]


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        ([0.2, 0.5], "is level with"),
        ([0.5, 90.0], "beats"),
        ([0.1, 0.12], "**loses** to"),
    ],
)
def test_differences_within_the_noise_are_no_wins(theirs, verdict):
    def outcome(rule, values):
        arrays = {"recorded": np.array([1]), "losses": np.ones((2, 1)), "optimum": np.zeros(2)}
        return Outcome(
            "tiny", rule, "", "", (0, 1), **arrays,
            metrics={"excess": values}, seconds=0.0, message="", fingerprint="",
        )  # fmt: skip

    told = findings([outcome("fedavot", [0.3, 0.4]), outcome("fedavg", theirs)])
    assert told[0].startswith(f"FedAVOT {verdict} plain average")
    assert not any("one seed" in sentence for sentence in told)


def test_what_fedavot_loses_to_is_said_beside_what_the_steady_rule_beats():
    def outcome(rule, value):
        arrays = {"recorded": np.array([1]), "losses": np.ones((2, 1)), "optimum": np.zeros(2)}
        return Outcome(
            "tiny", rule, "", "", (0, 1), **arrays,
            metrics={"excess": [value, value]}, seconds=0.0, message="", fingerprint="",
        )  # fmt: skip

    losses = {"fedavot-steady": 0.1, "fedavot": 0.3, "fedavg": 0.2, "fedavg-k": 9.0}
    told = findings([outcome(rule, value) for rule, value in losses.items()])
    assert [sentence.partition(":")[0] for sentence in told] == [
        "FedAVOT, steady beats FedAVOT (0.3); plain average (0.2); FedAvg(K) (9)",
        "FedAVOT **loses** to FedAVOT, steady (0.1); plain average (0.2)",
    ]


@pytest.mark.parametrize(
    ("mean", "std", "shown"),
    [
        (0.34629, 0.00049, "0.3463 ± 0.0005"),
        (17166.0, 260.0, "1.717e4 ± 3e2"),
        (72.45, 28.0, "72.45 ± 30"),
        (1.9e-5, 7e-6, "1.9e-5 ± 7e-6"),
        (7.78e-5, 1e-4, "7.78e-5 ± 1e-4"),
        (0.0254, 4e-18, "0.0254"),
        (1e-14, 0.0, "0"),
        (None, None, "–"),
    ],
)
def test_numbers_are_short(mean, std, shown):
    assert plus_minus(mean, std) == shown


def test_clients_that_never_trained_are_named_once_for_all_rules(tmp_path):
    # One round asks two clients of six.
    short = setting("fedavg", "mifa", "full", training=Training(1, constant(0.02)), tail=1)
    outcomes = conduct([short], tmp_path, progress=silent)
    full, others = outcomes[-1], outcomes[:-1]
    assert full.message == ""
    assert len({one.message for one in others}) == 1
    assert "never trained" in others[0].message
    assert not any(one.diverged for one in outcomes)
    assert sum("never trained" in sentence for sentence in findings(outcomes)) == 1
    fewer = dataclasses.replace(others[0], message="never trained: client 0")
    told = findings([fewer, *others[1:]])
    assert told[0].startswith("plain average: never trained")
    assert told[1].startswith("MIFA: never trained")


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(RuleError, match="two rules called 'fedavg'"):
        setting("fedavg", "fedavg")
