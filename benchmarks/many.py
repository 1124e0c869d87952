"""Training with many seeds or many clients: ``python -m benchmarks.many [clients]``.

On whatever JAX runs on, usually a GPU:

* the paper's regression, 1,000 seeds of 2,000 rounds in one program, from drawing the cohorts to
  the last record; three of the seeds are checked by a NumPy loop that shares no code with the
  engine;
* the steady rule on 1,000,000 clients, 1,000 of them in a round, softmax regression. The first
  rounds are checked by a NumPy loop over the clients;
* rounds of uneven size, in rounds per second against rounds that are all as large as the largest.

It is no part of ``make bench``.
"""

import sys
import time
from typing import Any

import jax
import numpy as np

from fedavot import rules
from fedavot._checks import Floats
from fedavot.experiments.paper import regression_code
from fedavot.rules import Known, build
from fedavot.rules.ours import learner
from fedavot.training import Problem, Run, Task, Training, constant, train
from fedavot.training.tasks.classifiers import heterogeneous_softmax
from fedavot.training.tasks.linear import iid_regression

SEEDS, ROUNDS = 1_000, 2_000
N_CLIENTS, COHORT, EXAMPLES, FEATURES, CLASSES = 1_000_000, 1_000, 10, 64, 10
STEP, LOCAL_STEPS = 0.1, 3
CHECKED = 4
"""Rounds of the large federation that are repeated client by client."""


def main() -> None:
    """Print one line per measurement."""
    n_clients = int(float(sys.argv[1])) if len(sys.argv) > 1 else N_CLIENTS
    print(jax.devices()[0].device_kind, flush=True)
    many_seeds()
    many_clients(n_clients)
    uneven_rounds()


def many_seeds() -> None:
    """Time the paper's regression, and check some of its seeds."""
    task, given = iid_regression(), regression_code()
    problem = Problem(task, given[0], given[1].sample)
    rule = build("fedavot", Known(*given))
    training = Training(
        ROUNDS, constant(0.005), local_steps=5, seeds=range(SEEDS), record_every=100
    )
    for attempt in ("with", "without"):
        begin = time.perf_counter()
        run = train(problem, rule, training)
        seconds = time.perf_counter() - begin
        print(f"{SEEDS:,} seeds of {ROUNDS:,} rounds: {seconds:.1f} s {attempt} compilation")
    errors = [_error(task, rule, given, run, seed) for seed in (0, 1, SEEDS - 1)]
    print(f"    largest relative error of a model: {max(errors):.1e}", flush=True)


def _error(task: Task, rule: Any, given: Any, run: Run, seed: int) -> float:
    features, targets = (np.asarray(leaf, dtype=np.float64) for leaf in task.data)
    cohorts = given[1].sample(np.random.default_rng([seed, 0]), ROUNDS)
    model = np.zeros(features.shape[2])
    for members, weights in rule.choose(cohorts, np.random.default_rng([seed, 1])):
        ends = np.tile(model, (len(members), 1))
        for _ in range(5):
            misses = np.einsum("knd,kd->kn", features[members], ends) - targets[members]
            slopes = np.einsum("knd,kn->kd", features[members], misses)
            ends -= 0.005 * 2.0 * slopes / features.shape[1]
        model = model + weights @ (ends - model)
    found = np.asarray(jax.tree.leaves(run.params)[0][seed]).ravel()
    return float(np.abs(found - model).max() / np.abs(model).max())


def federation(n_clients: int) -> tuple[Task, Floats]:
    """Return softmax regression of clients that differ, and how much each counts."""
    task = heterogeneous_softmax(
        n_clients=n_clients, n_features=FEATURES, n_examples=EXAMPLES, n_classes=CLASSES
    )
    rng = np.random.default_rng(1)
    return task, rng.permutation(np.exp(np.linspace(-1.0, 1.0, n_clients)))


def many_clients(n_clients: int) -> None:
    """Time the steady rule, and check its first rounds."""
    begin = time.perf_counter()
    task, importance = federation(n_clients)
    importance = importance / importance.sum()
    print(f"{n_clients:,} clients: data in {time.perf_counter() - begin:.0f} s", flush=True)

    def cohorts(rng: np.random.Generator, rounds: int) -> Any:
        size = min(COHORT, n_clients)
        return [rng.choice(n_clients, size, replace=False, shuffle=False) for _ in range(rounds)]

    problem = Problem(task, importance, cohorts)
    rule = rules.steady(importance)
    for rounds in (500, 500, 1_000):
        training = Training(rounds, constant(STEP), local_steps=LOCAL_STEPS, record_every=rounds)
        begin = time.perf_counter()
        run = train(problem, rule, training)
        seconds = time.perf_counter() - begin
        print(
            f"    {rounds:,} rounds: {rounds / seconds:.0f} per second, loss {run.losses[0, -1]}",
            flush=True,
        )
    short = Training(CHECKED, constant(STEP), local_steps=LOCAL_STEPS, record_every=CHECKED)
    found = train(problem, rules.steady(importance, trust=1.0), short).params
    wanted = by_client(task, importance, cohorts(np.random.default_rng([0, 0]), CHECKED))
    error = max(
        float(np.abs(np.asarray(found[name])[0] - model).max() / np.abs(model).max())
        for name, model in zip(("weights", "bias"), wanted, strict=True)
    )
    print(f"    largest relative error after {CHECKED} rounds: {error:.1e}", flush=True)


def by_client(task: Task, importance: Floats, cohorts: Any) -> list[Floats]:
    """Return the model after the steady rule with full trust, in NumPy, client by client."""
    model = [np.zeros((FEATURES, CLASSES)), np.zeros(CLASSES)]
    total = [np.zeros_like(array) for array in model]
    aligner, known = learner(importance), {}
    features, labels = (np.asarray(leaf) for leaf in task.data)
    for cohort in cohorts:
        change = [array.copy() for array in total]
        for client, weight in zip(cohort.tolist(), aligner.observe(cohort), strict=True):
            targets = np.eye(CLASSES)[labels[client]]
            ends = model
            for _ in range(LOCAL_STEPS):
                scores = features[client] @ ends[0] + ends[1]
                chances = np.exp(scores - scores.max(axis=1, keepdims=True))
                misses = (chances / chances.sum(axis=1, keepdims=True) - targets) / EXAMPLES
                slopes = [features[client].T @ misses, misses.sum(axis=0)]
                ends = [array - STEP * slope for array, slope in zip(ends, slopes, strict=True)]
            for part, array in enumerate(model):
                new = (ends[part] - array) / (STEP * LOCAL_STEPS)
                news = new - known.get((client, part), 0.0)
                change[part] += weight * news
                total[part] = total[part] + importance[client] * news
                known[client, part] = new
        model = [
            array + STEP * LOCAL_STEPS * step for array, step in zip(model, change, strict=True)
        ]
    return model


def uneven_rounds() -> None:
    """Time rounds of which most are a tenth of the largest."""
    rng = np.random.default_rng(3)
    task, importance = federation(2_000)
    importance = importance / importance.sum()
    rounds = 1_000
    sizes = {"even": np.full(rounds, 500), "uneven": np.where(np.arange(rounds) % 50, 50, 500)}
    rates = {}
    for name, lengths in sizes.items():
        cohorts = [np.sort(rng.choice(2_000, size, replace=False)) for size in lengths]
        problem = Problem(task, importance, lambda rng, rounds, drawn=cohorts: drawn)
        training = Training(rounds, constant(STEP), local_steps=20, record_every=rounds)
        train(problem, rules.fedavg(), training)
        begin = time.perf_counter()
        train(problem, rules.fedavg(), training)
        rates[name] = rounds / (time.perf_counter() - begin)
    told = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    print(f"rounds of up to 500 clients, per second: {told}")


if __name__ == "__main__":
    main()
