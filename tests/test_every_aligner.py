"""With softness and without, online aligners count, check, and resume exactly."""

import json
from functools import partial

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import (
    CohortError,
    FedavotError,
    FileFormatError,
    ImportanceError,
    OptionError,
)

MAKERS = {
    "exact": partial(fa.OnlineAligner, softness=0, step=0.41, around="equal", bound=2.3),
    "unbounded": partial(fa.OnlineAligner, softness=0, step=0.41, bound=None),
    "soft": partial(fa.OnlineAligner, softness=0.37, step=0.41, around="equal"),
    "by importance": partial(fa.OnlineAligner, softness=0.37, step=0.41),
    "by default": fa.OnlineAligner,
}
HISTORY = ("importance", "owed", "realised", "potentials", "effective_potentials")
ROUNDING = 1e-11
"""Room for a few hundred additions to sums of the order of a hundred."""
AMOUNTS = [5e-324, 2.3e-308, 1e-200, 1e-9, 0.1, 3.0, 1e9, 1e200, 1e300, 1.1e300, 1e305, 1.7e308]
SHARES = [0.0, 5e-324, 1e-17, 0.1, 0.3, 0.49, 0.999999999999]


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def make(request):
    """Return a function that makes an aligner from an importance."""
    return request.param


def linear_importance(n_clients):
    shares = np.arange(n_clients, 0, -1.0)
    return shares / shares.sum()


def drawn(seed, n_clients, rounds):
    """Return cohorts in which some clients are rare, and hence away for long."""
    law = fa.IndependentClients(np.geomspace(0.9, 0.005, n_clients))
    return law.sample(np.random.default_rng(seed), rounds)


@pytest.mark.parametrize("way", ["file", "state"])
def test_a_resumed_aligner_goes_on_bit_for_bit(make, tmp_path, way):
    aligner = make(linear_importance(20), potentials=linear_importance(20))
    cohorts = drawn(1, 20, 500)
    for cohort in cohorts[:247]:
        aligner.observe(cohort)
    aligner.leave([3])
    aligner.join(0.07)
    if way == "file":
        aligner.save(tmp_path / "aligner.json")
        other = fa.OnlineAligner.load(tmp_path / "aligner.json")
    else:
        state = json.loads(json.dumps(aligner.state_dict()))
        other = fa.OnlineAligner.from_state(state | {"of another": "checkpoint"})
    for cohort in (*cohorts[247:], [20, 0], [20]):
        np.testing.assert_array_equal(other.observe(cohort), aligner.observe(cohort))
    assert other.state_dict() == aligner.state_dict()


def test_a_state_is_a_copy(make):
    aligner = make([0.5, 0.5])
    state = aligner.state_dict()
    aligner.observe([0])
    fa.OnlineAligner.from_state(state).observe([1])
    assert state["totals"] == [0.0, 0.0]


def test_a_state_that_lacks_something_is_refused_with_its_source(make):
    aligner = make([0.5, 0.5])
    state = aligner.state_dict()
    with pytest.raises(FileFormatError, match="the state was not written by save: rounds is -1"):
        aligner.from_state(state | {"rounds": -1})
    del state["totals"]
    with pytest.raises(FileFormatError, match="the checkpoint has no 'totals'"):
        aligner.from_state(state, source="the checkpoint")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"totals": [0.5]}, "totals has 1 entries, but there are 2 clients"),
        ({"totals": [0.0, "high"]}, "totals must be a sequence of numbers"),
        ({"importance": [0.5, 0.6]}, "importance sums to 1.1"),
        ({"step": "high"}, "step must be a number, found 'high'"),
        ({"softness": -1}, "softness is -1.0"),
        ({"rounds": 1.5}, "rounds must be an integer"),
        ({"clients": ["a", "a"]}, "'a' more than once"),
    ],
)
def test_a_state_that_is_wrong_is_refused(make, changes, message):
    state = make([0.5, 0.5]).state_dict()
    with pytest.raises(FileFormatError, match=message):
        fa.OnlineAligner.from_state(state | changes)


@pytest.mark.parametrize("method", ["weights", "observe", "leave"])
@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        ([], "the cohort is empty"),
        ([0, 2], "has client 2, but clients run from 0 to 1"),
        ([-1], "has client -1"),
        ([1, 1], "has client 1 more than once"),
        ([0.5], "names or integer indices"),
    ],
)
def test_a_bad_cohort_is_refused_and_changes_nothing(make, method, cohort, message):
    aligner = make([0.5, 0.5])
    before = aligner.state_dict()
    with pytest.raises(CohortError, match=message):
        getattr(aligner, method)(cohort)
    assert aligner.state_dict() == before


@pytest.mark.parametrize(
    ("importance", "message"),
    [
        ([0.5, -0.5, 1.0], "importance of client 1 is -0.5"),
        ([0.5, np.nan], "importance of client 1 is nan"),
        ([0.5, None], "client 1 is None"),
        ([0.5, 0.4], "importance sums to 0.9"),
        ([], "importance has no entries"),
    ],
)
def test_bad_importance_is_refused(make, importance, message):
    with pytest.raises(ImportanceError, match=message):
        make(importance)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0}, "step is 0.0; it must be finite and above 0"),
        ({"step": -1}, "step is -1.0"),
        ({"step": np.nan}, "step is nan"),
        ({"step": np.inf}, "step is inf"),
        ({"potentials": [0.0]}, "potentials has 1 entries, but there are 2 clients"),
        ({"potentials": [0.0, np.inf]}, "potentials of client 1 is inf"),
    ],
)
def test_bad_options_are_refused(make, options, message):
    with pytest.raises(OptionError, match=message):
        make([0.5, 0.5], **options)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([1.0], "there are 1 weights for a cohort of 2"),
        ([0.5, 0.4], "weight sums to 0.9"),
        ([1.5, -0.5], "weight of member 1 is -0.5"),
        ([np.nan, 1.0], "weight of member 0 is nan"),
        ([[0.5, 0.5]], "weight must have one dimension"),
        ("half", "weight must be a sequence of numbers"),
    ],
)
def test_bad_weights_given_are_refused_and_change_nothing(make, shares, message):
    aligner = make([0.25, 0.25, 0.5])
    before = aligner.state_dict()
    with pytest.raises(CohortError, match=message):
        aligner.observe([0, 2], shares)
    assert aligner.state_dict() == before


@pytest.mark.parametrize("shares", [1.0, [0.5, 0.5], [-0.1], [np.nan], np.inf])
def test_shares_that_leave_nothing_to_the_others_cannot_join(make, shares):
    aligner = make([0.5, 0.5])
    with pytest.raises(ImportanceError, match="importance of the new clients is"):
        aligner.join(shares)
    assert aligner.n_clients == 2


@pytest.mark.parametrize("start", [np.inf, np.nan, 10**400])
def test_clients_refused_at_joining_leave_the_aligner_as_it_was(make, start):
    aligner = make([0.5, 0.5])
    aligner.observe([0])
    before = aligner.state_dict()
    with pytest.raises(OptionError, match="potentials"):
        aligner.join([0.1, 0.1], [0.0, start])
    assert aligner.state_dict() == before


def test_joining_clients_take_their_share_and_the_mean_potential(make):
    aligner = make([0.75, 0.25], potentials=[1.0, -1.0])
    assert aligner.join(0.2).tolist() == [2]
    assert aligner.join([0.25, 0.25]).tolist() == [3, 4]
    np.testing.assert_allclose(aligner.importance, [0.3, 0.1, 0.1, 0.25, 0.25], rtol=1e-14)
    np.testing.assert_allclose(aligner.potentials, [1.0, -1.0, 0.5, 0.5, 0.5], rtol=1e-14)
    aligner.observe([2, 4])
    assert aligner.n_clients == 5


def amounts(rng, count):
    return (rng.choice(AMOUNTS, count) * rng.choice([-1, 1], count)).tolist()


def drawn_aligner(rng, soft):
    """Return an aligner of a few clients, with numbers of any size."""
    count = int(rng.integers(1, 7))
    importance = rng.dirichlet(np.full(count, rng.choice([0.01, 0.1, 1.0])))
    potentials = amounts(rng, count) if rng.random() < 0.5 else None
    return fa.OnlineAligner(
        importance,
        softness=float(rng.choice(AMOUNTS)) if soft else 0.0,
        step=float(rng.choice(AMOUNTS)),
        around=str(rng.choice(["equal", "importance"])),
        potentials=potentials,
        bound=None if rng.random() < 0.3 else float(rng.choice(AMOUNTS)),
    )


def disturb(aligner, rng):
    """Call one of the methods that change an aligner; some of the calls are refused."""
    cohort = rng.permutation(aligner.n_clients)[: rng.integers(1, aligner.n_clients + 1)]
    kind = rng.random()
    if kind < 0.7:
        weights = rng.dirichlet(np.full(cohort.size, 0.1)) if rng.random() < 0.3 else None
        aligner.observe(cohort, weights)
    elif kind < 0.85:
        count = int(rng.integers(0, 3))
        potentials = amounts(rng, count) if rng.random() < 0.7 else None
        aligner.join(rng.choice(SHARES, count), potentials)
    else:
        aligner.leave(cohort)


def text_of(aligner):
    return json.dumps(aligner.state_dict(), allow_nan=False)


@pytest.mark.parametrize("soft", [False, True], ids=["exact", "soft"])
@pytest.mark.parametrize("seed", range(60))
def test_every_state_that_calls_lead_to_is_read_back(seed, soft):
    rng = np.random.default_rng(seed)
    aligner = drawn_aligner(rng, soft)
    for _ in range(25):
        before = text_of(aligner)
        try:
            disturb(aligner, rng)
        except FedavotError:
            assert text_of(aligner) == before
        weights = aligner.weights(rng.permutation(aligner.n_clients))
        assert (weights >= 0).all()
        assert abs(weights.sum() - 1) <= 1e-9
        again = fa.OnlineAligner.from_state(json.loads(text_of(aligner)))
        assert text_of(again) == text_of(aligner)
        if rng.random() < 0.3:
            aligner = again


def test_a_state_in_arrays_is_the_state_in_lists(make):
    aligner = make(linear_importance(5))
    for cohort in drawn(3, 5, 10):
        aligner.observe(cohort)
    state = aligner.state_dict(arrays=True)
    assert text_of(fa.OnlineAligner.from_state(state)) == text_of(aligner)
    for name, value in aligner.state_dict().items():
        if isinstance(value, list):
            assert state[name].tolist() == value


def test_an_importance_that_changes_is_owed_from_then_on(make):
    first, second = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    aligner = make(first)
    for cohort in ([0, 1], [2], [1, 2]):
        aligner.observe(cohort)
    before, potentials, owed = aligner.weights([0, 1, 2]), aligner.potentials, aligner.owed
    around = aligner.effective_potentials - potentials
    added = np.array([0.5, 0.0, -0.5])
    aligner.reweigh(second, added=added)
    # What weights are around moves by itself, with the importance.
    changed = aligner.effective_potentials - aligner.potentials - around
    odds = before * np.exp(added + changed)
    assert aligner.weights([0, 1, 2]) == pytest.approx(odds / odds.sum())
    assert aligner.potentials == pytest.approx(potentials + added)
    assert aligner.importance == pytest.approx(second)
    for _ in range(4):
        aligner.observe([0, 1, 2])
    assert aligner.owed == pytest.approx(owed + 4 * second)


def test_an_importance_for_other_clients_is_refused(make):
    with pytest.raises(ImportanceError, match=r"3 entries.*2 clients"):
        make([0.5, 0.5]).reweigh([0.2, 0.3, 0.5])


def test_around_the_importance_means_from_potentials_log_p():
    shares = linear_importance(8)
    options = {"softness": 0, "step": 0.7}
    around = fa.OnlineAligner(shares, **options)
    started = fa.OnlineAligner(shares, around="equal", potentials=np.log(shares), **options)
    for cohort in drawn(6, 8, 300):
        np.testing.assert_allclose(around.observe(cohort), started.observe(cohort), atol=ROUNDING)


def test_the_default_step_is_larger_without_softness():
    shares = [0.5, 0.3, 0.2]
    for options, step in (({}, 1.0), ({"softness": 0}, 2.0), ({"softness": 0.1}, 1.0)):
        one, other = (fa.OnlineAligner(shares, **options, step=size) for size in (None, step))
        assert one.state_dict() == other.state_dict()


def test_weighing_does_not_learn_and_follows_the_order_of_the_cohort(make):
    aligner = make(linear_importance(12))
    for cohort in drawn(4, 12, 20):
        aligner.observe(cohort)
    before = aligner.state_dict()
    one_way, other_way = aligner.weights([0, 2, 3]), aligner.weights([3, 0, 2])
    np.testing.assert_allclose(one_way, other_way[[1, 2, 0]], rtol=1e-15)
    assert aligner.state_dict() == before


def test_clients_of_no_importance_get_weight_only_among_themselves(make):
    aligner = make([0.5, 0.5, 0.0, 0.0], potentials=[0.0, 0.0, 50.0, 1.0])
    assert aligner.weights([0, 2]).tolist() == [1.0, 0.0]
    assert aligner.weights([2, 3]).tolist() == [0.5, 0.5]
    for cohort in ([2, 3], [0, 2], [3]):
        aligner.observe(cohort)
    assert np.isfinite(aligner.effective_potentials).all()
    assert aligner.weights([1, 3]).tolist() == [1.0, 0.0]


def test_what_is_owed_and_given_is_counted(make):
    importance = linear_importance(12)
    aligner = make(importance)
    assert aligner.realised.tolist() == [0.0] * 12
    total = np.zeros(12)
    for cohort in drawn(5, 12, 50):
        total[cohort] += aligner.observe(cohort)
    assert aligner.rounds == 50
    np.testing.assert_allclose(aligner.realised, total / 50, rtol=1e-12)
    np.testing.assert_allclose(aligner.owed, 50 * importance, rtol=1e-12)


def test_weights_given_by_others_are_those_it_learns_from(make):
    aligner = make([0.5, 0.5])
    assert aligner.observe([0, 1], [0.9, 0.1]).tolist() == [0.9, 0.1]
    assert aligner.realised.tolist() == [0.9, 0.1]
    assert aligner.weights([0, 1])[0] < 0.5


def test_its_own_weights_given_back_change_nothing(make):
    one, other = make(linear_importance(12)), make(linear_importance(12))
    for cohort in drawn(13, 12, 300):
        one.observe(cohort)
        other.observe(cohort, weights=other.weights(cohort))
    for name in HISTORY:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=ROUNDING)


def test_what_it_hands_out_cannot_change_it(make):
    aligner = make([0.5, 0.5])
    aligner.observe([0])
    before = aligner.state_dict()
    for name in HISTORY:
        getattr(aligner, name)[:] = 7.0
    assert aligner.state_dict() == before
