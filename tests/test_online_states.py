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
        around = str(rng.choice(["equal", "importance"]))
        return fa.SoftOnlineAligner(
            importance, softness=softness, step=step, around=around, potentials=potentials
        )
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


@pytest.mark.parametrize("soft", [False, True], ids=["plain", "soft"])
def test_a_state_in_arrays_is_the_state_in_lists(soft):
    rng = np.random.default_rng(3)
    aligner = made(rng, soft)
    for _ in range(10):
        aligner.observe(rng.permutation(aligner.n_clients)[:1])
    state = aligner.state_dict(arrays=True)
    again = type(aligner).from_state(state)
    assert text_of(again) == text_of(aligner)
    for name, value in aligner.state_dict().items():
        if isinstance(value, list):
            assert state[name].tolist() == value
            with pytest.raises(FedavotError, match=name):
                type(aligner).from_state(state | {name: state[name].astype(str)})


@pytest.mark.parametrize("soft", [False, True], ids=["plain", "soft"])
def test_an_importance_that_changes_is_owed_from_then_on(soft):
    options = {"softness": 0.5} if soft else {}
    kind = fa.SoftOnlineAligner if soft else fa.OnlineAligner
    first, second = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    aligner = kind(first, step=0.5, potentials=np.log(first), **options)
    for cohort in ([0, 1], [2], [1, 2]):
        aligner.observe(cohort)
    before, owed = aligner.weights([0, 1, 2]), aligner.owed
    change = np.log(second / first)
    aligner.reweigh(second, added=change)
    shifted = before * np.exp(change)
    assert aligner.weights([0, 1, 2]) == pytest.approx(shifted / shifted.sum())
    assert aligner.importance == pytest.approx(second)
    for _ in range(4):
        aligner.observe([0, 1, 2])
    assert aligner.owed == pytest.approx(owed + 4 * second)


def test_an_importance_for_other_clients_is_refused():
    aligner = fa.OnlineAligner([0.5, 0.5], step=0.5)
    with pytest.raises(FedavotError, match="3 entries.*2 clients"):
        aligner.reweigh([0.2, 0.3, 0.5])
