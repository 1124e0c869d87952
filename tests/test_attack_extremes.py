"""A few problems at the edge of what numbers can say, and that wrong answers would be found."""

import dataclasses
import warnings

import numpy as np
import pytest
from attacks import extremes
from attacks.isolation import Fault

import fedavot as fa

PROBLEMS = 25


def test_what_must_hold_holds_for_tiny_shares_certain_clients_and_cohorts_of_one():
    outcomes = {number: extremes.judged(3, number) for number in range(PROBLEMS)}
    assert {n: it for n, it in outcomes.items() if isinstance(it, Fault)} == {}
    assert set(outcomes.values()) == {"feasible", "infeasible"}


@pytest.mark.parametrize(("seed", "number"), [(0, 67), (0, 278), (1, 586), (1, 723), (1, 1921)])
def test_what_was_wrong_once_is_right(seed, number):
    """Weights that vanish in mixtures, and levels that are reached with probability 1e-300."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert extremes.judged(seed, number) in ("feasible", "infeasible")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attained": np.array([0.6, 0.4])}, "the cohorts give"),
        ({"status": fa.Status.EXACT, "importance": np.array([0.9, 0.1])}, "exact at"),
        ({"status": fa.Status.NEAREST}, "nearest at"),
        ({"status": fa.Status.SOFT}, "soft at"),
        ({"potentials": np.array([0.0, -np.inf])}, "potentials"),
    ],
)
def test_an_alignment_that_is_not_what_it_says_is_found(change, words):
    importance, law = [0.5, 0.5], fa.UniformCohorts(2, 2)
    alignment = dataclasses.replace(fa.align(importance, law), **change)
    certificate = fa.certify(importance, law)
    assert words in extremes._wrong_alignment(alignment, certificate, [([0, 1], 1.0)])
