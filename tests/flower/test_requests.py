"""Evaluation by importance, the best model, rounds that close early, and one line per round."""

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg
from grid import arrays_of, everybody, federation, record_of, rounds_in

from fedavot.errors import FileFormatError, OptionError
from fedavot.flower import Admission, FedAVOT, Weighting, best_model

MODEL = {"w": np.zeros(3)}
IMPORTANCE = {"0": 6.0, "1": 3.0, "2": 1.0, "3": 0.0}


def update(arrays, config, node):
    return {"w": arrays["w"] + 1.0}, {"num-examples": 10}


def evaluated(**options):
    """Return the metrics of a federated evaluation by clients whose losses are 1, 2, 4 and 8."""
    grid = federation(4, update)
    for place, node in enumerate(grid.nodes.values()):
        node.config["loss"] = 2.0**place
    strategy = FedAVOT(FedAvg(), **options)
    return dict(strategy.start(grid, record_of(MODEL), 1).evaluate_metrics_clientapp[1])


def test_evaluation_is_averaged_by_importance_if_asked():
    by_counts = evaluated(importance=IMPORTANCE)
    by_importance = evaluated(importance=IMPORTANCE, weighting=Weighting(evaluation=True))
    assert by_counts["loss"] == pytest.approx((1 + 2 + 4 + 8) / 4)
    assert by_importance["loss"] == pytest.approx(0.6 * 1 + 0.3 * 2 + 0.1 * 4)


SCORES = [0.0, 0.3, 0.7, 0.5, 0.9, 0.2]


def scored(folder, metric, scores, n_rounds, *, resume=False):
    strategy = FedAVOT(everybody(), importance=IMPORTANCE, folder=folder, resume=resume)
    strategy.keep_best(metric)
    strategy.start(
        federation(3, update),
        record_of(MODEL),
        n_rounds,
        evaluate_fn=lambda number, arrays: MetricRecord({"score": scores[number]}),
    )
    return best_model(folder)


@pytest.mark.parametrize(("metric", "number"), [("score", 4), ("-score", 5)])
def test_the_best_model_by_a_metric_is_kept(tmp_path, metric, number):
    found = scored(tmp_path, metric, SCORES, 5)
    assert (found.round, found.metric, found.value) == (number, metric, SCORES[number])
    np.testing.assert_allclose(arrays_of(found.arrays)["w"], np.full(3, float(number)))


def test_the_best_model_is_surpassed_only_by_a_better_one_after_a_resume(tmp_path):
    assert scored(tmp_path, "score", SCORES, 2).round == 2
    assert scored(tmp_path, "score", SCORES, 3, resume=True).round == 2
    assert scored(tmp_path, "score", SCORES, 5, resume=True).round == 4


@pytest.mark.parametrize("bad", [float("nan"), [0.5]], ids=["nan", "list"])
def test_a_metric_that_is_no_number_is_never_the_best(tmp_path, caplog, bad):
    found = scored(tmp_path, "score", [0.0, 0.1, bad, bad], 3)
    assert (found.round, found.value) == (1, 0.1)
    assert len([it for it in caplog.messages if "'score'" in it and "round 2" in it]) == 1


def test_the_best_by_another_metric_is_refused(tmp_path):
    scored(tmp_path, "score", SCORES, 2)
    with pytest.raises(OptionError, match=r"'score'.*'-score'"):
        scored(tmp_path, "-score", SCORES, 3, resume=True)


def test_the_best_model_needs_a_folder_and_a_name(tmp_path):
    with pytest.raises(OptionError, match="folder"):
        FedAVOT(everybody()).keep_best("score")
    with pytest.raises(OptionError, match="'-'"):
        FedAVOT(everybody(), folder=tmp_path).keep_best("-")
    with pytest.raises(FileFormatError, match=r"best\.npz.*keep_best\(metric\)"):
        best_model(tmp_path)


def slow(grid, order):
    """Make the updates arrive one per look, in the order of the nodes."""
    whole, held = grid.pull_messages, {}

    def pull(identities):
        found = whole(identities)
        held.update({it.metadata.src_node_id: it for it in found})
        if any(it.metadata.message_type != "train" for it in found):
            held.clear()
            return found
        return [held.pop(next(node for node in order if node in held))]

    grid.pull_messages = pull


@pytest.mark.parametrize("memory", [False, True])
def test_a_round_closes_when_there_are_enough_usable_replies(tmp_path, memory):
    def some_fail(arrays, config, node):
        new, metrics = update(arrays, config, node)
        return ({"w": new["w"] * np.nan} if node["partition-id"] == 2 else new), metrics

    def fate(node, message):
        return "error" if node == 104 else "reply"

    grid = federation(5, some_fail, fate=fate)
    slow(grid, [104, 102, 101, 103, 100])
    strategy = FedAVOT(
        everybody(),
        importance="uniform",
        memory=memory,
        folder=tmp_path,
        admission=Admission(enough=2),
    )
    strategy.start(grid, record_of(MODEL), 2)
    for line in rounds_in(tmp_path):
        assert line["replied"] == ["1", "3"]
        assert list(line["excluded"]) == ["2"]
        assert list(line["failed"]) == ["4"]
        assert line["late"] == ["0"]


def test_a_round_that_never_has_enough_ends_with_the_timeout(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fedavot.flower.loop.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "fedavot.flower.loop.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    grid = federation(3, update, fate=lambda node, it: "reply" if node == 100 else "silent")
    strategy = FedAVOT(
        everybody(), importance="uniform", folder=tmp_path, admission=Admission(enough=2)
    )
    strategy.start(grid, record_of(MODEL), 1, timeout=20.0)
    (line,) = rounds_in(tmp_path)
    assert (line["replied"], line["late"]) == (["0"], ["1", "2"])
    assert now[0] >= 20.0


@pytest.mark.parametrize("enough", [0, -1, 1.5])
def test_enough_is_a_number_of_clients(enough):
    with pytest.raises(OptionError, match="enough"):
        Admission(enough=enough)


def test_options_that_need_our_loop_are_refused_in_another():
    class Own(FedAvg):
        def start(self, grid, initial_arrays, num_rounds=3):  # type: ignore[override]
            return self.configure_train(1, initial_arrays, {}, grid)

    grid = federation(3, update)
    with pytest.raises(OptionError, match=r"enough.*Own"):
        FedAVOT(Own(), admission=Admission(enough=2)).start(grid, record_of(MODEL))
    assert grid.sent == []


def test_every_round_is_reported_in_one_line(caplog):
    caplog.set_level("INFO", "flwr")
    strategy = FedAVOT(everybody(), importance={"0": 3.0, "1": 1.0})
    strategy.start(federation(2, update), record_of(MODEL), 1)
    (line,) = [it for it in caplog.messages if it.startswith("FedAVOT: round 1")]
    for figure in ("2 of 2", "gap 0.00%", "effective cohort size 1.6", "largest weight 0.75"):
        assert figure in line
