"""Correction: a shift after each local step is that of the rule, and is taken out again."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from grid import LocalGrid, Node, arrays_of, everybody, only, record_of
from learnt import Learner

from fedavot.errors import OptionError
from fedavot.flower import FedAVOT, correction, introduce
from fedavot.flower.memory import wire
from fedavot.flower.memory.correction import SHIFT, SHIFTED, _report_no_memory, offer
from fedavot.flower.memory.wire import Layout
from fedavot.rules.held import ClientMemory, ServerMemory

AGREE = 1e-11
"""Room for float64 sums in another order over some rounds."""
N, ROUNDS, STEPS, RATE = 4, 20, 5, 0.15
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
    app = introduce(ClientApp(), memory=True)

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


def trained(app, memory="clients"):
    nodes = {100 + i: Node(app, {"partition-id": i}) for i in range(N)}
    grid = LocalGrid(nodes, fate=only(COHORTS))
    importance = {str(i): float(share) for i, share in enumerate(P)}
    strategy = FedAVOT(everybody(), importance=importance, memory=memory)
    start = record_of({"w": np.ones(3), "n": np.array(1)})
    return arrays_of(strategy.start(grid, start, ROUNDS).arrays)["w"], grid


def expected(part=1.0):
    """Return the last model by the rule itself, where clients follow a part of the correction."""
    model = {"w": np.ones(3)}
    server = ServerMemory.start(P, [np.zeros(3)])
    clients = [ClientMemory() for _ in P]
    aligner = Learner(P)
    for cohort in COHORTS:
        replies = {}
        for i in cohort:
            request = server.request(i)
            (path,) = clients[i].correction(request)
            after = {"w": model["w"].copy()}

            def shift(model, path=path):
                model["w"] -= path / STEPS

            descend(i, after, shift, int(STEPS * part))
            followed = [part * path]
            replies[i] = clients[i].answer(request, [after["w"] - model["w"]], path=followed)
        given = aligner.observe(cohort)

        def weigh(_, given=given):
            return given

        (change,) = server.close(replies, weigh=weigh)
        model = {"w": model["w"] + change}
    assert server.correction > 0.1
    return model["w"]


FORMS = {
    "by name": lambda model: model,
    "as pairs": lambda model: model.items(),
    "in order": lambda model: [model["w"]],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_corrected_run_is_that_of_the_rule(form):
    found, _ = trained(app_of(FORMS[form]))
    np.testing.assert_allclose(found, expected(), rtol=AGREE)


def test_what_was_followed_in_part_is_taken_out_in_part():
    found, _ = trained(app_of(FORMS["by name"], takes=2))
    np.testing.assert_allclose(found, expected(part=0.4), rtol=AGREE)


@pytest.mark.parametrize("corrects", [True, False])
def test_the_mean_is_sent_to_clients_that_correct_once_they_have_a_memory(corrects):
    _, grid = trained(app_of(FORMS["by name"], corrects=corrects))
    # Clients take the record out of the messages; those that they did not get still have it.
    sent = [it for it in grid.sent if it.metadata.message_type == "train"]
    first, last = sent[:N], sent[-N:]
    assert not any(wire.MEAN in message.content for message in first)
    silent = [it for it in last if it.metadata.dst_node_id - 100 not in COHORTS[-1]]
    assert [wire.MEAN in it.content for it in silent] == [corrects] * 3


def test_a_torch_module_is_shifted_in_place():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    context = Context(1, 1, {}, RecordDict(), {})
    arrays = {key: value.numpy().copy() for key, value in net.state_dict().items()}
    layout = Layout(record_of(arrays))
    offer(context, layout, [np.full(shape, 3.0, np.float32) for shape in layout.shapes.values()])
    shift = correction(context, steps=6)
    shift(net)
    shift(net)
    after = {key: value.numpy() for key, value in net.state_dict().items()}
    trainable = {name for name, _ in net.named_parameters()}
    for key, value in arrays.items():
        moved = -1.0 if key in trainable else 0.0  # running statistics are no parameters
        np.testing.assert_allclose(after[key], value + moved, rtol=1e-6)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_without_a_memory_there_is_nothing_to_correct():
    context, model = Context(1, 1, {}, RecordDict(), {}), [np.ones(2)]
    correction(context, steps=3)(model)
    np.testing.assert_array_equal(model[0], np.ones(2))
    assert not list(context.state)


def test_the_state_of_the_app_is_left_as_it_was():
    app, contexts = app_of(FORMS["by name"]), []
    _, grid = trained(app)
    for context in grid._contexts.values():
        contexts.append(set(context.state))
    assert all({SHIFT, SHIFTED}.isdisjoint(names) for names in contexts)


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(OptionError, match="steps"):
        correction(Context(1, 1, {}, RecordDict(), {}), steps=steps)


def test_arrays_that_are_not_those_of_the_model_are_refused():
    context = Context(1, 1, {}, RecordDict({"other": ConfigRecord({})}), {})
    layout = Layout(record_of({"w": np.zeros(2), "b": np.zeros(1)}))
    offer(context, layout, [np.ones(2), np.ones(1)])
    with pytest.raises(OptionError, match="1 arrays, and the model has 2"):
        correction(context, steps=2)([np.zeros(2)])


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
    context = Context(1, 1, {}, RecordDict(), {})
    layout = Layout(record_of({"w": np.zeros(2)}))
    offer(context, layout, None if first else [np.ones(2)])
    with pytest.raises(OptionError, match=message):
        correction(context, steps=2)(model)


def test_one_array_is_refused_without_memory_too():
    context = Context(1, 1, {}, RecordDict(), {})
    with pytest.raises(OptionError, match="not one array"):
        correction(context, steps=2)(np.zeros(2))


def test_correction_without_memory_on_clients_is_reported_once(caplog):
    _report_no_memory.cache_clear()
    trained(app_of(FORMS["by name"]), memory=None)
    assert sum("correction() does nothing" in it for it in caplog.messages) == 1
    caplog.clear()
    _report_no_memory.cache_clear()
    trained(app_of(FORMS["by name"]))
    assert not any("correction() does nothing" in it for it in caplog.messages)
