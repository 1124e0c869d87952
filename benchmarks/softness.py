"""How soft should learnt weights be? Training with them, beside rules that keep no updates either.

    PYTHONPATH=src python -m benchmarks.softness --phones ../shared/data/flash300
    PYTHONPATH=src python -m benchmarks.softness --seeds 1000 1001 1002 1003 1004

Federations of softmax regression on digits, rounds in order, constant steps. Weights are those of
`OnlineAligner` around the importance at the step that `fedavot.flower` has by default. The loss
is the objective over the last fifth of the rounds; printed is its ratio to the plain average's at
the same steps, with the standard error of the paired ratio over seeds. The default was chosen on
the seeds of the second line, and is reported on those of the first. Needs the extra experiments.
"""

import argparse
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.experiments import rivals
from fedavot.experiments.phones import read
from fedavot.online import STEP, OnlineAligner
from fedavot.rules import Known, Rule, build
from fedavot.rules._rule import Asked, Cohorts, add_updates
from fedavot.training import Problem, Task, Training, constant
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import dirichlet
from fedavot.training.sweep import Steps, sweep
from fedavot.training.tasks.classifiers import softmax_task

SOFTNESS = (0.5, 1.0, 2.0, 4.0)
LOCAL = (0.03, 0.3)
"""Local steps, each with and without momentum at the server."""
MOMENTUM = (2.0, 0.9)
"""The server's step and momentum in FedAvgM."""
ROUNDS, RECORDS = 400, 20
NOISE = 0.2
"""Part of the labels that are drawn at random, so that no model fits all of them."""


@dataclass(frozen=True, eq=False)
class Federation:
    """A name, a problem, and how much clients count in the plain average."""

    name: str
    problem: Problem
    plain: Floats | None = None
    """Equal if None."""


def soft(importance: Floats, softness: float) -> Rule:
    """Return weights that are learnt softly around the importance."""

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        aligner = OnlineAligner(importance, softness=softness)
        return [
            Asked(cohort, aligner.observe(cohort) if cohort.size else np.zeros(0))
            for cohort in cohorts
        ]

    return Rule(f"softness {softness:g}", "importance", "", choose, add_updates)


def by(amounts: Floats, name: str) -> Rule:
    """Return weights in proportion to amounts."""

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [Asked(one, amounts[one] / (amounts[one].sum() or 1.0)) for one in cohorts]

    return Rule(name, "importance", "", choose, add_updates)


def federations(log: Path | None) -> Iterator[Federation]:
    """Yield the rivals' kinds of availability and importance, the phones', and four more."""
    every, mixes = _clients(100, 30, concentration=0.1)
    rates = mixes @ np.linspace(0.01, 0.11, 10)
    for pattern in rivals.patterns(rates, mixes.argmax(axis=1)):
        for name, importance in rivals.importances(rates).items():
            problem = Problem(every, importance, pattern.sample)
            yield Federation(f"{pattern.name}, {name} p", problem)
    if log is not None:
        phones = read(log)
        own, _ = _clients(phones.n_clients, 15, concentration=0.1)
        yield Federation("phones, skewed p", Problem(own, phones.skewed, phones.sample))
    tasks = {kind: _clients(40, 40, concentration=kind)[0] for kind in (0.1, 100.0)}
    even, halves = np.full(40, 1 / 40), np.arange(40) % 2
    uneven = np.random.default_rng(7).uniform(0.1, 0.6, 40)
    many = np.where(np.arange(40) < 8, 4.0, 1.0)
    rare = np.where(many > 1, 0.1, 0.35)
    yield Federation("clients alike", _drawn(tasks[100.0], even, lambda n: uneven))
    yield Federation("stay and leave", Problem(tasks[0.1], even, _sticky(uneven, 15)))
    yield Federation("two halves by turns", _drawn(tasks[0.1], even, lambda n: _turns(n, halves)))
    yield Federation(
        "by examples, who has many is rare",
        _drawn(tasks[0.1], many / many.sum(), lambda n: rare),
        plain=many,
    )


def _drawn(task: Task, importance: Floats, rates: Callable[[int], Floats]) -> Problem:
    """Return a problem with independent clients, whose rates may change from round to round."""

    def sample(rng: np.random.Generator, rounds: int) -> list[Integers]:
        there = rng.random((rounds, importance.size)) < rates(rounds)
        return [np.flatnonzero(row) for row in there]

    return Problem(task, importance, sample)


def _sticky(rates: Floats, length: float) -> Callable[..., list[Integers]]:
    """Return cohorts of clients that stay for ``length`` rounds on average."""

    def sample(rng: np.random.Generator, rounds: int) -> list[Integers]:
        there = [rng.random(rates.size) < rates]
        comes = rates / (1 - rates) / length
        for draw in rng.random((rounds - 1, rates.size)):
            there.append(np.where(there[-1], draw >= 1 / length, draw < comes))
        return [np.flatnonzero(row) for row in there]

    return sample


def _turns(rounds: int, group: Integers) -> Floats:
    turn = np.arange(rounds)[:, None] // 12 % 2
    return np.where(turn == group, 0.3, 0.01)


@functools.cache
def _clients(n_clients: int, n_examples: int, *, concentration: float) -> tuple[Task, Floats]:
    """Return softmax regression on small images, and each client's mix of classes."""
    digits, rng = load(None), np.random.default_rng(1)
    parts = dirichlet(
        digits.labels,
        n_clients,
        concentration=concentration,
        examples_per_client=n_examples,
        rng=rng,
    )
    noisy = rng.random(digits.labels.size) < NOISE
    labels = np.where(noisy, rng.integers(0, 10, noisy.size), digits.labels)
    pooled = digits.images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    images = standardised(pooled)
    task = softmax_task("digits", [(images[part], labels[part]) for part in parts])
    mixes = np.array([np.bincount(digits.labels[part], minlength=10) for part in parts])
    return task, mixes / n_examples


def losses(federation: Federation, rule: Rule, seeds: tuple[int, ...]) -> Floats:
    """Return the loss of every choice of steps and seed, shape (n_choices, n_seeds)."""
    every = ROUNDS // RECORDS
    training = Training(
        *(ROUNDS, constant(0.1)),
        local_steps=3,
        batch_size=10,
        seeds=seeds,
        record_every=every,
    )
    steps = [Steps(constant(step), *server) for server in ((1.0, 0.0), MOMENTUM) for step in LOCAL]
    found = sweep(federation.problem, rule, training, steps)
    return np.asarray(found[:, :, -RECORDS // 5 :].mean(axis=2))


def main() -> None:
    """Print a line per federation and rule: the ratio at each choice of steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--phones", type=Path, help="folder with the tables of the phones")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2000, 2001, 2002, 2003, 2004])
    parser.add_argument("--softness", type=float, nargs="+", default=SOFTNESS)
    parser.add_argument("--only", default="", help="part of a federation's name")
    options = parser.parse_args()
    for federation in federations(options.phones):
        if options.only not in federation.name:
            continue
        shares = federation.problem.shares
        counted = np.ones(shares.size) if federation.plain is None else federation.plain
        plain = losses(federation, by(counted, "plain"), tuple(options.seeds))
        found = " | ".join(f"{loss:.4f}" for loss in plain.mean(axis=1))
        print(f"| {federation.name} | plain average, loss | {found} |", flush=True)
        rules = [by(shares, "by importance"), build("fedavot-online", Known(shares), step=STEP)]
        for rule in [*rules, *(soft(shares, softness) for softness in options.softness)]:
            ratio = losses(federation, rule, tuple(options.seeds)) / plain
            error = ratio.std(axis=1, ddof=1) / np.sqrt(ratio.shape[1])
            pairs = zip(ratio.mean(axis=1), error, strict=True)
            cells = " | ".join(f"{mean:.3f} ± {one:.3f}" for mean, one in pairs)
            print(f"| {federation.name} | {rule.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
