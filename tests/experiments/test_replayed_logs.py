"""A study replays a log in its order, in any form, and reports groups and test examples."""

import json

import numpy as np
import pytest
from tiny import ARRAYS, LOG, TINY, arrays, configured, refused, write

from fedavot.experiments.config import read_config
from fedavot.experiments.configured import setting_of
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.report import reopen, report
from fedavot.experiments.running import conduct
from fedavot.experiments.study import Study
from fedavot.training import train
from sealing import sealed

EXACT = 1e-12
"""The same sums in another order, in double precision."""
NAMES = ("berlin", "lyon", "porto")
ROUNDS = ([0, 2], [1], [0, 1, 2])
"""Who takes part in each round of the log, by position in `NAMES`."""
STUDY = Study("study", "study", "")


def rows(rounds=ROUNDS, names=NAMES):
    pairs = [f"{t},{names[who]}" for t, cohort in enumerate(rounds) for who in cohort]
    return "\n".join(["round,client", *pairs, ""])


def named_arrays(folder, **changes):
    arrays(folder, clients=np.repeat(["porto", "lyon", "berlin"], 4), **changes)


def cohorts_of(setting, count, seed=0):
    drawn = setting.instances[0].problem.availability(np.random.default_rng(seed), count)
    return [sorted(cohort.tolist()) for cohort in drawn]


def silent(*_):
    """Ignore progress."""


def test_training_on_a_log_is_the_recursion_written_by_hand(tmp_path):
    named_arrays(tmp_path)
    (tmp_path / "rounds.csv").write_text(rows(), encoding="utf-8")
    setting = configured(
        tmp_path,
        top='rules = ["fedavg"]',
        task=ARRAYS,
        availability=LOG,
        training="rounds = 7\nstep = 0.05\nlocal_steps = 2\nseeds = 2",
    )
    (outcome,) = conduct([setting], tmp_path / "runs", progress=silent)
    with np.load(tmp_path / "mine.npz") as held:
        data = {
            name: (
                held["features"][held["clients"] == name],
                held["targets"][held["clients"] == name],
            )
            for name in NAMES
        }
    model, losses = np.zeros(3), []
    for t in range(7):
        moved = []
        for who in ROUNDS[t % 3]:
            own, (features, targets) = model, data[NAMES[who]]
            for _ in range(2):
                own = own - 0.05 * 2 * features.T @ (features @ own - targets) / 4
            moved.append(own)
        model = np.mean(moved, axis=0)
        losses.append(np.mean([np.mean((x @ model - y) ** 2) for x, y in data.values()]))
    np.testing.assert_allclose(outcome.losses, [losses, losses], rtol=EXACT)


def test_a_log_that_is_too_short_starts_again_and_the_report_says_so(tmp_path):
    named_arrays(tmp_path)
    (tmp_path / "rounds.csv").write_text(rows(), encoding="utf-8")
    setting = configured(tmp_path, task=ARRAYS, availability=LOG)
    assert cohorts_of(setting, 7) == [*map(list, ROUNDS), *map(list, ROUNDS), [0, 2]]
    assert cohorts_of(setting, 7) == cohorts_of(setting, 7, seed=5)
    (note,) = setting.notes
    assert "3 rounds" in note
    assert "6 times in 20" in note
    outcomes = conduct([setting], tmp_path / "runs", progress=silent)
    report(STUDY, [setting.panel], outcomes, tmp_path)
    assert note in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert reopen(STUDY, tmp_path)[1][0].notes == (note,)
    longer = configured(tmp_path, task=ARRAYS, availability=LOG, training="rounds = 3\nstep = 0.1")
    assert longer.notes == ()


def test_a_round_in_which_nobody_took_part_is_replayed_and_leaves_the_model_alone(tmp_path):
    named_arrays(tmp_path)
    text = (
        "round,client,status\n1,lyon,ok\n2,lyon,failed\n2,porto,failed\n3,berlin,ok\n3,porto,ok\n"
    )
    (tmp_path / "rounds.csv").write_text(text, encoding="utf-8")
    setting = configured(
        tmp_path, task=ARRAYS, availability=LOG, training="rounds = 3\nstep = 0.1\nseeds = 1"
    )
    assert cohorts_of(setting, 4) == [[1], [], [0, 2], [1]]
    np.testing.assert_allclose(setting.inclusion, [0.5, 0.5, 0.5])
    run = train(setting.instances[0].problem, setting.rules[1], setting.training)
    assert run.losses[0, 0] == run.losses[0, 1] != run.losses[0, 2]


def test_shuffled_rounds_are_those_of_the_log_in_another_order_for_each_seed(tmp_path):
    named_arrays(tmp_path)
    (tmp_path / "rounds.csv").write_text(rows(), encoding="utf-8")
    setting = configured(tmp_path, task=ARRAYS, availability=f"{LOG}\norder = 'shuffled'")
    drawn = cohorts_of(setting, 300)
    assert {tuple(cohort) for cohort in drawn} == {(0, 2), (1,), (0, 1, 2)}
    assert drawn != cohorts_of(setting, 300, seed=1)
    np.testing.assert_allclose(setting.inclusion, [2 / 3, 2 / 3, 2 / 3])


def in_rows(path):
    path.write_text(rows(), encoding="utf-8")


def in_json_lines(path):
    lines = [{"round": t, "client": NAMES[who]} for t, own in enumerate(ROUNDS) for who in own]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def in_flower_log(path):
    lines = []
    for t, own in enumerate(ROUNDS, 1):
        names = [NAMES[who] for who in own]
        lines.append({"format": "fedavot-participation", "version": 1, "round": t,
                      "available": names, "asked": names, "replied": names,
                      "weights": dict.fromkeys(names, 1 / len(names))})  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def in_parquet(path):
    polars = pytest.importorskip("polars")
    pairs = [(t, NAMES[who]) for t, own in enumerate(ROUNDS) for who in own]
    polars.DataFrame(pairs, schema=["round", "client"], orient="row").write_parquet(path)


def in_intervals(path):
    spans = [f"{NAMES[who]},{60 * t},{60 * t + 60}" for t, own in enumerate(ROUNDS) for who in own]
    path.write_text("\n".join(["client,start,end", *spans, ""]), encoding="utf-8")


@pytest.mark.parametrize(
    ("write_log", "options"),
    [
        (in_rows, ""),
        (in_json_lines, ""),
        (in_flower_log, ""),
        (in_parquet, ""),
        (in_intervals, "period = 60"),
    ],
)
def test_a_log_in_every_form_that_an_audit_reads_is_replayed_alike(tmp_path, write_log, options):
    named_arrays(tmp_path)
    write_log(tmp_path / "rounds.csv")
    setting = configured(tmp_path, task=ARRAYS, availability=f"{LOG}\n{options}")
    assert cohorts_of(setting, 3) == list(map(list, ROUNDS))


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("client,start,end\nlyon,0,60\n", "", r"period"),
        ("round,client\n1,lyon\n", "period = 60", r"period"),
        ("round,client\n1\n", "", r"line 2: 1 field"),
        ("round,gizmo\n1,lyon\n", "", r"'gizmo'"),
        ("round,client,status\n1,lyon,offline\n", "", r"."),
    ],
)
def test_a_log_with_a_mistake_is_refused_with_its_key(tmp_path, text, options, match):
    named_arrays(tmp_path)
    (tmp_path / "rounds.csv").write_text(text, encoding="utf-8")
    refused(tmp_path, "availability.file", match, task=ARRAYS, availability=f"{LOG}\n{options}")


def test_columns_with_other_names_are_named(tmp_path):
    named_arrays(tmp_path)
    (tmp_path / "rounds.csv").write_text(rows().replace("client", "gizmo"), encoding="utf-8")
    told = f"{LOG}\ncolumns = {{client = 'gizmo'}}"
    assert cohorts_of(configured(tmp_path, task=ARRAYS, availability=told), 1) == [[0, 2]]


def test_what_a_log_leaves_open_is_said_in_the_configuration(tmp_path):
    named_arrays(tmp_path)
    head, *lines = rows().splitlines()
    coded = [f"{head},status,phase", *(f"{line},0,fit" for line in lines), "9,lyon,1,eval"]
    (tmp_path / "rounds.csv").write_text("\n".join(coded) + "\n", encoding="utf-8")
    told = f"{LOG}\nstatuses = {{0 = 'ok'}}\nwhere = {{phase = 'fit'}}"
    assert cohorts_of(configured(tmp_path, task=ARRAYS, availability=told), 1) == [[0, 2]]
    refused(tmp_path, "availability.file", "'0'", task=ARRAYS, availability=LOG)


def test_a_task_without_names_takes_the_clients_of_the_log_and_the_importance(tmp_path):
    task = TINY["task"].replace("n_clients = 4\n", "")
    (tmp_path / "rounds.csv").write_text(rows(), encoding="utf-8")
    (tmp_path / "p.csv").write_text("client,importance\nlyon,1\nporto,2\nberlin,1\nars,4\n")
    told = "kind = 'file'\nfile = 'p.csv'"
    setting = configured(tmp_path, task=task, importance=told, availability=LOG)
    assert setting.instances[0].problem.task.clients == ("ars", *NAMES)
    np.testing.assert_allclose(setting.importance, [0.5, 0.125, 0.125, 0.25])
    np.testing.assert_allclose(setting.inclusion, [0, 2 / 3, 2 / 3, 2 / 3])
    refused(tmp_path, "availability.file", r"have 3 clients, .*'berlin', .* set task.n_clients = 3",
            availability=LOG)  # fmt: skip


def test_numbers_in_a_log_are_positions_among_the_clients_of_the_task(tmp_path):
    (tmp_path / "rounds.csv").write_text(rows(names=("3", "0", "2")), encoding="utf-8")
    setting = configured(tmp_path, availability=LOG)
    assert cohorts_of(setting, 3) == [[2, 3], [0], [0, 2, 3]]
    assert setting.instances[0].problem.task.clients is None


def test_a_mixture_draws_a_state_and_then_a_cohort(tmp_path):
    state = "[[availability.states]]\nprobability = 0.5\nlaw = "
    text = f"law = 'mixture'\n{state}'uniform-cohorts'\ncohort_size = 1\n"
    text += f"{state}'independent'\nprobabilities = [1, 1, 0, 0]"
    np.testing.assert_allclose(configured(tmp_path, availability=text).inclusion,
                               [0.625, 0.625, 0.125, 0.125])  # fmt: skip


GROUPS = "kind = 'uniform'\ngroups = 'groups.csv'"


def grouped(folder, loss, **sections):
    """Return the outcome and the run of a study of three clients in two groups."""
    (folder / "groups.csv").write_text("client,group\nlyon,fr\nporto,pt\nberlin,fr\n")
    task = ARRAYS.replace("squares", loss) + sections.pop("more", "")
    config = read_config(
        write(folder, top='rules = ["fedavg"]', task=task, importance=GROUPS, **sections)
    )
    setting = setting_of(config)
    (outcome,) = conduct([setting], folder / "runs", progress=silent)
    run = train(setting.instances[0].problem, setting.rules[0], setting.training)
    return setting, outcome, run


def test_losses_and_accuracies_by_group_are_those_of_the_last_models(tmp_path):
    named_arrays(tmp_path, targets=np.arange(12) % 3)
    setting, outcome, run = grouped(tmp_path, "softmax")
    features, labels = map(np.asarray, setting.instances[0].problem.task.data)
    scores = np.einsum("ckf,sfl->sckl", features, run.params["weights"])
    scores += run.params["bias"][:, None, None]
    right = (scores.argmax(axis=-1) == labels).mean(axis=-1)
    lost = np.log(np.exp(scores).sum(axis=-1)) - np.take_along_axis(
        scores, np.broadcast_to(labels, scores.shape[:-1])[..., None], axis=-1
    ).squeeze(-1)
    np.testing.assert_allclose(outcome.metrics["accuracy"], right.mean(axis=1), rtol=EXACT)
    for group, members in {"fr": [0, 1], "pt": [2]}.items():
        own = outcome.groups[group]
        np.testing.assert_allclose(own["accuracy"], right[:, members].mean(axis=1), rtol=EXACT)
        expected = lost.mean(axis=-1)[:, members].mean(axis=1)
        np.testing.assert_allclose(own["final_loss"], expected, rtol=1e-9)
    whole = 2 / 3 * np.array(outcome.groups["fr"]["final_loss"])
    whole += 1 / 3 * np.array(outcome.groups["pt"]["final_loss"])
    np.testing.assert_allclose(whole, outcome.metrics["final_loss"], rtol=1e-9)


def test_a_linear_classifier_is_right_on_its_side_and_a_regression_has_no_accuracy(tmp_path):
    named_arrays(tmp_path, targets=np.array([-1, 1])[np.arange(12) % 2])
    setting, outcome, run = grouped(tmp_path, "hinge")
    features, labels = map(np.asarray, setting.instances[0].problem.task.data)
    right = np.einsum("ckf,sf->sck", features, run.params) * labels > 0
    np.testing.assert_allclose(outcome.metrics["accuracy"], right.mean(axis=(1, 2)), rtol=EXACT)
    assert "accuracy" not in grouped(tmp_path, "squares")[1].metrics


def test_groups_and_test_losses_are_in_results_tables_and_figures(tmp_path):
    named_arrays(tmp_path, targets=np.arange(12) % 3)
    setting, outcome, _ = grouped(tmp_path, "softmax", more="\ntest_share = 0.5")
    paths = report(STUDY, [setting.panel], [outcome], tmp_path)
    assert all(path.stat().st_size > 1000 for path in paths)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| test accuracy by group | fr | pt |" in text
    held = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    found = {(row["group"], row["metric"]): row["mean"] for row in held}
    assert found["pt", "test_loss"] == pytest.approx(np.mean(outcome.groups["pt"]["test_loss"]))
    assert found[None, "test_accuracy"] == pytest.approx(np.mean(outcome.metrics["test_accuracy"]))
    outcome.save(tmp_path / "one.json")
    assert Outcome.load(tmp_path / "one.json").groups == outcome.groups


def test_a_share_of_each_clients_examples_is_for_the_test_by_the_seed(tmp_path):
    arrays(tmp_path, clients=np.repeat([0, 1, 2], [6, 4, 2]), features=np.arange(12.0)[:, None])
    task = f"{ARRAYS}\ntest_share = 0.25"
    (first,) = configured(tmp_path, task=task).instances
    (again,) = configured(tmp_path, task=task).instances
    (other,) = configured(tmp_path, task=f"{task}\nseed = 1").instances
    trained, tested = first.problem.task, first.test
    assert [own.tolist() for own in (trained.sizes, tested.sizes)] == [[4, 3, 1], [2, 1, 1]]
    np.testing.assert_array_equal(again.test.data[0], tested.data[0])
    assert (other.test.data[0] != tested.data[0]).any()
    for client, counts in enumerate([6, 4, 2]):
        parts = [one.data[0][client, : one.sizes[client], 0].tolist() for one in (trained, tested)]
        first_of = sum([6, 4, 2][:client])
        assert sorted(parts[0] + parts[1]) == list(range(first_of, first_of + counts))


@pytest.mark.parametrize("named", [True, False])
def test_test_examples_are_each_clients_own_or_common(tmp_path, named):
    named_arrays(tmp_path)
    rng = np.random.default_rng(1)
    features, targets = rng.standard_normal((6, 3)), rng.standard_normal(6)
    clients = {"clients": np.array(["porto", "berlin", "lyon"] * 2)} if named else {}
    np.savez(tmp_path / "test.npz", features=features, targets=targets, **clients)
    _, outcome, run = grouped(tmp_path, "squares", more="\ntest_file = 'test.npz'")
    lost = (features @ run.params.T - targets[:, None]) ** 2
    np.testing.assert_allclose(outcome.metrics["test_loss"], lost.mean(axis=0), rtol=1e-9)
    assert ("test_loss" in outcome.groups["pt"]) == named
    if named:
        own = lost[[0, 3]].mean(axis=0)
        np.testing.assert_allclose(outcome.groups["pt"]["test_loss"], own, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "more", "where", "match"),
    [
        ({}, "test_share = 1", "task.test_share", r"between 0 and 1"),
        ({}, "test_share = 0.5\ntest_file = 'test.npz'", "task.test_share", r"keep one"),
        ({}, "test_file = 'none.npz'", "task.test_file", r"no file"),
        ({"features": np.zeros((3, 2))}, "test_file = 'test.npz'", "task.test_file", r"2 features"),
        ({"clients": np.array(["porto", "lyon", "lyon"])}, "test_file = 'test.npz'",
         "task.test_file", r"'berlin' has no test example"),
        ({"clients": np.array(["porto", "lion", "lyon"])}, "test_file = 'test.npz'",
         "task.test_file", r"'lion'; did you mean 'lyon'"),
    ],
)  # fmt: skip
def test_test_examples_that_do_not_fit_are_refused(tmp_path, changes, more, where, match):
    named_arrays(tmp_path)
    held = {"features": np.zeros((3, 3)), "targets": np.zeros(3), **changes}
    np.savez(tmp_path / "test.npz", **held)
    refused(tmp_path, where, match, task=f"{ARRAYS}\n{more}")


def test_a_client_with_one_example_cannot_be_tested(tmp_path):
    arrays(tmp_path, clients=np.repeat(["a", "b"], [11, 1]))
    refused(tmp_path, "task.test_share", r"client b", task=f"{ARRAYS}\ntest_share = 0.5")


def test_an_outcome_from_before_there_were_groups_is_read(tmp_path):
    named_arrays(tmp_path)
    _, outcome, _ = grouped(tmp_path, "squares")
    outcome.save(tmp_path / "one.json")
    held = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))
    del held["groups"]
    (tmp_path / "one.json").write_text(sealed({**held, "version": 2}), encoding="utf-8")
    assert Outcome.load(tmp_path / "one.json").groups == {}
