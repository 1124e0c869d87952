"""Bad input gets one error of the library's own tree that names the offending value.

Warnings are errors here, so that a NumPy warning on the way to the error fails the test as well.
"""

import numpy as np
import pytest

import fedavot as fa
from fedavot import errors

LAW = fa.UniformCohorts(3, 2)
PAIRS = fa.Cohorts([[0, 1], [1, 2]])
ALIGNED = fa.align([0.4, 0.3, 0.3], PAIRS)


def each(*cases):
    return pytest.mark.parametrize(("value", "match"), cases)


def test_every_error_is_of_the_one_tree():
    found = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)}
    found.remove(errors.FedavotWarning)  # shown, not raised
    assert len(found) > 5
    assert all(issubclass(error, errors.FedavotError) for error in found)


@pytest.mark.parametrize("question", [fa.align, fa.certify])
@each(
    ([0.6, -0.1, 0.5], r"client 1 is -0\.1; it must be finite and at least 0"),
    ([0.5, 0.5, np.nan], r"client 2 is nan"),
    ([np.inf, 0.5, 0.5], r"client 0 is inf"),
    ([0.5, 0.5, 0.1], r"sums to 1\.1, not 1"),
    ([0.5, 0.5, 1e-7], r"sums to 1\.0000001"),
    ([0.0, 0.0, 0.0], r"0 for all of 3 entries; at least one must be above 0"),
    ([1e308, 1e308, 0.0], r"importance of client 0 is 1e\+308, more than 1"),
    ([0.5, 0.5], r"2 entries, but there are 3 clients; .*n_clients"),
    ([], r"has no entries"),
    ([[0.5, 0.25, 0.25]], r"one dimension, found shape \(1, 3\)"),
    (1.0, r"one dimension, found shape \(\)"),
    (["a", "b", "c"], r"sequence of numbers: .*'a'"),
    ([0.4, "0.3", 0.3], r"client 1 is '0\.3'"),
    ([0.5, 0.5, None], r"client 2 is None"),
    ([[0.5], 0.25, 0.25], r"sequence of numbers"),
    ({"a": 1.0}, r"by client name, but the clients have no names"),
)
def test_importance_must_be_a_distribution_over_the_clients(question, value, match):
    with pytest.raises(errors.ImportanceError, match=match):
        question(value, LAW)


@pytest.mark.parametrize("question", [fa.align, fa.certify])
def test_a_class_is_no_law(question):
    with pytest.raises(errors.LawError, match="class UniformCohorts; pass an instance"):
        question([0.5, 0.5], fa.UniformCohorts)


@pytest.mark.parametrize("slack", [1e-9, -1e-9])
def test_rounding_in_the_sum_of_the_importance_is_divided_out(slack):
    wanted = fa.align(np.array([0.4, 0.3, 0.3]) * (1.0 + slack), LAW)
    assert wanted.importance.sum() == pytest.approx(1.0, abs=1e-15)


@each(
    ([0.5, 1.5], r"client 1 is 1\.5; it must be in \[0, 1\]"),
    ([-0.1, 0.5], r"client 0 is -0\.1"),
    ([0.5, 0.2, np.nan], r"client 2 is nan"),
    ([np.inf], r"client 0 is inf"),
    ([0.0, 0.0], r"no client is ever available"),
    ([], r"no client is ever available"),
    ([[0.5, 0.5]], r"one dimension, found shape \(1, 2\)"),
    (["often"], r"sequence of numbers: .*'often'"),
)
def test_independent_probabilities_lie_between_zero_and_one(value, match):
    with pytest.raises(errors.LawError, match=match):
        fa.IndependentClients(value)


@each(
    ([0.5, 0.6], r"sums to 1\.1, not 1"),
    ([1.5, -0.5], r"cohort 1 is -0\.5"),
    ([np.nan, 1.0], r"cohort 0 is nan"),
    ([1.0, np.inf], r"cohort 1 is inf"),
    ([1e308, 1e308], r"cohort 0 is 1e\+308, more than 1"),
    ([1.0], r"1 probabilities for 2 cohorts"),
    ([0.2, 0.3, 0.5], r"3 probabilities for 2 cohorts"),
    ([[0.5, 0.5]], r"one dimension"),
    (["a", "b"], r"sequence of numbers"),
)
def test_probabilities_of_cohorts_are_a_distribution_over_them(value, match):
    with pytest.raises(errors.LawError, match=match):
        fa.Cohorts([[0, 1], [1, 2]], value)


@each(
    ([], r"no cohorts were given"),
    (np.empty((0, 2), dtype=np.int64), r"no cohorts were given"),
    ([[0, 1], [], [2]], r"cohort 1 is empty"),
    (np.empty((3, 0), dtype=np.int64), r"cohort 0 is empty"),
    ([[0, 1], [2, 1, 2]], r"cohort 1 has client 2 more than once"),
    ([[0, 0]], r"cohort 0 has client 0 more than once"),
    ([[0], [1, -1]], r"cohort 1 has client -1"),
    ([[0, 1.0]], r"integer client indices, found float64"),
    (np.array([[0.0, 1.0]]), r"integer client indices, found float64"),
    ([["a", "b"]], r"integer client indices, found <U1"),
    ([[0, None]], r"integer client indices, found object"),
    ([[2**70, 0]], r"integer client indices, found object"),
    ([0, 1], r"cohort 0 is not a sequence of client indices"),
    (np.zeros((2, 2, 2), dtype=np.int64), r"cohort 0 is not a sequence"),
    ([[0, 1], [1, [0, 2]]], r"cohort 1 is not a sequence of client indices"),
    ([[0, 2**31]], r"client index 2147483648 is too large"),
    ({(0, 1): 0.9, (2,): 0.1}, r"mapping, .* list\(given.values\(\)\)"),
)
def test_cohorts_hold_distinct_known_clients(value, match):
    with pytest.raises(errors.LawError, match=match):
        fa.Cohorts(value)


def test_members_past_the_number_of_clients_are_named():
    with pytest.raises(errors.LawError, match=r"cohort 1 has client 3, .* from 0 to 2"):
        fa.Cohorts([[0, 1], [2, 3]], n_clients=3)


@each((0, r"n_clients is 0"), (-2, r"n_clients is -2"), (2.5, r"n_clients .* found 2\.5"))
def test_the_number_of_clients_is_a_positive_integer(value, match):
    with pytest.raises(errors.OptionError, match=match):
        fa.Cohorts([[0]], n_clients=value)
    with pytest.raises(errors.OptionError, match=match):
        fa.UniformCohorts(value, 1)


@pytest.mark.parametrize(
    ("rounds", "clients", "match"),
    [
        ([1, 2], [0], r"\(2,\).*\(1,\)"),
        ([[1], [2]], [[0], [1]], r"rounds .*\(2, 1\)"),
        ([], [], r"no cohorts were given"),
        (["a", "a"], [3, 3], r"round 'a' has client 3 more than once"),
        (["b", "a"], [-4, 0], r"round 'b' has client -4"),
        ([107, 105, 105], [0, 2, 2], r"round 105 has client 2 more than once"),
        (["a", "b"], [0.0, 1.0], r"integer client indices, found float64"),
        ([None, "a"], [0, 1], r"rounds"),
    ],
)
def test_a_log_pairs_every_row_with_one_client(rounds, clients, match):
    with pytest.raises(errors.LawError, match=match):
        fa.Cohorts.from_log(rounds, clients)


@each((0, r"size is 0"), (4, r"size is 4; .* at most 3"), (1.5, r"size .* found 1\.5"))
def test_uniform_cohorts_have_between_one_and_all_clients(value, match):
    with pytest.raises(errors.OptionError, match=match):
        fa.UniformCohorts(3, value)


@each(
    ([1.0, -2.0], r"rate of client 1 is -2\.0"),
    ([np.nan, 1.0], r"rate of client 0 is nan"),
    ([1.0, np.inf], r"rate of client 1 is inf"),
    ([1.0, 0.0], r"cohorts of 2 need that many clients with positive rates, found 1"),
    ([], r"found 0"),
    ([[1.0, 2.0]], r"one dimension"),
    (["fast", "slow"], r"sequence of numbers: .*'fast'"),
)
def test_rates_are_finite_and_enough_of_them_positive(value, match):
    with pytest.raises(errors.LawError, match=match):
        fa.SuccessiveDraws(value, 2)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"size": 0}, r"size is 0"),
        ({"size": 2.5}, r"size must be an integer, found 2\.5"),
        ({"size": 5, "draws": 0}, r"draws is 0"),
        ({"size": 5, "draws": -1}, r"draws is -1"),
        ({"size": 5, "draws": "many"}, r"draws must be an integer, found 'many'"),
        ({"size": 5, "seed": -1}, r"seed is -1"),
    ],
)
def test_options_of_successive_draws_are_positive_integers(options, match):
    with pytest.raises(errors.OptionError, match=match):
        fa.SuccessiveDraws(np.ones(60), **options)


@pytest.mark.parametrize(
    ("laws", "probabilities", "match"),
    [
        ([LAW, fa.UniformCohorts(4, 2)], [0.5, 0.5], r"state 1 has 4 clients, state 0 has 3"),
        ([LAW, "weekend"], [0.5, 0.5], r"state 1 is 'weekend', which is not"),
        ([LAW], [0.5, 0.5], r"2 probabilities for 1 laws"),
        ([LAW, LAW], [0.5, 0.6], r"sums to 1\.1, not 1"),
        ([LAW, LAW], [1.5, -0.5], r"state 1 is -0\.5"),
        ([LAW, LAW], [np.nan, 1.0], r"state 0 is nan"),
        ([], [], r"has no entries"),
    ],
)
def test_states_of_a_mixture_are_laws_over_the_same_clients(laws, probabilities, match):
    with pytest.raises(errors.LawError, match=match):
        fa.Mixture(laws, probabilities)


LAWS = {
    "cohorts": PAIRS,
    "uniform": LAW,
    "independent": fa.IndependentClients([0.5, 0.2, 1.0]),
    "successive": fa.SuccessiveDraws([1.0, 2.0, 3.0], 2),
    "mixture": fa.Mixture([LAW, fa.UniformCohorts(3, 1)], [0.5, 0.5]),
}
laws = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


@laws
@each(
    ([0.0, np.nan, 0.0], r"potential of client 1 is nan"),
    ([0.0, 0.0, np.inf], r"potential of client 2 is inf"),
    ([-np.inf, 0.0, 0.0], r"potential of client 0 is -inf"),
    ([0.0, 0.0], r"potentials has 2 entries for 3 clients"),
    ([[0.0, 0.0, 0.0]], r"one dimension"),
    ("abc", r"sequence of numbers"),
)
def test_potentials_are_finite_and_one_a_client(law, value, match):
    with pytest.raises(errors.OptionError, match=match):
        law.expected_weights(value)


@laws
@each(
    ([0, 1], r"levels must be 3 integers, found int64 of shape \(2,\)"),
    ([0.0, 1.0, 1.0], r"levels must be 3 integers, found float64"),
    ([0, [1], 2], r"levels must be 3 integers"),
)
def test_levels_are_one_integer_a_client(law, value, match):
    with pytest.raises(errors.OptionError, match=match):
        law.expected_weights([0.0, 0.0, 0.0], value)


@laws
@each(
    ([0, 3], r"has client 3, but clients run from 0 to 2"),
    ([-1], r"has client -1"),
    ([0.5], r"integer indices, found float64"),
    (["a"], r"client 'a', but the clients have no names"),
    ([0, [1]], r"the set must be"),
)
def test_coverage_is_of_known_clients(law, value, match):
    with pytest.raises(errors.CohortError, match=match):
        law.coverage(value)


@laws
def test_the_number_of_rounds_to_draw_is_not_negative(law):
    with pytest.raises(errors.OptionError, match=r"rounds is -1"):
        law.sample(np.random.default_rng(0), -1)


@each(
    ([0, 3], r"has client 3, but clients run from 0 to 2"),
    ([-1, 0], r"has client -1"),
    ([2**64 - 1], r"has client 18446744073709551615|integer indices"),
    ([1, 0, 1], r"has client 1 more than once"),
    ([], r"the cohort is empty"),
    ([0.0, 1.0], r"integer indices, found float64"),
    ([True, False], r"integer indices, found bool"),
    (["a"], r"client 'a', but the clients have no names"),
    ([[0, 1]], r"found shape \(1, 2\)"),
    ([0, [1, 2]], r"flat sequence of clients"),
    (1, r"a sequence of clients, found 1"),
    (None, r"a sequence of clients, found None"),
)
def test_weights_are_of_distinct_known_clients(value, match):
    with pytest.raises(errors.CohortError, match=match):
        ALIGNED.weights(value)
