"""Whatever public calls do to an online aligner, its state loads and it goes on alike."""

import json

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import FedavotError

AMOUNTS = [5e-324, 2.3e-308, 1e-200, 1e-9, 0.1, 3.0, 1e9, 1e200, 1e300, 1.1e300, 1e305, 1.7e308]
SHARES = [0.0, 5e-324, 1e-17, 0.1, 0.3, 0.49, 0.999999999999]
ROUNDING = 1e-9


def amounts(rng, count):
    return (rng.choice(AMOUNTS, count) * rng.choice([-1, 1], count)).tolist()


def made(rng, soft):
    """Return an aligner of a few clients, with numbers of any size."""
    count = int(rng.integers(1, 7))
    importance = rng.dirichlet(np.full(count, rng.choice([0.01, 0.1, 1.0])))
    potentials = amounts(rng, count) if rng.random() < 0.5 else None
    step = float(rng.choice(AMOUNTS))
    if soft:
        softness = float(rng.choice(AMOUNTS))
        return fa.SoftOnlineAligner(importance, softness=softness, step=step, potentials=potentials)
    bound = None if rng.random() < 0.3 else float(rng.choice(AMOUNTS))
    return fa.OnlineAligner(importance, step=step, potentials=potentials, bound=bound)


def disturb(aligner, rng, soft):
    """Call one of the methods that change an aligner; some of the calls are refused."""
    cohort = rng.permutation(aligner.n_clients)[: rng.integers(1, aligner.n_clients + 1)]
    kind = rng.random()
    if kind < 0.7:
        given = rng.dirichlet(np.full(cohort.size, 0.1)) if rng.random() < 0.3 else None
        aligner.observe(cohort, given)
    elif kind < 0.85:
        count = int(rng.integers(0, 3))
        potentials = amounts(rng, count) if rng.random() < 0.7 else None
        aligner.join(rng.choice(SHARES, count), potentials)
    elif not soft:
        aligner.leave(cohort)


def text_of(aligner):
    return json.dumps(aligner.state_dict(), allow_nan=False)


@pytest.mark.parametrize("soft", [False, True], ids=["plain", "soft"])
@pytest.mark.parametrize("seed", range(60))
def test_every_state_that_calls_lead_to_is_read_back(seed, soft):
    rng = np.random.default_rng(seed)
    aligner = made(rng, soft)
    for _ in range(25):
        before = text_of(aligner)
        try:
            disturb(aligner, rng, soft)
        except FedavotError:
            assert text_of(aligner) == before
        weights = aligner.weights(rng.permutation(aligner.n_clients))
        assert (weights >= 0).all()
        assert abs(weights.sum() - 1) <= ROUNDING
        again = type(aligner).from_state(json.loads(text_of(aligner)))
        assert text_of(again) == text_of(aligner)
        if rng.random() < 0.3:
            aligner = again
