"""What cannot be done is refused in the library's own words: options, sizes, and files."""

import json

import numpy as np
import pytest

import fedavot as fa
from fedavot import errors
from sealing import sealed

PAIRS = fa.Cohorts([[0, 1], [1, 2]])
P = [0.4, 0.3, 0.3]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "simplex"}, r"method is 'simplex'; it must be one of 'auto', 'ipfp', 'newton'"),
        ({"method": None}, r"method is None"),
        ({"objective": "cost"}, r"objective is 'cost'; it must be one of 'entropy', 'variance'"),
        ({"tol": 0}, r"tol is 0\.0; it must be finite and above 0"),
        ({"tol": -1e-9}, r"tol is -1e-09"),
        ({"tol": np.nan}, r"tol is nan"),
        ({"tol": np.inf}, r"tol is inf"),
        ({"tol": "tight"}, r"tol must be a number, found 'tight'"),
        ({"max_iter": 0}, r"max_iter is 0; it must be at least 1"),
        ({"max_iter": 10.5}, r"max_iter must be an integer, found 10\.5"),
        ({"softness": -0.1}, r"softness is -0\.1; it must be finite and at least 0"),
        ({"softness": np.nan}, r"softness is nan"),
        ({"softness": 1.0, "method": "ipfp"}, r"'ipfp'.*exact entropic"),
        ({"objective": "variance", "method": "ipfp"}, r"'ipfp'.*exact entropic"),
        ({"objective": "variance", "softness": 1.0}, r"softness.*'entropy'"),
    ],
)
def test_options_outside_what_align_accepts_are_named(options, match):
    with pytest.raises(errors.OptionError, match=match):
        fa.align(P, PAIRS, **options)


@pytest.mark.parametrize(
    "law",
    [
        fa.UniformCohorts(3, 2),
        fa.IndependentClients([0.5, 0.5, 0.5]),
        fa.Mixture([PAIRS, PAIRS], [0.5, 0.5]),
    ],
)
def test_least_variance_needs_explicit_cohorts(law):
    with pytest.raises(errors.OptionError, match=f"explicit cohorts, found {type(law).__name__}"):
        fa.align(P, law, objective="variance")


NEVER_SEEN = {
    "cohorts": fa.Cohorts([[0, 1], [1]], n_clients=3),
    "independent": fa.IndependentClients([0.5, 0.5, 0.0]),
    "successive": fa.SuccessiveDraws([1.0, 1.0, 0.0], 1),
    "mixture": fa.Mixture([fa.Cohorts([[0], [1]], n_clients=3)], [1.0]),
}


@pytest.mark.parametrize("law", NEVER_SEEN.values(), ids=NEVER_SEEN)
def test_a_wanted_client_in_no_cohort_is_infeasible_and_not_an_error(law):
    certificate = fa.certify([0.25, 0.25, 0.5], law)
    assert not certificate.feasible
    assert 2 in certificate.deficient
    assert certificate.hall_ratio == np.inf
    assert certificate.verify([0.25, 0.25, 0.5], law)


@pytest.mark.parametrize("law", NEVER_SEEN.values(), ids=NEVER_SEEN)
def test_a_wanted_client_in_no_cohort_leaves_the_nearest_importance(law):
    alignment = fa.align([0.25, 0.25, 0.5], law)
    assert alignment.status == "nearest"
    assert alignment.attained[2] == 0.0
    assert alignment.gap == pytest.approx(0.5, abs=1e-9)


def test_too_many_sampled_pairs_are_refused_with_the_estimate():
    with pytest.raises(errors.TooLargeError, match=r"1,000,000,000,000 cohorts of 2 .* GB"):
        fa.SuccessiveDraws(np.ones(1_000_000), 2, draws=10**12)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: fa.Cohorts([[0, 1]], n_clients=1_000_000),
        lambda: fa.UniformCohorts(1_000_000, 2).inclusion(),
        lambda: fa.UniformCohorts(1_000_000, 2).coverage([0]),
    ],
    ids=["cohorts", "uniform inclusion", "uniform coverage"],
)
def test_more_clients_than_memory_are_refused_with_the_estimate(monkeypatch, ask):
    monkeypatch.setattr("fedavot._checks._available_bytes", lambda: 1e6)
    with pytest.raises(errors.TooLargeError, match="GB"):
        ask()


@pytest.fixture
def document(tmp_path):
    """Save an alignment and return its path and its content."""
    path = tmp_path / "alignment.json"
    fa.align(P, PAIRS).save(path)
    return path, json.loads(path.read_text())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"potentials": [0.0, 1.0]}, r"potentials has 2 entries, but there are 3 clients"),
        ({"levels": [0, 0, 0, 0]}, r"levels has 4 entries, but there are 3 clients"),
        ({"attained": [0.5, 0.5]}, r"attained has 2 entries, but there are 3 clients"),
        ({"importance": [0.5, 0.3, 0.1]}, r"importance sums to 0\.9"),
        ({"importance": [1.5, -0.3, -0.2]}, r"importance of client 1 is -0\.3"),
        ({"importance": []}, r"there are 0 clients"),
        ({"attained": [0.5, 0.3, 0.1]}, r"attained sums to 0\.9"),
        ({"attained": [1.5, -0.3, -0.2]}, r"attained of client 1 is -0\.3"),
        ({"levels": [0, 2, 0]}, r"levels must be numbered from 0 without gaps, found 2"),
        ({"levels": [1, 1, 1]}, r"levels must be numbered from 0 without gaps, found 1"),
        ({"levels": [0, -1, 0]}, r"levels must be numbered from 0"),
        ({"levels": [0, True, 0]}, r"levels must be a sequence of numbers"),
        ({"residual": -1e-9}, r"residual is -1e-09"),
        ({"softness": -1.0}, r"softness is -1\.0"),
        ({"iterations": -1}, r"iterations is -1"),
        ({"iterations": 1.5}, r"iterations must be an integer, found 1\.5"),
        ({"iterations": 10**299}, r"iterations is an integer of about"),
        ({"iterations": 10**300}, r"an integer has 301 digits"),
        ({"residual": 10**400}, r"an integer has 401 digits"),
        ({"effective_cohort_size": 0.9}, r"effective_cohort_size is 0\.9; it must be from 1 to 3"),
        ({"effective_cohort_size": 3.1}, r"effective_cohort_size is 3\.1; it must be from 1 to 3"),
        ({"clients": ["a", "b"]}, r"clients has 2 names for 3 clients"),
        ({"clients": ["a", "b", "a"]}, r"the name 'a' more than once"),
        ({"clients": ["a", "b", 1]}, r"must be names, as non-empty text; found 1"),
        ({"clients": 3}, r"clients .* found 3"),
        ({"importance": [[0.4, 0.3, 0.3]]}, r"importance must be a sequence of numbers"),
        ({"attained": 1.0}, r"attained must be a sequence of numbers"),
        ({"potentials": [0.0, "much", 0.0]}, r"potentials|much"),
        ({"potentials": [0.0, "1.5", 0.0]}, r"potentials"),
        ({"potentials": [0.0, None, 0.0]}, r"potentials"),
        ({"potentials": [0.0, float("nan"), 0.0]}, r"NaN is not a JSON number"),
        ({"potentials": [0.0, float("inf"), 0.0]}, r"Infinity is not a JSON number"),
        ({"potentials": {"a": 1}}, r"potentials must be"),
        ({"levels": [0, 0.5, 1]}, r"levels"),
        ({"levels": [0, 10**30, 1]}, r"levels|10{30}|valid"),
        ({"residual": "small"}, r"residual|small"),
        ({"residual": None}, r"residual .* None"),
        ({"iterations": float("inf")}, r"Infinity is not a JSON number"),
        ({"status": "perfect"}, r"perfect"),
        ({"objective": "cost"}, r"objective|cost"),
    ],
)
def test_a_file_with_a_wrong_value_is_refused(document, change, match):
    path, content = document
    path.write_text(sealed(content | change))
    with pytest.raises(errors.FileFormatError, match=match):
        fa.Alignment.load(path)


@pytest.mark.parametrize("key", ["importance", "potentials", "levels", "status", "softness"])
def test_a_file_without_one_of_its_keys_is_refused(document, key):
    path, content = document
    del content[key]
    path.write_text(sealed(content))
    with pytest.raises(errors.FileFormatError, match=key):
        fa.Alignment.load(path)


def test_keys_of_later_writers_are_ignored(document):
    path, content = document
    path.write_text(sealed(content | {"comment": "from the weekend"}))
    assert fa.Alignment.load(path).status == "exact"
