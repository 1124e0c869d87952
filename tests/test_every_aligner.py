"""With softness and without, online aligners count, check, and resume exactly."""

import json
from functools import partial

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import CohortError, FedavotError, FileFormatError, ImportanceError, OptionError

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
IMPORTANCE = np.arange(12, 0, -1.0) / 78


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def make(request):
    """Return a function that makes an aligner from an importance."""
    return request.param


def drawn(seed, rounds, n_clients=12):
    """Return cohorts in which some clients are rare, and hence away for long."""
    law = fa.IndependentClients(np.geomspace(0.9, 0.005, n_clients))
    return law.sample(np.random.default_rng(seed), rounds)


def text_of(aligner):
    return json.dumps(aligner.state_dict(), allow_nan=False)


@pytest.mark.parametrize("way", ["file", "lists", "arrays"])
def test_a_resumed_aligner_goes_on_bit_for_bit(make, tmp_path, way):
    aligner, cohorts = make(IMPORTANCE, potentials=IMPORTANCE), drawn(1, 500)
    for cohort in cohorts[:247]:
        aligner.observe(cohort)
    aligner.leave([3])
    aligner.join(0.07)
    if way == "file":
        aligner.save(tmp_path / "aligner.json")
        other = fa.OnlineAligner.load(tmp_path / "aligner.json")
    else:
        state = aligner.state_dict(arrays=way == "arrays")
        other = fa.OnlineAligner.from_state(state | {"of another": "checkpoint"})
    for cohort in (*cohorts[247:], [12, 0], [12]):
        np.testing.assert_array_equal(other.observe(cohort), aligner.observe(cohort))
    assert other.state_dict() == aligner.state_dict()


def test_what_it_hands_out_cannot_change_it(make):
    aligner = make([0.5, 0.5])
    aligner.observe([0])
    before, state = text_of(aligner), aligner.state_dict(arrays=True)
    for array in (
        *(getattr(aligner, name) for name in HISTORY),
        state["totals"],
        state["potentials"],
    ):
        array[:] = 7.0
    assert text_of(aligner) == before


def amounts(rng, count):
    return (rng.choice(AMOUNTS, count) * rng.choice([-1, 1], count)).tolist()


def drawn_aligner(rng, soft):
    """Return an aligner of a few clients, with numbers of any size."""
    count = int(rng.integers(1, 7))
    return fa.OnlineAligner(
        rng.dirichlet(np.full(count, rng.choice([0.01, 0.1, 1.0]))),
        softness=float(rng.choice(AMOUNTS)) if soft else 0.0,
        step=float(rng.choice(AMOUNTS)),
        around=str(rng.choice(["equal", "importance"])),
        potentials=amounts(rng, count) if rng.random() < 0.5 else None,
        bound=None if rng.random() < 0.3 else float(rng.choice(AMOUNTS)),
    )


def disturb(aligner, rng):
    """Call one of the methods that change an aligner; some of the calls are refused."""
    cohort = rng.permutation(aligner.n_clients)[: rng.integers(1, aligner.n_clients + 1)]
    kind, count = rng.random(), int(rng.integers(0, 3))
    if kind < 0.7:
        weights = rng.dirichlet(np.full(cohort.size, 0.1)) if rng.random() < 0.3 else None
        aligner.observe(cohort, weights)
    elif kind < 0.85:
        potentials = amounts(rng, count) if rng.random() < 0.7 else None
        aligner.join(rng.choice(SHARES, count), potentials)
    else:
        aligner.leave(cohort)


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
        assert np.isfinite([aligner.potentials, aligner.effective_potentials]).all()
        again = fa.OnlineAligner.from_state(json.loads(text_of(aligner)))
        assert text_of(again) == text_of(aligner)
        aligner = again if rng.random() < 0.3 else aligner


def test_an_importance_that_changes_is_owed_from_then_on(make):
    first, second, added = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.5, 0.0, -0.5]])
    aligner = make(first)
    for cohort in ([0, 1], [2], [1, 2]):
        aligner.observe(cohort)
    before, potentials, owed = aligner.weights([0, 1, 2]), aligner.potentials, aligner.owed
    around = aligner.effective_potentials - potentials
    aligner.reweigh(second, added=added)
    # What weights are around moves by itself, with the importance.
    changed = aligner.effective_potentials - aligner.potentials - around
    odds = before * np.exp(added + changed)
    assert aligner.weights([0, 1, 2]) == pytest.approx(odds / odds.sum())
    assert aligner.potentials == pytest.approx(potentials + added)
    for _ in range(4):
        aligner.observe([0, 1, 2])
    assert aligner.owed == pytest.approx(owed + 4 * second)


def test_around_the_importance_means_from_potentials_log_p():
    around = fa.OnlineAligner(IMPORTANCE, softness=0)
    started = fa.OnlineAligner(
        IMPORTANCE, softness=0, around="equal", potentials=np.log(IMPORTANCE)
    )
    for cohort in drawn(6, 300):
        np.testing.assert_allclose(around.observe(cohort), started.observe(cohort), atol=ROUNDING)


def test_the_default_step_is_larger_without_softness():
    for options, step in (({}, 1.0), ({"softness": 0}, 2.0), ({"softness": 0.1}, 1.0)):
        one, other = (fa.OnlineAligner([0.5, 0.5], **options, step=size) for size in (None, step))
        assert one.state_dict() == other.state_dict()


def test_clients_who_leave_get_weight_only_among_themselves(make):
    aligner = make([0.5, 0.25, 0.125, 0.125])
    aligner.leave([0, 3])
    np.testing.assert_allclose(aligner.importance, [0, 2 / 3, 1 / 3, 0], rtol=1e-15)
    assert aligner.weights([0, 1, 3])[1] == 1.0
    assert aligner.weights([0, 3]).tolist() == [0.5, 0.5]
    aligner.leave([0])
    np.testing.assert_allclose(aligner.importance, [0, 2 / 3, 1 / 3, 0], rtol=1e-15)


def test_joining_clients_take_their_share_and_the_mean_potential(make):
    aligner = make([0.75, 0.25], potentials=[1.0, -1.0])
    assert aligner.join(0.2).tolist() == [2]
    assert aligner.join([0.25, 0.25]).tolist() == [3, 4]
    np.testing.assert_allclose(aligner.importance, [0.3, 0.1, 0.1, 0.25, 0.25], rtol=1e-14)
    np.testing.assert_allclose(aligner.potentials, [1.0, -1.0, 0.5, 0.5, 0.5], rtol=1e-14)
    aligner.observe([2, 4])
    assert aligner.n_clients == 5


def test_weights_are_a_softmax_that_follows_the_order_of_the_cohort(make):
    aligner = make(IMPORTANCE)
    for cohort in drawn(4, 20):
        aligner.observe(cohort)
    before, odds = text_of(aligner), np.exp(aligner.effective_potentials[[3, 0, 2]])
    weights = aligner.weights([3, 0, 2])
    np.testing.assert_allclose(weights, odds / odds.sum(), rtol=1e-14)
    np.testing.assert_allclose(aligner.weights([0, 2, 3]), weights[[1, 2, 0]], rtol=1e-15)
    assert text_of(aligner) == before


def test_clients_of_no_importance_get_weight_only_among_themselves(make):
    aligner = make([0.5, 0.5, 0.0, 0.0], potentials=[0.0, 0.0, 50.0, 1.0])
    assert aligner.weights([0, 2]).tolist() == [1.0, 0.0]
    assert aligner.weights([2, 3]).tolist() == [0.5, 0.5]
    for cohort in ([2, 3], [0, 2], [3]):
        aligner.observe(cohort)
    assert np.isfinite(aligner.effective_potentials).all()
    assert aligner.weights([1, 3]).tolist() == [1.0, 0.0]


def test_what_is_owed_and_given_is_counted(make):
    aligner, total = make(IMPORTANCE), np.zeros(12)
    assert aligner.realised.tolist() == [0.0] * 12
    for cohort in drawn(5, 50):
        total[cohort] += aligner.observe(cohort)
    assert aligner.rounds == 50
    np.testing.assert_allclose(aligner.realised, total / 50, rtol=1e-12)
    np.testing.assert_allclose(aligner.owed, 50 * IMPORTANCE, rtol=1e-12)


def test_weights_given_by_others_are_those_it_learns_from(make):
    aligner = make([0.5, 0.5])
    assert aligner.observe([0, 1], [0.9, 0.1]).tolist() == [0.9, 0.1]
    assert aligner.realised.tolist() == [0.9, 0.1]
    assert aligner.weights([0, 1])[0] < 0.5


def test_its_own_weights_given_back_change_nothing(make):
    one, other = make(IMPORTANCE), make(IMPORTANCE)
    for cohort in drawn(13, 300):
        one.observe(cohort)
        other.observe(cohort, weights=other.weights(cohort))
    for name in HISTORY:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=ROUNDING)


@pytest.mark.parametrize(
    ("importance", "options", "error", "message"),
    [
        ([0.5, -0.5, 1.0], {}, ImportanceError, "importance of client 1 is -0.5"),
        ([0.5, np.nan], {}, ImportanceError, "importance of client 1 is nan"),
        ([], {}, ImportanceError, "importance has no entries"),
        ([1.0], {"step": np.nan}, OptionError, "step is nan"),
        ([1.0], {"softness": -1}, OptionError, "softness is -1.0; .* at least 0"),
        ([1.0], {"bound": 0}, OptionError, "bound is 0.0"),
        ([1.0], {"potentials": [0.0, 0.0]}, OptionError, "potentials has 2 entries.* 1 clients"),
        ([1.0], {"potentials": [np.inf]}, OptionError, "potentials of client 0 is inf"),
    ],
)
def test_a_bad_aligner_is_refused(importance, options, error, message):
    with pytest.raises(error, match=message):
        fa.OnlineAligner(importance, **options)


@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        *(
            (method, [cohort], CohortError, message)
            for method in ("weights", "observe", "leave")
            for cohort, message in (
                ([], "the cohort is empty"),
                ([0, 3], "has client 3, but clients run from 0 to 2"),
                ([-1], "has client -1"),
                ([1, 1], "has client 1 more than once"),
                ([0.5], "names or integer indices"),
            )
        ),
        ("leave", [[0, 1]], ImportanceError, r"clients \[0, 1\] \(2 in all\)"),
        ("observe", [[0, 2], [1.0]], CohortError, "there are 1 weights for a cohort of 2"),
        ("observe", [[0, 2], [1.5, -0.5]], CohortError, "weight of member 1 is -0.5"),
        ("observe", [[0, 2], [np.nan, 1.0]], CohortError, "weight of member 0 is nan"),
        ("observe", [[0, 2], "half"], CohortError, "weight must be a sequence of numbers"),
        *(
            ("join", [shares], ImportanceError, "importance of the new clients is")
            for shares in ([0.5, 0.5], [-0.1], [np.nan])
        ),
        *(
            ("join", [[0.1, 0.1], [0.0, start]], OptionError, "potentials")
            for start in (np.nan, "high")
        ),
        ("reweigh", [[0.5, 0.5]], ImportanceError, "2 entries.*3 clients"),
    ],
)
def test_a_bad_call_is_refused_and_changes_nothing(make, method, arguments, error, message):
    aligner = make([0.5, 0.5, 0.0])
    aligner.observe([0])
    before = text_of(aligner)
    with pytest.raises(error, match=message):
        getattr(aligner, method)(*arguments)
    assert text_of(aligner) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"totals": "absent"}, "the checkpoint has no 'totals'"),
        ({"totals": [0.5]}, "totals has 1 entries, but there are 2 clients"),
        ({"rounds": 2}, "owed must be at least 0 and sum to the number of rounds"),
        ({"totals": [-0.5, 0.5]}, "totals must be at least 0"),
        ({"importance": [0.5, 0.6]}, "the checkpoint was not written by save: importance sums to"),
        ({"step": "high"}, "step must be a number, found 'high'"),
        ({"clients": ["a", "a"]}, "'a' more than once"),
    ],
)
def test_a_wrong_state_is_refused_with_its_source(make, changes, message):
    state = make([0.5, 0.5]).state_dict() | changes
    with pytest.raises(FileFormatError, match=message):
        fa.OnlineAligner.from_state(
            {name: value for name, value in state.items() if value != "absent"},
            source="the checkpoint",
        )
