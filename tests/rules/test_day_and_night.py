"""A federation by day and by night: what a newcomer would try first.

20 of 80 clients can take part by day only. They hold the digits 0 to 4 and have half of the
importance; the others hold 5 to 9. The step is constant, and the rounds come in order.
"""

import numpy as np
import pytest

from fedavot import rules, training
from fedavot.training.mnist import load, standardised
from fedavot.training.tasks.classifiers import softmax_task

N, BY_DAY, EXAMPLES = 80, 20, 20
DAY = 24
"""Rounds of a day, of which the first half is light."""
PART = 0.55
"""Of the plain average's loss, which the steady rule stays below."""
IMPORTANCE = np.where(np.arange(N) < BY_DAY, 0.5 / BY_DAY, 0.5 / (N - BY_DAY))


def cohorts(rng, rounds):
    """Draw eight of those who are there."""
    everybody = np.arange(N)
    return [
        rng.choice(everybody if number % DAY < DAY / 2 else everybody[BY_DAY:], 8, replace=False)
        for number in range(rounds)
    ]


@pytest.fixture(scope="module")
def problem():
    digits, rng = load(), np.random.default_rng(0)
    # Every other pixel is enough to tell digits apart, in a quarter of the time.
    images = standardised(digits.images).reshape(-1, 28, 28)[:, ::2, ::2].reshape(-1, 14 * 14)
    labels = np.asarray(digits.labels)
    low, high = (rng.permutation(np.flatnonzero(kind)) for kind in (labels < 5, labels >= 5))
    own = np.concatenate([low[: BY_DAY * EXAMPLES], high[: (N - BY_DAY) * EXAMPLES]])
    parts = own.reshape(N, EXAMPLES)
    task = softmax_task("day and night", [(images[part], labels[part]) for part in parts])
    return training.Problem(task, IMPORTANCE, cohorts)


def test_the_steady_rule_halves_the_loss_of_the_plain_average(problem):
    plan = training.Training(
        10 * DAY,
        training.constant(0.1),
        local_steps=3,
        batch_size=10,
        seeds=(0, 1),
        record_every=4,
    )
    ours, plain = (
        training.train(problem, rule, plan).tail_loss(4 * DAY)
        for rule in (rules.steady(IMPORTANCE), rules.fedavg())
    )
    assert (ours < PART * plain).all()
