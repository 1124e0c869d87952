"""What training refuses: one table for each place where something enters, and whom it names."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

import fedavot as fa
from fedavot import rules, training
from fedavot.errors import CohortError, ImportanceError, OptionError, RuleError, TaskError
from fedavot.rules import Asked, Rule
from fedavot.rules._rule import add_updates
from fedavot.training import Problem, Task, constant, from_clients, train
from fedavot.training.mnist import standardised
from fedavot.training.partition import by_group, dirichlet, iid, two_digits
from fedavot.training.tasks import linear
from fedavot.training.tasks.classifiers import cnn_task, softmax_task
from fedavot.training.tasks.linear import linear_task, optimum

EYE, ONES, FLAT = np.eye(2), np.ones((3, 2)), np.array([0.5, 0.5, 0.0])
HINGE = linear.mean_hinge
FIVES = np.repeat(np.arange(10), 500)


def loss(params, batch):
    return jnp.mean(params * batch)


def task(data, counts=None):
    return Task("t", data, loss, lambda key: jnp.zeros(()), counts)


def clients(*data, **more):
    return from_clients("t", data, loss=loss, init=lambda key: jnp.zeros(()), **more)


def entry(value):
    data = np.zeros((3, 2, 2))
    data[1, 0, 1] = value
    return data


def problem(importance, availability=small.everybody):
    return Problem(task(np.zeros((3, 2))), importance, availability)


def long(value):
    data = np.zeros((4, 5), np.int64)
    data[2, 1] = value
    return data


def deviations(scale):
    return linear_task("t", [(scale * EYE, [1, 2])], loss=linear.mean_deviation)


def rng():
    return np.random.default_rng(0)


def digits(labels, n_clients, size):
    return two_digits(labels, n_clients, examples_per_client=size, rng=rng())


def mixes(labels, n_clients, size, alpha=1.0):
    return dirichlet(labels, n_clients, concentration=alpha, examples_per_client=size, rng=rng())


def options(**changes):
    return training.Training(**{"rounds": 3, "step": constant(0.1)} | changes)


def stepped(step):
    return options(step=step).step_sizes(np.dtype(np.float64))


def failing(key):
    raise RuntimeError("no more memory")


def run(importance=small.P, cohorts=small.everybody, rule=small.SHARES, **changes):
    """Train two rounds on the small task, some of whose parts or options are others."""
    parts = {name: changes.pop(name) for name in ("init", "loss", "counts") if name in changes}
    task = dataclasses.replace(small.TASK, **parts)
    availability = cohorts if callable(cohorts) else lambda rng, rounds: cohorts
    options = small.options(2, **changes)
    return train(Problem(task, importance, availability), rule, options)


def longer(key):
    return {"level": jnp.zeros(()), "slope": jnp.zeros(5)}


def starting(level=0.0, slope=(0.0, 0.0)):
    return run(start={"level": np.asarray(level), "slope": np.asarray(slope)})


def errors(params, batch):
    features, targets = batch
    return (features @ params["slope"] + params["level"] - targets) ** 2


def asked(weigh):
    return run(rule=small.asking(weigh))


def at_once(members, weights, cohorts=((0, 1), (2, 3))):
    """Train by a rule that chooses for all rounds at once."""
    choice = Asked(np.asarray(members), np.asarray(weights))
    rule = Rule("table", "nothing", "nothing", lambda *_: choice, add_updates)
    return run(rule=rule, cohorts=[np.array(cohort) for cohort in cohorts])


def choosing(chosen):
    return run(rule=dataclasses.replace(small.SHARES, choose=lambda cohorts, rng: chosen))


REFUSALS = [
    (
        TaskError,
        [
            (lambda: task(()), "task 't' has no data; give at least one array"),
            (lambda: task(np.zeros(3)), r"arrays of shapes \[\(3,\)\]; each must begin with"),
            (lambda: task(np.zeros((3, 0))), r"\(3, 0\).*both at least 1; from_clients takes"),
            (lambda: task((ONES, np.ones((3, 4)))), r"\[\(3, 2\), \(3, 4\)\]; .* the same"),
            (lambda: task(entry(np.nan)), "client 1 in task 't' has entries that are not finite"),
            (lambda: task(np.full((3, 2), "a")), "array of type <U1; give numbers"),
            (lambda: task(ONES, [1, 2]), "counts of task 't' must be 3 integers from 1"),
            (lambda: task(ONES, [0, 1, 2]), r"from 1 to 2, found \[0 1 2\]"),
            (clients, "task 't' has no clients"),
            (lambda: clients(np.zeros(2), np.zeros(0)), r"client 1 .* shapes \[\(0,\)\]"),
            (lambda: clients(ONES, np.ones((4, 5))), r"client 1 .* \[\(5,\)\], and client 0 .*2"),
            (lambda: clients({"x": EYE}, {"y": EYE}), "client 1 .*'y'.*, and client 0 .*'x'"),
            (lambda: clients(EYE, np.nan * EYE, clients=["a", "b"]), "client 'b' .* not finite"),
            (lambda: problem(FLAT, fa.UniformCohorts(3, 2)), "give a function of .rng, rounds."),
            (lambda: task(long(2**31)), "client 2 in task 't' has integers of more than 32"),
            (lambda: linear_task("t", []), "task 't' has no clients"),
            (lambda: linear_task("t", [5]), "client 0 of task 't' must be a pair"),
            (lambda: linear_task("t", [(EYE, ["a", "b"])]), "client 0 .* targets of type <U1"),
            (lambda: linear_task("t", [(EYE, [1, np.nan])]), "client 0 .* not finite"),
            (lambda: linear_task("t", [(EYE, [0, 1])], loss=HINGE), r"client 0 .* label 0\.0"),
            (lambda: softmax_task("t", [(EYE, [0, 1]), (EYE, [0, 10])]), "client 1 .* label 10,"),
            (lambda: cnn_task("t", [(EYE, [0, 1])]), "images of 2 pixels; .* 784"),
            (lambda: optimum(softmax_task("t", [(EYE, [1, 2])]), [1.0]), "task 't' has the loss"),
            (lambda: optimum(deviations(1e200), [1.0]), "program of task 't' was not solved"),
            (lambda: standardised(np.ones((2, 4))), "standard deviation 0.0"),
            (lambda: digits([1] * 9, 2, 4), "labels have 1 classes, and each client is to hold 2"),
            (lambda: digits(FIVES, 101, 50), "101 clients .* need 202 .*, and the labels have 200"),
            (lambda: digits([[1, 2], [3]], 1, 2), "labels must be a flat sequence"),
            (lambda: mixes([1, 2, 3], 2, 2), "2 clients of 2 examples need 4, and there are 3"),
            (lambda: by_group([]), r"non-empty flat sequence, found shape \(0,\)"),
            (lambda: by_group(np.array(["a", 1], object)), "groups cannot be put in order"),
            (lambda: run(start={"level": 0.0}), "start have shapes .*'level'.*; init .*'slope'"),
            (lambda: starting(slope=np.zeros(3)), r"'slope': \(3,\).*'regression'.*: \(2,\)"),
            (lambda: starting(level=0), r"'regression' at \['level'\] has type int64; .* floats"),
            (lambda: starting(slope=[0.0, np.nan]), r"at \['slope'\] has entries that are not"),
            (lambda: run(init=failing), "'regression' fails .RuntimeError: no more memory.; it"),
            (lambda: run(init=lambda key: {}), "model of task 'regression' has no parameters"),
            (lambda: run(init=lambda key: jnp.log(jnp.zeros(2))), "entries that are not finite"),
            (lambda: run(init=longer), r"model of shapes .*\(5,\).* batch of shapes \(\(2, 2\)"),
            (lambda: run(batch_size=6), r"batches of 6 .* client 0 of task 'regression' has 5"),
        ],
    ),
    (
        ImportanceError,
        [
            (lambda: problem([0.5, 0.5]), "importance has 2 entries, but .* 3 clients"),
            (lambda: problem([0.5, 0.6, -0.1]), "importance of client 2 is -0.1"),
        ],
    ),
    (
        OptionError,
        [
            (lambda: linear.heterogeneous_regression(n_clients=0), "n_clients is 0"),
            (lambda: softmax_task("t", [(EYE, [0, 0])], 1), "n_classes is 1"),
            (lambda: linear.heterogeneous_classification(flipped=1.5), "flipped is 1.5; .* most 1"),
            (lambda: optimum(deviations(1.0), [1.0], radius=0), "radius is 0.0"),
            (lambda: iid(3, 5, rng=rng()), "n_examples is 3; it must be at least 5"),
            (lambda: digits(FIVES, 5, 5), "is 5; it must be a multiple of classes_per_client = 2"),
            (lambda: mixes([1, 2], 1, 1, np.nan), "concentration is nan"),
            *(
                (lambda make=make, size=size: make(size), "step is .*; it must be finite and above")
                for make in (constant, training.inverse_root, training.cosine)
                for size in (0.0, -1.0, np.nan, np.inf)
            ),
            (lambda: training.decaying(0.1, 0.0), "halved_after is 0.0; it must be finite"),
            (lambda: training.Ball(0.0), "radius is 0.0; it must be finite and above 0"),
            (lambda: training.Box(1.0, -1.0), "a box from .* is empty; low must be below"),
            (lambda: constant("fast"), "step must be a number, found 'fast'"),
            (lambda: stepped(lambda t, h: np.linspace(0, 1, t)), "of round 1 is 0.0; in float64"),
            (lambda: stepped(lambda t, h: [0.1, -0.1, 0.1]), "step size of round 2 is -0.1"),
            (lambda: stepped(lambda t, h: [0.1, 0.1, np.nan]), "step size of round 3 is nan"),
            (lambda: stepped(lambda t, h: [0.1]), "gives 1 step sizes for 3 rounds"),
            (lambda: stepped(lambda t, h: "fast"), "schedule must be a sequence of numbers"),
            (lambda: options(rounds=2.5), "rounds must be an integer, found 2.5"),
            (lambda: options(step=0.1), "step is 0.1; give a schedule, such as constant"),
            (lambda: options(record_every=0), "record_every is 0"),
            (lambda: options(seeds=(1, 2, 1)), r"seeds are \[1, 2, 1\]; give at least one"),
            (lambda: options(seeds=5), "seeds are 5; give a sequence of integers"),
            (lambda: options(seeds=(-1,)), "seed is -1; .* at least 0 and at most 2147483647"),
        ],
    ),
    (
        CohortError,
        [
            (lambda: run(cohorts=[[0], [1, 1]]), "seed 3 has client 1 twice in round 2"),
            (lambda: run(cohorts=[[0], [4]]), "seed 3 has client 4, but clients run from 0 to 3"),
            (lambda: run(cohorts=[[0.0], [1.0]]), "members of type float64, not client indices"),
            (lambda: run(cohorts=np.array([[2, 0], [1, 1]])), "client 1 twice in round 2"),
            (lambda: run(cohorts=[[0]]), "availability of seed 3 gave 1 cohorts for 2 rounds"),
            (lambda: run(cohorts=[[], []]), "seed 3 has no participants in any of 2 rounds"),
            (lambda: run(cohorts=[[[0]], [[1]]]), "one per round: they have 2 axes"),
            (lambda: asked(lambda t, one: ([0, 0], [0.5, 0.5])), "'given' has client 0 twice in"),
            (lambda: asked(lambda t, one: ([], [])), "rule 'given' asks no client in any of 2"),
            (lambda: at_once([[0, 1], [2, 2]], EYE), "has client 2 twice in round 2"),
            # Joined, both are 0, 0, 1, 2: one and three members here, two and two there.
            (lambda: at_once([[0, 0], [1, 2]], EYE, [[0], [0, 1, 2]]), "client 0 twice in round 1"),
        ],
    ),
    (
        RuleError,
        [
            (lambda: asked(lambda t, one: (one, [np.nan] * 4)), "client 0 the weight nan in round"),
            (lambda: asked(lambda t, one: (one, [0.5] * (5 - t))), "3 weights .* to 4 members"),
            (lambda: asked(lambda t, one: (one, np.ones((4, 1)))), "they have 2 axes"),
            (lambda: at_once([[0, 1]] * 2, [[0.5, 0.5]]), "'table' chose 1 times in 2 rounds"),
            (lambda: at_once([0, 1], [0.5, 0.5]), "members that .* are not flat arrays, one per"),
            (lambda: choosing(None), "'importance-average' must choose a list of Asked"),
            (lambda: run(rule="fedavg"), "the rule is 'fedavg'; give a Rule"),
            (lambda: run(rule=rules.mifa(np.full(9, 1 / 9))), "for 9 clients, .*n' has 4"),
        ],
    ),
]


@pytest.mark.parametrize(
    ("error", "call", "match"), [(error, *row) for error, rows in REFUSALS for row in rows]
)
def test_what_training_cannot_use_is_refused_with_its_name(error, call, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize(("batch_size", "counts"), [(None, None), (2, None), (2, [5, 4, 3, 5])])
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (errors, r"task 'regression' returns .*shape=\(\d,\).*; it must return one float"),
        (lambda params, batch: errors(params, batch).mean(keepdims=True), r"shape=\(1,\)"),
        (lambda params, batch: 3, r"dtype=int\d\d.*; it must return one float"),
        (
            lambda params, batch: params["width"],
            "'regression' fails on a model .*KeyError: 'width'",
        ),
    ],
)
def test_a_loss_that_is_no_scalar_is_refused_before_training(loss, message, batch_size, counts):
    with pytest.raises(TaskError, match=message) as caught:
        run(loss=loss, batch_size=batch_size, counts=counts)
    assert isinstance(caught.value.__cause__, KeyError) == ("KeyError" in message)


def test_a_weight_too_large_for_single_precision_is_refused():
    single = dataclasses.replace(small.TASK, data=np.zeros((4, 1, 1), np.float32))
    rule = small.asking(lambda number, cohort: (cohort, np.full(4, 1e39)))
    with pytest.raises(RuleError, match="weight 1e.39 in round 1; it must be finite in float32"):
        train(Problem(single, small.P, small.everybody), rule, small.options(2, batch_size=None))


@pytest.mark.parametrize(
    ("aggregate", "cause", "hint"),
    [
        (lambda model, state, report: model, None, "two things"),
        (lambda model, state, report: (model, None), None, "None.; it must return two things"),
        (lambda model, state, report: ({"w": model}, state), None, "returned .{'w'"),
        (lambda model, state, report: (model, report.losses * 2), TypeError, "needs_losses=True"),
        (lambda model, state, report: (model["width"], state), KeyError, "'level'.*'width'"),
        (
            lambda model, state, report: (model if model["level"].sum() > 0 else None, state),
            *(jax.errors.TracerBoolConversionError, "jnp.where instead of if"),
        ),
    ],
)
def test_an_aggregate_that_fails_or_returns_something_else_is_refused(aggregate, cause, hint):
    with pytest.raises(RuleError, match=hint) as caught:
        run(rule=dataclasses.replace(small.SHARES, aggregate=aggregate))
    assert isinstance(caught.value.__cause__, cause or type(None))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda params: jax.tree.map(lambda leaf: leaf[0], params),
        lambda params: params | {"level": params["level"][:1]},
        lambda params: params["slope"],
    ],
)
def test_the_objective_refuses_models_without_seeds_or_of_other_shapes(wrong):
    params = run().params
    assert training.objective(small.PROBLEM, params).shape == (len(small.SEEDS),)
    with pytest.raises(TaskError, match="leading axis of seeds, .* models have shapes"):
        training.objective(small.PROBLEM, wrong(params))
