"""P6 and P7: rounds of federated training per second, every model checked.

Everybody plays the same cohorts with the same weights. Frameworks play the first of the rounds
only, and are checked against the reference after as many; seconds are scaled to all rounds.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import federated, numpy_rounds, scans
from benchmarks.federated import TOLERANCE, FederatedProblem, Model
from benchmarks.frameworks.process import Framework
from benchmarks.measure import Contender, Role, Say, race, seconds_of
from benchmarks.outcome import Outcome, Row
from fedavot.rules._rule import Asked, Rule, add_updates
from fedavot.training import Problem, Run, Task, Training, constant, train

_ROUND_S = 0.5
_FEW = 100
"""Rounds that a framework plays in a run."""
_BARE = "JAX scan, "


@dataclass(frozen=True, eq=False)
class Trained:
    """A contender's model, and after how many rounds."""

    model: Model
    rounds: int


@dataclass(frozen=True)
class _Way:
    """A way to train by a framework: its own algorithm and loop, or less around the training.

    The requirement is measured against the former; the latter, a reference, is for honesty.
    """

    framework: str
    name: str
    module: str
    function: str
    role: Role = "peer"


_WAYS = (
    _Way("FedJAX", "FedJAX, fed_avg", "with_fedjax", "prepare"),
    _Way("FedJAX", "FedJAX, for_each_client only", "with_fedjax", "prepare_bare", "reference"),
    _Way("Flower", "Flower, Server.fit", "with_flower", "prepare"),
    _Way("Flower", "Flower, strategy only", "with_flower", "prepare_without_server", "reference"),
    _Way("pfl", "pfl, PyTorch model", "with_pfl", "prepare"),
    _Way("pfl", "pfl, NumPy model", "with_pfl", "prepare_with_numpy", "reference"),
)


def regression(repeat: int, say: Say) -> Outcome:
    """P6: a hundred features, mean square."""
    outcome = Outcome("P6: 2,000 rounds, 2 of 100 clients, regression, 100 features, 5 local steps")
    return _suite(outcome, federated.regression(), 30.0, repeat, say)


def softmax(repeat: int, say: Say) -> Outcome:
    """P7: 784 features in ten classes, mean cross entropy."""
    outcome = Outcome("P7: 2,000 rounds, 2 of 100 clients, softmax, 784 × 10 + 10, 3 local steps")
    return _suite(outcome, federated.softmax(), 4.0, repeat, say)


def _suite(
    outcome: Outcome, problem: FederatedProblem, times: float, repeat: int, say: Say
) -> Outcome:
    title = outcome.title[:2]
    outcome.rounds, outcome.checked = problem.rounds, "error"
    say(f"{title}: starting frameworks, and the reference")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "problem.npz"
        problem.first(_FEW).save(path)
        frameworks = {
            way: stack.enter_context(Framework(way.module, way.function, path)) for way in _WAYS
        }
        models = federated.reference(problem, {_FEW, problem.rounds})
        ours, first_calls = _ours(problem)
        runners = [ours, *_bare(problem), _plain(problem)]
        ready = {way for way, framework in frameworks.items() if framework.ready()}
        runners += [_peer(way, frameworks[way]) for way in _WAYS if way in ready]
        race(title, runners, repeat, say)
        for runner in runners:
            _tabulate(outcome, runner, ours, models)
        for way, framework in frameworks.items():
            _annotate(outcome, way, framework)
    _require(outcome, times)
    outcome.observations.append(f"the first call, compilation included: {first_calls[0]:.2f} s")
    return outcome


def _require(outcome: Outcome, times: float) -> None:
    """Compare ours with the best bare scan, and with every framework's own round loop."""
    bare = [row for row in outcome.rows if row.contender.startswith(_BARE)]
    best = _fastest(bare)
    outcome.at_least(f"of the rate of the best bare scan, {best.contender}", best.ratio, 0.8)
    for framework in dict.fromkeys(way.framework for way in _WAYS):
        names = {way.name for way in _WAYS if way.framework == framework}
        ways = [row for row in outcome.rows if row.contender in names]
        fastest = _fastest([row for row in ways if row.role == "peer"])
        if fastest is None:
            outcome.at_least(f"times the rate of {framework}", None, times)
            continue
        outcome.at_least(f"times the rate of {fastest.contender}", fastest.ratio, times)
        if fastest.seconds < times * best.seconds:
            outcome.observations.append(
                f"the best bare scan too has less, {fastest.seconds / best.seconds:.3g} times the "
                f"rate of {fastest.contender}"
            )


def _fastest(rows: list[Row]) -> Row | None:
    """Return the fastest of those whose model is right, if there is one."""
    right = [row for row in rows if row.ok]
    return min(right, key=lambda row: row.seconds, default=None)


def _tabulate(
    outcome: Outcome, runner: Contender, ours: Contender, models: dict[int, Model]
) -> None:
    """Check a contender's model, and add its row."""
    trained: Trained | None = runner.answer
    if trained is None:
        return
    error = federated.error_of(trained.model, models[trained.rounds])
    ok = error <= TOLERANCE
    if runner.role == "ours":
        outcome.checks[f"{runner.name}: the model is the reference's"] = ok
    seconds = runner.seconds * outcome.rounds / trained.rounds
    outcome.rows.append(
        Row(runner.name, runner.role, seconds, seconds / ours.seconds, error, ok, "")
    )


def _annotate(outcome: Outcome, way: _Way, framework: Framework) -> None:
    """Say which version ran, or add a row that says why it did not."""
    for place, row in enumerate(outcome.rows):
        if row.contender == way.name:
            outcome.rows[place] = Row(**vars(row) | {"note": f"version {framework.version}"})
            return
    outcome.rows.append(Row(way.name, way.role, None, None, None, None, framework.trouble))


def _ours(problem: FederatedProblem) -> tuple[Contender, list[float]]:
    """Return the library, called as a user calls it, and where its first call's time will be."""
    loss, targets = scans.square, problem.targets
    if problem.n_classes:
        loss, targets = scans.cross_entropy, problem.one_hot
    data = problem.features, targets
    task = Task("benchmark", data, loss, lambda key: problem.start())
    shares = np.full(task.n_clients, 1.0 / task.n_clients)
    given = Problem(task, shares, lambda rng, rounds: problem.members)
    rule = Rule(
        "given",
        "the weights",
        "nothing",
        choose=lambda cohorts, rng: Asked(problem.members, problem.weights),
        aggregate=add_updates,
    )
    training = Training(
        rounds=problem.rounds,
        step=constant(problem.step),
        local_steps=problem.local_steps,
        record_every=problem.rounds,
    )

    def read(run: Run) -> Trained:
        return Trained(tuple(leaf[0] for leaf in run.params), run.rounds)

    ours = Contender(
        "fedavot train",
        lambda _: train(given, rule, training),
        "ours",
        read=read,
        round_s=_ROUND_S,
    )
    first_calls: list[float] = []
    ours.warm_up = lambda: first_calls.append(seconds_of(ours))
    return ours, first_calls


def _bare(problem: FederatedProblem) -> list[Contender]:
    """Return the scans written by hand."""

    def contender(name: str, solve: Any, read: Any) -> Contender:
        return Contender(
            f"{_BARE}{name}",
            lambda _: solve(),
            read=lambda found: Trained(tuple(map(np.asarray, read(found))), problem.rounds),
            warm_up=solve,
            round_s=_ROUND_S,
        )

    variants = scans.variants(problem)
    return [contender(name, solve, read) for name, (solve, read) in variants.items()]


def _plain(problem: FederatedProblem) -> Contender:
    """Return the NumPy loop."""
    return Contender(
        "NumPy loop",
        lambda _: numpy_rounds.train(problem),
        "reference",
        read=lambda model: Trained(model, problem.rounds),
        warm_up=lambda: numpy_rounds.train(problem.first(_FEW)),
        round_s=_ROUND_S,
    )


def _peer(way: _Way, framework: Framework) -> Contender:
    """Return a framework that is ready."""

    def read(_: None) -> Trained | None:
        model = framework.model()
        return None if model is None else Trained(model, _FEW)

    solve = partial(_run, framework)
    return Contender(way.name, solve, way.role, read=read, round_s=_ROUND_S)


def _run(framework: Framework, _: None) -> None:
    framework.run()
