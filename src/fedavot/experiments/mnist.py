"""The paper's MNIST experiment: softmax regression, 100 clients, two per round.

* ``text``: as the paper describes it. Two digits per client, p ∝ exp(−i/10): out of reach of
  uniform pairs, but not of a server that chooses which clients to ask.
* ``code``: as in the authors' script. An IID split, p ∝ (101 − i)^4.
* ``feasible``: two digits per client, p ∝ 101 − i, which uniform pairs attain.

The server may ask any client, so all are available to ``fedavot-select``.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedavot._checks import Integers
from fedavot.experiments.paper import (
    COHORT_SIZE,
    N_CLIENTS,
    Given,
    feasible,
    mnist_code,
    mnist_text,
)
from fedavot.experiments.study import Instance, Setting
from fedavot.laws.cohorts import Cohorts
from fedavot.rules import Known, Rule, build
from fedavot.training import Problem, Task, Training, constant
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import iid, two_digits
from fedavot.training.tasks.classifiers import softmax_task

RULES = (
    *("full", "fedavot-steady", "fedavot", "fedavot-soft", "fedavot-online"),
    *("fedavg", "importance-average", "self-normalised-ipw", "horvitz-thompson", "fedavg-k"),
)
RECORD_EVERY = 20
CAPTIONS = {
    "text": "two digits per client, p out of reach",
    "code": "IID, p out of reach",
    "feasible": "two digits per client, p in reach",
}


def settings(
    seeds: Sequence[int], *, quick: bool = False, data_dir: Path | None = None
) -> list[Setting]:
    """Return the settings text, code and feasible; the digits are split alike for every seed."""
    rounds = 200 if quick else 2000
    training = Training(rounds, constant(0.1), local_steps=3, record_every=RECORD_EVERY)
    digits, rng = load(data_dir), np.random.default_rng
    images = standardised(digits.images)

    def task(name: str, parts: Sequence[Integers]) -> Task:
        return softmax_task(name, [(images[part], digits.labels[part]) for part in parts])

    parts = two_digits(digits.labels, N_CLIENTS, examples_per_client=50, rng=rng(0))
    two = task("MNIST, two digits per client", parts)
    drawn = rng(0).permutation(digits.labels.size)[: 30 * N_CLIENTS]
    even = task("MNIST, IID", [drawn[part] for part in iid(drawn.size, N_CLIENTS, rng=rng(1))])
    chosen = (
        ("text", mnist_text(), two),
        ("code", mnist_code(), even),
        ("feasible", feasible(), two),
    )
    return [
        Setting(
            name,
            (Instance(Problem(task, given[0], given[1].sample), tuple(seeds)),),
            rules_for(given),
            training,
            tail=rounds // 4,
            inclusion=given[1].inclusion(),
            caption=CAPTIONS[name],
        )
        for name, given, task in chosen
    ]


def rules_for(given: Given) -> tuple[Rule, ...]:
    """Return the rules compared, including server selection among all clients."""
    known = Known(*given)
    clients = np.arange(N_CLIENTS)
    everyone = Known(given[0], Cohorts(clients[None]))
    rule = build("fedavot-select", everyone, cohort_size=COHORT_SIZE)
    selected = dataclasses.replace(
        rule, choose=lambda cohorts, rng: rule.choose([clients] * len(cohorts), rng)
    )
    return (*(build(name, known) for name in RULES), selected)
