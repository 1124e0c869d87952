"""The paper's four settings give the published figures, to the digits shown."""

import itertools

import numpy as np
import pytest

import brute
from fedavot.experiments.alignment import measure
from fedavot.experiments.paper import paper_settings

PUBLISHED = {
    "regression, text": (33, ".549", "49.7", ".680", ".988", ".745"),
    "regression, code": (29, ".458", "19.7", ".503", ".838", ".592"),
    "MNIST, text": (16, ".798", "4.76", "1.011", "1.340", "1.038"),
    "MNIST, code": (20, ".670", "2.44", ".644", "1.067", ".711"),
}
"""THEORY.md, section 9: clients with p > π, their mass, Hall ratio, and three L1 distances."""

SUMMED = 1e-10
"""Sums over all 4,950 pairs in extended precision against closed forms and sparse products."""
LAW_TABLES = {
    "regression, text": lambda a, b: a * b / (5050 - a) + a * b / (5050 - b),
    "regression, code": lambda a, b: (a * b) ** 0.8,
    "MNIST, text": lambda a, b: 1.0,
    "MNIST, code": lambda a, b: 1.0,
}
"""What the probability of a pair of clients, numbered from 1, is proportional to."""

SETTINGS = paper_settings()
every_setting = pytest.mark.parametrize("name", PUBLISHED)


@pytest.fixture(scope="module")
def rows():
    return {name: measure(*given) for name, given in SETTINGS.items()}


def enumerated(name):
    """Return every pair's probability, from the setting's definition."""
    pairs = itertools.combinations(range(1, 101), 2)
    mass = {frozenset({a - 1, b - 1}): LAW_TABLES[name](a, b) for a, b in pairs}
    total = sum(mass.values())
    return {pair: value / total for pair, value in mass.items()}


def shown(value, like):
    """Return a number written with as many digits after the point as the published one."""
    return f"{value:.{len(like.split('.')[1])}f}".removeprefix("0")


@every_setting
def test_every_column_is_as_published(rows, name):
    row, published = rows[name], PUBLISHED[name]
    found = (
        row.importance_above,
        row.certificate.hall_ratio,
        *(2 * gap for gap in row.gaps.values()),
    )
    assert list(row.gaps) == ["fedavot", "fedavg", "self-normalised-ipw"]
    assert row.n_above == published[0]
    assert tuple(map(shown, found, published[1:])) == published[1:]


@every_setting
def test_no_setting_is_attainable_and_each_certificate_verifies(rows, name):
    row = rows[name]
    assert not row.certificate.feasible
    assert row.certificate.verify(*SETTINGS[name])


@every_setting
def test_the_deficient_set_is_wanted_more_than_its_cohorts_report(rows, name):
    row = rows[name]
    wanted = SETTINGS[name][0][row.certificate.deficient].sum()
    covered = brute.coverage(enumerated(name), row.certificate.deficient)
    assert wanted - covered == pytest.approx(row.certificate.deficiency, abs=SUMMED)


@every_setting
def test_the_weights_attain_what_is_shown_and_no_weights_come_nearer(rows, name):
    row = rows[name]
    alignment = row.alignment
    attained = brute.expected_weights(enumerated(name), alignment.potentials, alignment.levels)
    gap = np.abs(attained - SETTINGS[name][0]).sum() / 2
    assert alignment.status == "nearest"
    assert gap == pytest.approx(row.gaps["fedavot"], abs=SUMMED)
    # The gap is at least the deficiency of any set, and equals that of this one.
    assert gap == pytest.approx(row.certificate.deficiency, abs=1e-9)


@every_setting
def test_the_simple_rules_expect_what_is_shown(rows, name):
    row, pairs = rows[name], enumerated(name)
    importance = SETTINGS[name][0]
    even = brute.expected_weights(pairs, np.zeros(100))
    inverse = brute.expected_weights(pairs, np.log(importance / brute.inclusion(pairs, 100)))
    for rule, weights in (("fedavg", even), ("self-normalised-ipw", inverse)):
        gap = np.abs(weights - importance).sum() / 2
        assert gap == pytest.approx(row.gaps[rule], abs=SUMMED)
