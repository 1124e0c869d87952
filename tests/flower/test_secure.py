"""SecAgg+ with aligned weights: real ClientApps and Flower's real protocol, in one process."""

import copy
import functools
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg, FedAvgM
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from learnt import Learner

import fedavot as fa
from fedavot.errors import OptionError, TaskError
from fedavot.flower import Weighting
from fedavot.flower.private.secure import SecureFedAVOT, secure_count

NAMES = {101: "a", 102: "b", 103: "c", 104: "d", 105: "e"}
IMPORTANCE = {"a": 0.4, "b": 0.3, "c": 0.15, "d": 0.1, "e": 0.05}
SHARES = list(IMPORTANCE.values())
CLIPPING_RANGE, QUANTIZATION_RANGE = 8.0, 2**22
"""Flower's defaults."""
EXAMPLES = 37
"""The number of examples that every client would report."""


ROUNDING = 1e-12
"""Room for a few rounds of sums of numbers of the order of one."""


def tolerance(ratios):
    """Return the error bound of quantisation: 3 c n / Q in double precision, Q = Σ round(t r_i).

    Each of the n clients rounds r_i θ_i to a step of 2c/t, which is 2 c n / Q after dividing by
    Q/t; the rounding of the r_i moves the weights by at most n/Q in all, so an average of entries
    within ±c by c n / Q.
    """
    return 3 * CLIPPING_RANGE * ratios.size / np.round(QUANTIZATION_RANGE * ratios).sum()


class Client(NumPyClient):
    """A client that adds its own noise to the model."""

    def __init__(self, partition):
        self.partition = partition

    def fit(self, parameters, config):
        return [trained(array, self.partition) for array in parameters], EXAMPLES, {}

    def evaluate(self, parameters, config):
        return 2.0, EXAMPLES, {}


def trained(array, partition):
    rng = np.random.default_rng([partition, array.size])
    return (array + rng.uniform(-1, 1, size=array.shape)).astype(array.dtype)


def app(*mods):
    return ClientApp(lambda context: Client(context.node_config["number"]).to_client(), list(mods))


class OneProcess(Grid):
    """Run every client in this process; ``lost`` says which messages never arrive."""

    def __init__(self, lost=lambda node, server_round, stage: False, mods=None):
        self.apps = dict.fromkeys(NAMES, app(*(mods or (secaggplus_mod, secure_count))))
        self.lost = lost
        self.sent = []
        self.replies = []
        self.contexts = {
            node: Context(1, node, {"number": number, "partition-id": name}, RecordDict(), {})
            for number, (node, name) in enumerate(NAMES.items())
        }

    @property
    def run(self):
        return SimpleNamespace(run_id=1)

    def set_run(self, run):
        raise NotImplementedError

    create_message = push_messages = pull_messages = set_run  # type: ignore[assignment]

    def get_node_ids(self):
        return list(NAMES)

    def send_and_receive(self, messages, *, timeout=None):
        return [self._answered(copy.deepcopy(message)) for message in messages]

    def _answered(self, message):
        node = message.metadata.dst_node_id
        stage = message.content.config_records.get(RECORD_KEY_CONFIGS, {}).get(Key.STAGE)
        self.sent.append((node, stage, message.metadata.message_type))
        if self.lost(node, int(message.metadata.group_id or 0), stage):
            return Message(Error(code=0, reason="gone"), reply_to=message)
        try:
            reply = self.apps[node](message, self.contexts[node])
        except Exception as cause:  # as a node would report it
            return Message(Error(code=0, reason=repr(cause)), reply_to=message)
        self.replies.append((stage, copy.deepcopy(reply)))
        return reply


@pytest.fixture(autouse=True)
def _inside_a_run(monkeypatch):
    """Set the identity of a task, without which Flower creates no messages."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def workflow(**options):
    return SecAggPlusWorkflow(num_shares=5, reconstruction_threshold=3, **options)


def secure(model, *, wrapped=FedAvg, flow=None, **options):
    settings = {"importance": IMPORTANCE, **options}
    inner = wrapped(initial_parameters=ndarrays_to_parameters(model), fraction_evaluate=0.0)
    return SecureFedAVOT(inner, flow or workflow(), **settings)


def train(strategy, grid, *, rounds=1):
    """Return the models after every round."""
    models = []
    evaluate = strategy.evaluate

    def noting(server_round, parameters):
        models.append(parameters_to_ndarrays(parameters))
        return evaluate(server_round, parameters)

    strategy.evaluate = noting
    run(strategy, grid, DefaultWorkflow(fit_workflow=strategy.workflow), rounds=rounds)
    return models


def run(strategy, grid, whole, *, rounds=1):
    """Return the history that Flower keeps."""
    blank = Context(1, 0, {}, RecordDict(), {})
    context = LegacyContext(blank, ServerConfig(num_rounds=rounds), strategy)
    whole(grid, context)
    return context.history


def model_of(dtype=np.float64):
    return [np.linspace(-1, 1, 6).reshape(2, 3).astype(dtype), np.full(4, 0.5, dtype)]


def plain_average(model, cohort, weights):
    return [
        sum(weight * trained(array, member) for member, weight in zip(cohort, weights, strict=True))
        for array in model
    ]


def drop(node, server_round=1):
    """Lose a client after it has shared its keys and before it sends its masked vector."""
    stage = Stage.COLLECT_MASKED_VECTORS
    return lambda *found: found == (node, server_round, stage)


ALIGNED = np.array([3.0, 1.0, 0.0, -1.0, -2.0])
"""Potentials of an alignment whose heaviest client has 85 % of a full cohort."""


def alignment(**changes):
    fields = {
        "importance": np.array(list(IMPORTANCE.values())),
        "potentials": ALIGNED,
        "levels": np.zeros(5, dtype=np.int64),
        "attained": np.array(list(IMPORTANCE.values())),
        "residual": 0.0,
        "iterations": 1,
        "status": fa.Status.EXACT,
    }
    return fa.Alignment(**{**fields, **changes})


def aligned(**changes):
    return {
        "importance": "uniform",
        "weighting": Weighting(alignment=alignment(**changes), clients=list(IMPORTANCE)),
    }


@pytest.mark.parametrize("gone", [None, 103, 101])
def test_the_average_is_the_survivors_aligned_one_to_quantisation(gone):
    model = model_of()
    strategy = secure(model, **aligned())
    _, found = train(strategy, OneProcess(drop(gone)))
    cohort = [number for number, node in enumerate(NAMES) if node != gone]
    weights = alignment().weights(cohort)
    assert list(strategy.weights.values()) == pytest.approx(weights.tolist(), rel=ROUNDING)
    ratios = np.exp(ALIGNED - ALIGNED.max())[cohort]
    for array, wanted in zip(found, plain_average(model, cohort, weights), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=0, atol=tolerance(ratios))


@pytest.mark.parametrize(
    "plain",
    [
        fa.OnlineAligner(SHARES, softness=0, step=1.0),
        Learner(SHARES, softness=0.2),
    ],
)
def test_over_rounds_with_dropouts_it_learns_what_a_plain_aligner_learns(plain):
    lost = {2: 103, 3: 101, 5: 105}
    soft = isinstance(plain, Learner)
    strategy = secure(model_of(), weighting=Weighting(softness=0.2 if soft else 0.0))
    grid = OneProcess(lambda node, n, stage: drop(lost.get(n), n)(node, n, stage))
    models = train(strategy, grid, rounds=6)
    for number, (before, after) in enumerate(itertools.pairwise(models), 1):
        cohort = [place for place, node in enumerate(NAMES) if node != lost.get(number)]
        ratios = np.exp(plain.effective_potentials - plain.effective_potentials.max())
        weights = plain.observe(cohort)
        for array, wanted in zip(after, plain_average(before, cohort, weights), strict=True):
            np.testing.assert_allclose(array, wanted, rtol=0, atol=tolerance(ratios[cohort]))
    learnt = fa.OnlineAligner.from_state(strategy.state_dict()["aligner"])
    assert learnt.rounds == 6
    np.testing.assert_allclose(
        learnt.effective_potentials, plain.effective_potentials, atol=ROUNDING
    )
    assert np.ptp(plain.effective_potentials - np.log(SHARES)) > 0.1


def test_the_stated_error_bound_holds_in_single_precision():
    model = model_of(np.float32)
    strategy = secure(model, **aligned())
    _, found = train(strategy, OneProcess(drop(101)))
    cohort = [1, 2, 3, 4]
    wanted = plain_average(model, cohort, alignment().weights(cohort))
    errors = [np.abs(array - other).max() for array, other in zip(found, wanted, strict=True)]
    assert max(errors) < strategy.error_bound
    ratios = np.exp(ALIGNED - ALIGNED.max())[cohort]
    assert strategy.error_bound == pytest.approx(4 / 3 * tolerance(ratios))


def test_types_are_kept_and_integer_arrays_stay_as_the_model_has_them():
    model = [*model_of(np.float32), np.array([500, 3]), np.asarray(7)]
    _, found = train(secure(model), OneProcess())
    assert [array.dtype for array in found] == [np.float32, np.float32, np.int64, np.int64]
    assert found[2].tolist() == [500, 3]
    assert found[3] == 7


def test_a_server_optimiser_steps_from_the_aligned_average():
    model = model_of()
    wrapped = functools.partial(FedAvgM, server_learning_rate=0.5)
    _, found = train(secure(model, wrapped=wrapped, **aligned()), OneProcess())
    average = plain_average(model, range(5), alignment().weights(range(5)))
    for array, start, end in zip(found, model, average, strict=True):
        wanted = start + 0.5 * (end - start)
        np.testing.assert_allclose(array, wanted, rtol=0, atol=tolerance(np.exp(ALIGNED - 3)))


def test_neither_models_nor_example_counts_leave_the_clients_unmasked():
    model = model_of()
    grid = OneProcess()
    train(secure(model), grid)
    masked = [reply for stage, reply in grid.replies if stage == Stage.COLLECT_MASKED_VECTORS]
    counts = [reply.content.metric_records["fitres.num_examples"] for reply in masked]
    assert not any(any(reply.content.array_records.values()) for reply in masked)
    sent = sorted(count["num_examples"] for count in counts)
    assert sent == pytest.approx(sorted(1000.0 * share / max(SHARES) for share in SHARES))
    assert all(EXAMPLES not in count.values() for count in counts)


def test_a_round_with_a_client_that_weighs_itself_is_given_up_and_the_run_goes_on(caplog):
    grid = OneProcess()
    right = grid.apps
    grid.apps = {**right, 103: app(secaggplus_mod)}
    strategy = secure(model_of(), identity=NAMES)
    aggregate = strategy.aggregate_fit

    def put_right(server_round, results, failures):
        grid.apps = right
        return aggregate(server_round, results, failures)

    strategy.aggregate_fit = put_right
    before, after, last = train(strategy, grid, rounds=2)
    for array, same, other in zip(before, after, last, strict=True):
        np.testing.assert_array_equal(array, same)
        assert (same != other).all()
    (error,) = [it.message for it in caplog.records if it.levelname == "ERROR"]
    assert "round 1" in error
    assert "client 'c' used the count 37" in error
    assert "secaggplus_mod" in error
    assert strategy.state_dict()["aligner"]["rounds"] == 1


def sending(value):
    """Return a mod that makes the first entry of a client's update this value."""

    def mod(message, context, call_next):
        reply = call_next(message, context)
        for record in reply.content.array_records.values():
            arrays = record.to_numpy_ndarrays()
            arrays[0].flat[0] = value
            record.clear()
            record.update(ArrayRecord(arrays))
        return reply

    return mod


@pytest.mark.parametrize(
    ("node", "value"), [(101, 8.1), (101, np.nan), (103, -8.1), (103, 200.0), (105, -np.inf)]
)
def test_a_client_whose_entries_are_beyond_the_clipping_range_drops_out(node, value):
    model = model_of()
    strategy = secure(model, **aligned())
    grid = OneProcess()
    grid.apps = {**grid.apps, node: app(secaggplus_mod, secure_count, sending(value))}
    _, found = train(strategy, grid)
    cohort = [number for number, other in enumerate(NAMES) if other != node]
    weights = alignment().weights(cohort)
    assert list(strategy.weights.values()) == pytest.approx(weights.tolist(), rel=ROUNDING)
    ratios = np.exp(ALIGNED - ALIGNED.max())[cohort]
    for array, wanted in zip(found, plain_average(model, cohort, weights), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=0, atol=tolerance(ratios))


@pytest.mark.parametrize(("node", "value"), [(101, 7.9), (101, -7.9), (103, 7.9), (105, -7.9)])
def test_a_client_whose_entries_are_within_the_clipping_range_stays(node, value):
    strategy = secure(model_of(), **aligned())
    grid = OneProcess()
    grid.apps = {**grid.apps, node: app(secaggplus_mod, secure_count, sending(value))}
    _, found = train(strategy, grid)
    weights = alignment().weights(range(5))
    assert list(strategy.weights.values()) == pytest.approx(weights.tolist(), rel=ROUNDING)
    place = list(NAMES).index(node)
    entries = [value if i == place else trained(model_of()[0], i).flat[0] for i in range(5)]
    assert found[0].flat[0] == pytest.approx(weights @ entries, abs=tolerance(np.exp(ALIGNED - 3)))


@pytest.mark.parametrize("identity", [NAMES, NAMES.get, "partition-id"])
def test_names_are_given_looked_up_or_asked_for_once(identity):
    grid = OneProcess()
    strategy = secure(model_of(), identity=identity)
    train(strategy, grid, rounds=2)
    assert set(strategy.weights) == set("abcde")
    questions = [kind for _, _, kind in grid.sent if kind.startswith("query")]
    assert len(questions) == (5 if isinstance(identity, str) else 0)


@pytest.mark.parametrize(
    ("options", "asked", "reason"),
    [
        ({"identity": {**NAMES, 105: "x"}}, "abcd", "x is not asked: client 'x' has no importance"),
        ({"identity": {**NAMES, 105: "a"}}, "bcd", "several nodes have the name 'a'"),
        ({"identity": {**NAMES, 105: None}}, "abcd", "node 105 is not asked: it has no name"),
        (
            {"identity": "number", "importance": {"0": 1, "1": 1, "2": 1}},
            "012",
            "client '3' has no",
        ),
    ],
)
def test_clients_without_a_name_of_their_own_or_importance_are_not_asked(
    options, asked, reason, caplog
):
    strategy = secure(model_of(), **options)
    grid = OneProcess()
    train(strategy, grid)
    assert set(strategy.weights) == set(asked)
    assert sum(stage == Stage.SETUP for _, stage, _ in grid.sent) == len(asked)
    assert reason in caplog.text


def test_a_client_whose_weight_would_be_rounded_away_is_not_asked():
    potentials = np.array([0.0, 0.0, 0.0, np.log(2.0**-22), np.log(2.0**-24)])
    strategy = secure(model_of(), **aligned(potentials=potentials))
    train(strategy, OneProcess())
    assert set(strategy.weights) == set("abcd")


def test_nobody_to_ask_is_no_round(caplog):
    strategy = secure(model_of(), identity={})
    before, after = train(strategy, OneProcess())
    np.testing.assert_array_equal(after[0], before[0])
    assert strategy.weights == {}


def test_a_round_that_the_protocol_gives_up_teaches_nothing():
    def most(node, server_round, stage):
        return node > 102 and stage == Stage.COLLECT_MASKED_VECTORS

    strategy = secure(model_of())
    before, after = train(strategy, OneProcess(most))
    np.testing.assert_array_equal(after[0], before[0])
    assert strategy.state_dict()["aligner"]["rounds"] == 0


def test_a_round_that_the_wrapped_strategy_refuses_teaches_nothing():
    strategy = secure(model_of(), wrapped=functools.partial(FedAvg, accept_failures=False))
    before, after = train(strategy, OneProcess(drop(103)))
    np.testing.assert_array_equal(after[0], before[0])
    assert strategy.state_dict()["aligner"]["rounds"] == 0
    assert strategy.aggregate_fit(2, [], []) == (None, {})


def test_a_saved_state_goes_on_as_if_nothing_had_happened():
    straight = secure(model_of())
    train(straight, OneProcess(), rounds=3)
    first = secure(model_of())
    train(first, OneProcess(), rounds=2)
    second = secure(model_of())
    second.load_state_dict(first.state_dict())
    train(second, OneProcess())
    assert second.weights == straight.weights
    assert second._weigher.gap == straight._weigher.gap


def test_evaluation_is_left_to_the_wrapped_strategy():
    inner = FedAvg(
        initial_parameters=ndarrays_to_parameters(model_of()),
        evaluate_fn=lambda number, model, config: (float(number), {}),
    )
    strategy = SecureFedAVOT(inner, workflow(), importance=IMPORTANCE)
    history = run(strategy, OneProcess(), DefaultWorkflow(fit_workflow=strategy.workflow))
    assert history.losses_distributed == [(1, 2.0)]
    assert history.losses_centralized == [(0, 0.0), (1, 1.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (aligned(levels=np.array([0, 0, 1, 1, 1])), "the alignment has 2 levels"),
        (aligned(objective="variance"), "the alignment's objective is 'variance'"),
        ({"weighting": Weighting(cohort_size=2)}, "leave out cohort_size"),
        ({"importance": "examples"}, "importance 'examples' needs the clients' example counts"),
    ],
)
def test_weights_that_do_not_follow_from_one_number_per_client_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        secure(model_of(), **options)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([0.0, -7.95]), "array 2 of the model has an entry of size 7.95"),
        (np.array([np.nan]), "array 2 of the model has an entry of size nan"),
        (np.asarray(0.5), "array 2 of the model has no dimensions"),
        (np.zeros(2, np.float16), "array 2 of the model is float16"),
    ],
)
def test_models_that_the_protocol_would_change_in_silence_are_refused(array, message):
    with pytest.raises(TaskError, match=message):
        train(secure([*model_of(), array]), OneProcess())


def test_more_clients_than_the_modulus_holds_are_refused():
    strategy = secure(model_of(), flow=workflow(quantization_range=2**30))
    with pytest.raises(OptionError, match="5 clients are asked, but sums of more than 3 overflow"):
        train(strategy, OneProcess())


def test_without_a_count_the_mod_changes_nothing():
    grid = OneProcess(mods=[secure_count])
    plain = FedAvg(initial_parameters=ndarrays_to_parameters(model_of()), fraction_evaluate=0.0)
    run(plain, grid, DefaultWorkflow())
    counts = [reply.content.metric_records["fitres.num_examples"] for _, reply in grid.replies]
    assert [count["num_examples"] for count in counts] == [EXAMPLES] * 5
