"""What all online aligners have in common: accounts, checks, and states that resume exactly."""

import json
from functools import partial

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import CohortError, FileFormatError, ImportanceError, OptionError
from sealing import sealed

MAKERS = {
    "plain": partial(fa.OnlineAligner, step=0.41, bound=2.3),
    "unbounded": partial(fa.OnlineAligner, step=0.41, bound=None),
    "soft": partial(fa.SoftOnlineAligner, step=0.41, softness=0.37),
    "by importance": partial(fa.SoftOnlineAligner, step=0.41, softness=0.37, around="importance"),
}
HISTORY = ("importance", "owed", "realised", "effective_potentials")
ROUNDING = 1e-11
"""Room for a few hundred additions to sums of the order of a hundred."""


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
    if isinstance(aligner, fa.OnlineAligner):
        aligner.leave([3])
    aligner.join(0.07)
    if way == "file":
        aligner.save(tmp_path / "aligner.json")
        other = type(aligner).load(tmp_path / "aligner.json")
    else:
        state = json.loads(json.dumps(aligner.state_dict()))
        other = type(aligner).from_state(state | {"of another": "checkpoint"})
    for cohort in (*cohorts[247:], [20, 0], [20]):
        np.testing.assert_array_equal(other.observe(cohort), aligner.observe(cohort))
    assert other.state_dict() == aligner.state_dict()


def test_a_state_is_a_copy(make):
    aligner = make([0.5, 0.5])
    state = aligner.state_dict()
    aligner.observe([0])
    type(aligner).from_state(state).observe([1])
    assert state["given"] == [0.0, 0.0]


def test_a_state_that_lacks_something_is_refused_with_its_source(make):
    aligner = make([0.5, 0.5])
    state = aligner.state_dict()
    with pytest.raises(FileFormatError, match="the state was not written by save: rounds is -1"):
        aligner.from_state(state | {"rounds": -1})
    del state["given"]
    with pytest.raises(FileFormatError, match="the checkpoint has no 'given'"):
        aligner.from_state(state, source="the checkpoint")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"given": "absent"}, "has no 'given'"),
        ({"importance": "absent"}, "has no 'importance'"),
        ({"given": None}, "given must be a sequence of numbers"),
        ({"given": [0.5]}, "given has 1 entries, but there are 2 clients"),
        ({"given": [0.0, "high"]}, "given must be a sequence of numbers"),
        ({"given": ["0", "0"]}, "given must be a sequence of numbers"),
        ({"given": [1.5, -0.5]}, "given must be at least 0 and sum to 1"),
        ({"owed": [0.0, float("nan")]}, "NaN is not a JSON number"),
        ({"owed": [0.5, 0.6]}, "owed must be at least 0 and sum to"),
        ({"importance": [0.5, 0.6]}, "importance sums to 1.1"),
        ({"step": None}, "step must be a number, found None"),
        ({"step": "0.1"}, "step must be a number, found '0.1'"),
        ({"rounds": 1.5}, "rounds must be an integer"),
        ({"rounds": True}, "rounds must be a number, found True"),
        ({"rounds": 2}, "given must be at least 0 and sum to 2"),
        ({"rounds": 10**200}, "rounds is .* at most 9007199254740992"),
        ({"clients": {"a": 0, "b": 1}}, "clients must be a list of names"),
        ({"clients": ["a", "a"]}, "'a' more than once"),
    ],
)
def test_a_wrong_value_in_a_file_is_refused(make, tmp_path, changes, message):
    path = tmp_path / "aligner.json"
    aligner = make([0.5, 0.5])
    aligner.observe([0])
    aligner.save(path)
    content = json.loads(path.read_text()) | changes
    path.write_text(sealed({k: v for k, v in content.items() if v != "absent"}))
    with pytest.raises(FileFormatError, match=message):
        aligner.load(path)


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
    if hasattr(aligner, method):
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
        ([1.0], "given has 1 weights for a cohort of 2"),
        ([0.5, 0.4], "given weight sums to 0.9"),
        ([1.5, -0.5], "given weight of member 1 is -0.5"),
        ([np.nan, 1.0], "given weight of member 0 is nan"),
        ([[0.5, 0.5]], "given weight must have one dimension"),
        ("half", "given weight must be a sequence of numbers"),
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
    by_importance = aligner.state_dict().get("around") == "importance"
    around = np.log(aligner.importance) if by_importance else 0.0
    learnt = aligner.effective_potentials - around
    np.testing.assert_allclose(learnt, [1.0, -1.0, 0.5, 0.5, 0.5], rtol=1e-14)
    aligner.observe([2, 4])
    assert aligner.n_clients == 5


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
        other.observe(cohort, given=other.weights(cohort))
    for name in HISTORY:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=ROUNDING)


def test_what_it_hands_out_cannot_change_it(make):
    aligner = make([0.5, 0.5])
    aligner.observe([0])
    before = aligner.state_dict()
    for name in HISTORY:
        getattr(aligner, name)[:] = 7.0
    assert aligner.state_dict() == before
