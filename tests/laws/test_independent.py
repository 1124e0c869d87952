"""Independent clients: the closed form equals the sum over all 2^N cohorts."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agreement
import brute
import fedavot as fa
from fedavot.laws import independent as module
from strategies import (
    enumerate_cohorts,
    importances,
    independent_laws,
    independent_probabilities,
    levels,
    permutations,
    potentials,
)

COMPILED = 1e-13
"""What separates two orders of summation over 30,000 clients, relatively."""


def law_and(*strategies, min_clients=1, max_clients=8):
    return independent_probabilities(max_clients, min_clients).flatmap(
        lambda chances: st.tuples(
            st.just(fa.IndependentClients(chances)), *(make(chances.size) for make in strategies)
        )
    )


@given(law_and(potentials, levels))
def test_expected_weights_equal_enumeration(case):
    law, x, level = case
    agreement.check_weights(law, enumerate_cohorts(law), x, level)


@settings(max_examples=15)
@given(law_and(potentials, levels, min_clients=11, max_clients=12))
def test_expected_weights_of_twelve_clients_equal_enumeration(case):
    law, x, level = case
    agreement.check_weights(law, enumerate_cohorts(law), x, level)


@given(independent_laws())
def test_coverage_of_every_set_equals_enumeration(law):
    agreement.check_coverages(law, enumerate_cohorts(law))


@given(independent_laws())
def test_inclusion_equals_enumeration(law):
    agreement.check_inclusion(law, enumerate_cohorts(law))


@given(law_and(permutations))
def test_coverage_of_prefixes_equals_enumeration(case):
    law, order = case
    agreement.check_prefixes(law, enumerate_cohorts(law), order)


@given(law_and(potentials, levels))
def test_curvature_equals_enumeration(case):
    law, x, level = case
    agreement.check_curvature(law, enumerate_cohorts(law), x, level)


@given(law_and(importances))
def test_a_prefix_of_the_worst_order_is_as_bad_as_any_set(case):
    law, importance = case
    agreement.check_worst_order(law, enumerate_cohorts(law), importance)


@given(law_and(potentials), st.data())
def test_a_client_that_never_takes_part_changes_nothing(case, data):
    law, x = case
    chances = np.append(law.probabilities, 0.0)
    extended = np.append(x, data.draw(st.floats(-1e4, 1e4)))
    found = fa.IndependentClients(chances).expected_weights(extended)
    assert agreement.close(found, np.append(law.expected_weights(x), 0.0))


@given(st.integers(1, 12).flatmap(potentials))
def test_when_everyone_is_always_there_the_weights_are_the_softmax(x):
    scaled = np.exp(x - x.max())
    law = fa.IndependentClients(np.ones(x.size))
    assert agreement.close(law.expected_weights(x), scaled / scaled.sum())


@given(st.lists(st.floats(-300.0, -12.0), min_size=2, max_size=6), st.data())
def test_almost_empty_rounds_have_one_member_drawn_by_its_probability(exponents, data):
    chances = 10.0 ** np.array(exponents)
    x = data.draw(potentials(chances.size))
    found = fa.IndependentClients(chances).expected_weights(x)
    # Two members meet with at most 6e-12 of the probability of one.
    assert agreement.close(found, chances / chances.sum(), 1e-11)


def test_equal_potentials_of_many_clients_agree_with_the_count_of_the_others():
    chances = np.random.default_rng(2).uniform(0.0, 0.2, 400)
    counts = np.zeros((400, 400))
    for client in range(400):
        law = np.array([1.0])
        for chance in np.delete(chances, client):
            law = np.append(law, 0.0) * (1.0 - chance) + np.append(0.0, law) * chance
        counts[client] = law
    wanted = chances * (counts / np.arange(1, 401)).sum(axis=1) / (1.0 - np.prod(1.0 - chances))
    found = fa.IndependentClients(chances).expected_weights(np.full(400, -3.0))
    assert agreement.close(found, wanted)


def many_clients():
    rng = np.random.default_rng(3)
    chances = rng.uniform(0.0, 4e-4, 30_000)
    chances[:3] = 0.0, 1e-12, 0.5
    return fa.IndependentClients(chances), rng.normal(0.0, 2.0, 30_000)


@pytest.mark.parametrize("sure", [False, True], ids=["nobody is sure", "one client is sure"])
def test_the_compiled_sums_equal_the_plain_ones(monkeypatch, sure):
    law, x = many_clients()
    if sure:
        law = fa.IndependentClients(np.append(law.probabilities[1:], 1.0))
    calls = []
    original = module.independent_sums
    monkeypatch.setattr(
        module, "independent_sums", lambda *given: calls.append(1) or original(*given)
    )
    compiled = law.system().curvature(x)
    squares = compiled.squares
    assert calls
    monkeypatch.setattr(module, "_COMPILED_CLIENTS", x.size + 1)
    plain = law.system().curvature(x)
    assert agreement.close(compiled.marginal, plain.marginal, COMPILED * plain.marginal.max())
    assert agreement.close(squares, plain.squares, COMPILED * plain.squares.max())
    positive = plain.marginal > 0
    assert np.array_equal(compiled.marginal > 0, positive)
    ratios = compiled.marginal[positive] / plain.marginal[positive]
    assert np.max(np.abs(ratios - 1.0)) <= COMPILED


def test_compiled_sums_leave_the_precision_of_jax_as_it_was():
    law, x = many_clients()
    weights = law.expected_weights(x)
    assert weights.dtype == np.float64
    assert jax.numpy.ones(1).dtype == np.float32


def test_potentials_too_far_apart_for_the_compiled_sums_still_sum_to_one():
    law, x = many_clients()
    x[0], x[-1] = 400.0, -400.0
    wanted = law.expected_weights(np.clip(x, -60.0, None))
    assert agreement.close(law.expected_weights(x), wanted)


def test_a_type_of_three_copies_weighs_as_much_as_three_clients_alike():
    types = fa.IndependentClients.of_types(np.array([0.3, 0.6]), np.array([3.0, 1.0]))
    clients = fa.IndependentClients([0.3, 0.3, 0.3, 0.6])
    wanted = brute.expected_weights(enumerate_cohorts(clients), [1.0, 1.0, 1.0, -1.0])
    found = types.system().marginal(np.array([1.0, -1.0]))
    assert agreement.close(found, [wanted[:3].sum(), wanted[3]])


def test_rounds_empty_beyond_the_range_of_floats_still_have_one_member():
    law = fa.IndependentClients([2.0**-1070, 2.0**-1069, 0.0])
    assert agreement.close(law.expected_weights([5.0, -5.0, 0.0]), [1 / 3, 2 / 3, 0.0])
    point = law.system().curvature(np.zeros(3))
    assert agreement.close(point.squares, [1 / 3, 2 / 3, 0.0])
    assert agreement.close(point.dense(), np.zeros((3, 3)))
    assert law.worst_order(np.array([0.5, 0.5, 0.0])).tolist() == [0, 1, 2]
