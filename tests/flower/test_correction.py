"""Correction: a shift after each local step is that of the rule, and is taken out again."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from grid import LocalGrid, Node, arrays_of, everybody, only, record_of
from learnt import Learner

from fedavot.errors import OptionError
from fedavot.flower import FedAVOT, Memory, correction, introduce
from fedavot.flower.memory.correction import (
    SHIFT,
    SHIFTED,
    _report_no_correction,
    correcting,
    put_request,
    take_answer,
)
from steady_formula import Steady

AGREE = 1e-11
"""Room for float64 sums in another order over some rounds."""
N, ROUNDS, STEPS, RATE, KAPPA = 4, 20, 5, 0.15, 0.5
P = np.array([0.4, 0.1, 0.2, 0.3])
CURVES = np.random.default_rng(0).uniform(0.3, 2.0, (N, 3))
TARGETS = np.random.default_rng(1).normal(size=(N, 3))
COHORTS = [[0, 1, 2, 3], [0, 1], [1, 2, 3], [0, 3], [2]] * 4


def descend(client, model, after=lambda model: None, steps=STEPS):
    """Take local steps on a quadratic, in place."""
    for _ in range(steps):
        model["w"] -= RATE * CURVES[client] * (model["w"] - TARGETS[client])
        after(model)


def app_of(forms, *, takes=STEPS, corrects=True):
    """Return an app whose training is corrected; ``forms`` turns its model into an argument."""
    app = introduce(ClientApp())

    @app.train()
    def train(message, context):
        model = {key: array.numpy().copy() for key, array in message.content["arrays"].items()}
        shift = correction(context, steps=STEPS) if corrects else (lambda model: None)
        client = int(context.node_config["partition-id"])
        descend(client, model, lambda model: shift(forms(model)), takes)
        metrics = MetricRecord({"num-examples": 1})
        records = {"arrays": record_of(model), "metrics": metrics}
        return Message(RecordDict(records), reply_to=message)

    return app


def trained(app, folder, memory=Memory(correction=KAPPA)):  # noqa: B008
    nodes = {100 + i: Node(app, {"partition-id": i}) for i in range(N)}
    grid = LocalGrid(nodes, fate=only(COHORTS))
    importance = {str(i): float(share) for i, share in enumerate(P)}
    strategy = FedAVOT(everybody(), importance=importance, memory=memory, folder=folder)
    start = record_of({"w": np.ones(3), "n": np.array(1)})
    return arrays_of(strategy.start(grid, start, ROUNDS).arrays)["w"], grid


def expected(part=1.0):
    """Return the last model by the rule itself, where clients follow a part of the correction."""
    model, rule, aligner = {"w": np.ones(3)}, Steady(damping=10.0), Learner(P)
    for cohort in COHORTS:
        updates = {}
        for i in cohort:
            path = KAPPA * (rule.y[i] - rule.mean(P)) if i in rule.y else np.zeros(3)
            after = {"w": model["w"].copy()}

            def shift(model, path=path):
                model["w"] -= path / STEPS

            descend(i, after, shift, int(STEPS * part))
            updates[i] = after["w"] - model["w"] + part * path
        model = {"w": model["w"] + rule.change(updates, aligner.observe(cohort), P)}
    return model["w"]


FORMS = {
    "by name": lambda model: model,
    "as pairs": lambda model: model.items(),
    "in order": lambda model: [model["w"]],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_corrected_run_is_that_of_the_rule(tmp_path, form):
    found, _ = trained(app_of(FORMS[form]), tmp_path)
    np.testing.assert_allclose(found, expected(), rtol=AGREE)


def test_what_was_followed_in_part_is_taken_out_in_part(tmp_path):
    found, _ = trained(app_of(FORMS["by name"], takes=2), tmp_path)
    np.testing.assert_allclose(found, expected(part=0.4), rtol=AGREE)


@pytest.mark.parametrize("corrects", [True, False])
def test_a_shift_is_sent_to_clients_that_correct_once_they_have_a_memory(tmp_path, corrects):
    _, grid = trained(app_of(FORMS["by name"], corrects=corrects), tmp_path)
    # Clients take the record out of the messages; those that they did not get still have it.
    sent = [it for it in grid.sent if it.metadata.message_type == "train"]
    first, last = sent[:N], sent[-N:]
    assert not any(SHIFT in message.content for message in first)
    silent = [it for it in last if it.metadata.dst_node_id - 100 not in COHORTS[-1]]
    assert [SHIFT in it.content for it in silent] == [corrects] * 3


def run_in_mod(model, shift, train):
    """Run a train function of (arrays, context) as the mod does, and return the reply's arrays."""
    content = RecordDict({"arrays": record_of(model), "config": ConfigRecord({})})
    message = Message(content, 1, "train")
    put_request(message, None if shift is None else record_of(shift))
    context = Context(1, 1, {}, RecordDict({"other": ConfigRecord({})}), {})

    def call_next(message, context):
        assert set(message.content) == {"arrays", "config"}
        arrays = {key: array.numpy().copy() for key, array in message.content["arrays"].items()}
        train(arrays, context)
        return Message(RecordDict({"arrays": record_of(arrays)}), reply_to=message)

    reply = correcting(message, context, call_next)
    assert set(context.state) == {"other"}
    return arrays_of(reply.content["arrays"]), take_answer(reply)


@pytest.mark.parametrize("corrects", [True, False])
def test_what_was_shifted_is_added_back_to_the_reply(corrects):
    LocalGrid({})  # messages need the identity of their sender
    model = {"w": np.ones(2, np.float32), "n": np.array(3)}

    def train(arrays, context):
        if corrects:
            shift = correction(context, steps=2)
            shift([arrays["w"]])
            np.testing.assert_array_equal(arrays["w"], [0.0, 0.5])
            shift([arrays["w"]])

    found, answer = run_in_mod(model, {"w": np.array([2.0, 1.0])}, train)
    assert answer is corrects
    np.testing.assert_array_equal(found["w"], model["w"])
    assert found["w"].dtype == np.float32


def test_a_torch_module_is_shifted_in_place():
    torch = pytest.importorskip("torch")
    LocalGrid({})
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    arrays = {key: value.numpy().copy() for key, value in net.state_dict().items()}
    trainable = {name for name, _ in net.named_parameters()}

    def train(_, context):
        shift = correction(context, steps=6)
        shift(net)
        shift(net)

    shift = {key: np.full(arrays[key].shape, 3.0, np.float32) for key in trainable}
    run_in_mod(arrays, shift, train)
    after = {key: value.numpy() for key, value in net.state_dict().items()}
    for key, value in arrays.items():
        moved = -1.0 if key in trainable else 0.0
        np.testing.assert_allclose(after[key], value + moved, rtol=1e-6)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_without_a_memory_there_is_nothing_to_correct():
    context, model = Context(1, 1, {}, RecordDict(), {}), [np.ones(2)]
    correction(context, steps=3)(model)
    np.testing.assert_array_equal(model[0], np.ones(2))
    assert not list(context.state)


def test_the_state_of_the_app_is_left_as_it_was(tmp_path):
    _, grid = trained(app_of(FORMS["by name"]), tmp_path)
    for context in grid._contexts.values():
        assert {SHIFT, SHIFTED}.isdisjoint(context.state)


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(OptionError, match="steps"):
        correction(Context(1, 1, {}, RecordDict(), {}), steps=steps)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (np.zeros(2), "pass a list of arrays, not one array"),
        ([np.zeros(2), np.zeros(1)], "2 arrays, and the model has 1"),
        ({"net.w": np.zeros(2)}, r"'net\.w', and the arrays of the model are 'w'"),
    ],
)
def test_a_model_in_the_wrong_form_is_refused_in_every_round(model, message, first):
    LocalGrid({})

    def train(arrays, context):
        correction(context, steps=2)(model)

    with pytest.raises(OptionError, match=message):
        run_in_mod({"w": np.zeros(2)}, None if first else {"w": np.ones(2)}, train)


def test_one_array_is_refused_without_memory_too():
    context = Context(1, 1, {}, RecordDict(), {})
    with pytest.raises(OptionError, match="not one array"):
        correction(context, steps=2)(np.zeros(2))


def test_correction_that_the_server_does_not_ask_for_is_reported_once(tmp_path, caplog):
    _report_no_correction.cache_clear()
    trained(app_of(FORMS["by name"]), tmp_path / "without", memory=True)
    assert sum("correction() does nothing" in it for it in caplog.messages) == 1
    caplog.clear()
    _report_no_correction.cache_clear()
    trained(app_of(FORMS["by name"]), tmp_path / "with")
    assert not any("correction() does nothing" in it for it in caplog.messages)


def test_a_corrected_run_that_resumes_is_that_of_the_rule(tmp_path):
    app = app_of(FORMS["by name"])
    for last in (9, ROUNDS):
        nodes = {100 + i: Node(app, {"partition-id": i}) for i in range(N)}
        strategy = FedAVOT(
            everybody(),
            importance={str(i): float(share) for i, share in enumerate(P)},
            memory=Memory(correction=KAPPA),
            folder=tmp_path,
            resume=True,
        )
        grid = LocalGrid(nodes, fate=only(COHORTS))
        result = strategy.start(grid, record_of({"w": np.ones(3)}), last)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected(), rtol=AGREE)
