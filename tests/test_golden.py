"""The library answers small problems as `golden.json` says: behaviour is frozen from outside."""

import json
import math
from typing import NamedTuple

import pytest

import golden

GOLDEN = json.loads(golden.FILE.read_text(encoding="utf-8"))


class Tolerance(NamedTuple):
    """How far numbers may be from those in the file; the larger of the two counts."""

    relative: float
    absolute: float


ROUNDING = Tolerance(1e-10, 1e-11)
"""What follows from its inputs by arithmetic alone, written with twelve digits."""
CERTIFIED = Tolerance(1e-9, 1e-9)
"""The error in a deficiency and in a Hall ratio that `Certificate.verify` allows by default."""
ATTAINED = Tolerance(0.0, 1e-9)
"""The default `tol` of `align`, in L1: two answers within it are both right."""
FOLLOWING = Tolerance(1e-7, 1e-7)
"""What follows from aligned weights. Weights in rare cohorts are less certain than the expected
ones: for `tol=1e-12` they differ from those here by up to 4e-9."""
DIFFERENCES = Tolerance(0.0, 1e-5)
"""Potentials of clients whose importance is of the order of 1e-4: by up to 6e-7."""
NO_WEIGHTS = ("law", "online", "file", "select", "importance", "aggregator")


def tolerance_of(case, fact):
    """Return how far the numbers of a fact may be from those in the file."""
    if case.startswith(NO_WEIGHTS):
        return ROUNDING
    ends = {"deficiency": CERTIFIED, "hall ratio": CERTIFIED, "gap": ATTAINED, "attained": ATTAINED}
    return (ends | {"potential differences": DIFFERENCES}).get(fact.split(": ")[-1], FOLLOWING)


def differences(found, wanted, tolerance, place=""):
    """Return where two values differ, in words; numbers that are no integers may be near."""
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        return [
            each
            for key in found
            for each in differences(found[key], wanted[key], tolerance, f"{place}[{key!r}]")
        ]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [
            each
            for at, pair in enumerate(zip(found, wanted, strict=True))
            for each in differences(*pair, tolerance, f"{place}[{at}]")
        ]
    near = found == wanted and type(found) is type(wanted)
    if isinstance(found, float) and isinstance(wanted, float):
        relative, absolute = tolerance
        near = math.isclose(found, wanted, rel_tol=relative, abs_tol=absolute)
    return [] if near else [f"{place}: found {found!r}, and the file has {wanted!r}"]


@pytest.fixture(scope="module")
def found():
    return golden.results()


def test_the_file_has_exactly_the_cases_that_are_computed(found):
    assert found.keys() == GOLDEN.keys()


@pytest.mark.parametrize("case", GOLDEN)
def test_the_answer_is_that_of_the_file(found, case):
    assert found[case].keys() == GOLDEN[case].keys()
    for fact, wanted in GOLDEN[case].items():
        assert not differences(found[case][fact], wanted, tolerance_of(case, fact), fact)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [(0.5, 0.5 + 3e-9), (1, 2), (True, 1), ("a", "b"), ([1.0], [1.0, 2.0]), ({"a": 1}, {"b": 1})],
)
def test_values_that_differ_are_told_apart(found, wanted):
    assert differences({"x": [wanted]}, {"x": [wanted]}, CERTIFIED) == []
    assert differences({"x": [found]}, {"x": [wanted]}, CERTIFIED)
