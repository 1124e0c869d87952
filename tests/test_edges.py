"""Numbers at the edges of what Python and NumPy hold: huge integers, subnormals, masked entries.

Each is refused with an error of the library's own that names the entry, or gives the right answer.
"""

from fractions import Fraction

import numpy as np
import pytest

import fedavot as fa
from fedavot import errors, importance
from fedavot._checks import as_seed, shown
from fedavot._clients import Clients
from fedavot.audit import audit, federation_of, read_log
from fedavot.laws._law import as_levels, as_potentials
from fedavot.rules import Known, build
from fedavot.training import Task, Training, constant, from_clients
from fedavot.training.partition import dirichlet
from fedavot.training.tasks.linear import (
    heterogeneous_classification,
    heterogeneous_regression,
    linear_task,
)

HUGE = [10**400, 10**5000, -(10**5000)]
LAW = fa.UniformCohorts(3, 2)
MASKED = np.ma.array([0.4, 0.3, 0.3], mask=[0, 0, 1])
MASKED_INDICES = np.ma.array([0, 1, 2], mask=[0, 0, 1])


def kind(value):
    """Return what to call a value in a test's name: not the value, which may be huge."""
    return type(value).__name__


def each(cases):
    """Try every call, listed by the error that it must raise with what the message must match."""
    listed = [(call, error, match) for error, some in cases.items() for call, match in some]
    return pytest.mark.parametrize(("call", "error", "match"), listed)


def loss(params, batch):
    return ((batch @ params) ** 2).mean()


def init(key):
    return np.zeros(2)


@pytest.mark.parametrize("huge", HUGE, ids=["400", "5000", "minus"])
@each(
    {
        errors.ImportanceError: [
            (lambda n: fa.align([0.5, n, 0.5], LAW), "client 1 is an? .*integ"),
            (lambda n: fa.certify([n, 0, 0], LAW), "client 0 is an? .*integer"),
            (lambda n: importance.by_examples([1, 1, n]), "client 2 is an?"),
            (lambda n: importance.tempered([0.5, n], exponent=1), "client 1"),
            (lambda n: importance.by_group(["a", "a"], {"a": 1.0}, within=[1, n]), "client 1"),
            (lambda n: importance.from_mapping({"a": 1, "b": n}, ["a", "b"]), "client 'b'"),
        ],
        errors.OptionError: [
            (lambda n: importance.uniform(abs(n)), "n_clients is an integer"),
            (lambda n: fa.Cohorts([[0]], n_clients=abs(n)), "n_clients is an int"),
            (lambda n: fa.UniformCohorts(abs(n), 1), "n_clients is an integer"),
            (lambda n: LAW.expected_weights([0, n, 0]), "client 1 is an?"),
            (lambda n: LAW.expected_weights([0, 0, 0], levels=[0, n, 0]), "integer of about"),
            (lambda n: LAW.sample(np.random.default_rng(0), abs(n)), "rounds is"),
            (lambda n: fa.align([1.0], fa.UniformCohorts(1, 1), tol=n), "tol is"),
            (
                lambda n: fa.align([1.0], fa.UniformCohorts(1, 1), softness=n),
                "softness is an? .*integer of about",
            ),
            (lambda n: fa.align([1.0], fa.UniformCohorts(1, 1), max_iter=abs(n)), "max_iter is an"),
            (as_seed, "seed is an? .*integer of about"),
            (lambda n: Training(abs(n), constant(0.1)), "rounds is an integer"),
            (lambda n: Training(1, constant(0.1), seeds=[n, n]), "seed is"),
        ],
        errors.LawError: [
            (lambda n: fa.Cohorts([[0, 1], [1, n]]), "object: an? .*integer of about"),
            (lambda n: fa.Cohorts(np.array([[0, n]])), "object: an? .*integer of"),
            (lambda n: fa.Cohorts([[0], [1]], [1, n]), "cohort 1 is an? .*integer"),
            (lambda n: fa.Cohorts.from_log([0], [n]), "an? .*integer of about"),
            (lambda n: fa.IndependentClients([0.5, n]), "entry 1 is an? .*integer"),
            (lambda n: fa.SuccessiveDraws([1, n], 1), "entry 1 is an? .*integer"),
        ],
        errors.CohortError: [
            (lambda n: LAW.coverage([n]), "object: an? .*integer"),
            (lambda n: fa.align([0.4, 0.3, 0.3], LAW).weights([0, n]), "object: an? .*integer"),
        ],
        errors.InputError: [
            (lambda n: fa.select([0.5, n], 1, np.random.default_rng(0)), "client 1 is an?")
        ],
        errors.TaskError: [
            (
                lambda n: linear_task("odd", [(np.array([[1, n]]), [1.0])]),
                "client 0 .* of type object",
            ),
        ],
    }
)
def test_huge_integers_are_refused_by_the_entry_that_holds_them(call, error, match, huge):
    with pytest.raises(error, match=match):
        call(huge)


@pytest.mark.parametrize("option", ["method", "objective"])
def test_huge_integers_in_the_place_of_words_are_refused(option):
    with pytest.raises(errors.OptionError, match="integer of about 5,00. digits"):
        fa.align([0.4, 0.3, 0.3], LAW, **{option: 10**5000})


@pytest.mark.parametrize("value", [MASKED, [0, 1], {}, None, 10**5000], ids=kind)
@pytest.mark.parametrize("option", ["method", "objective"])
def test_what_is_no_text_in_the_place_of_words_is_refused(option, value):
    with pytest.raises(errors.OptionError, match=f"{option} is .* must be one of"):
        fa.align([0.4, 0.3, 0.3], LAW, **{option: value})


@pytest.mark.parametrize("value", [MASKED, [0, 1], 10**5000, [10**5000], None, "a", 1j], ids=kind)
@each(
    {
        errors.RuleError: [(lambda it: build(it, Known([0.4, 0.3, 0.3], LAW)), "no rule")],
        errors.OptionError: [(lambda it: fa.select([0.4, 0.3, 0.3], 1, it), "rng is")],
        errors.ImportanceError: [
            (lambda it: importance.by_group(["a"], it), "targets must be"),
            (lambda it: importance.from_mapping(it, ["a"]), "mapping must be"),
        ],
        errors.FileFormatError: [
            (fa.OnlineAligner.from_state, "must be a mapping"),
            (fa.SoftOnlineAligner.from_state, "must be a mapping"),
        ],
    }
)
def test_values_of_another_kind_are_refused(call, error, match, value):
    with pytest.raises(error, match=match):
        call(value)


@pytest.mark.parametrize("names", [MASKED, [[0]], 10**5000, None], ids=kind)
def test_names_that_are_no_names_are_refused(names):
    with pytest.raises(errors.ImportanceError, match="clients"):
        importance.from_mapping({"a": 1.0}, names)


def test_a_group_that_is_a_huge_integer_is_refused():
    with pytest.raises(errors.ImportanceError, match="client 0 is in group an integer of about"):
        importance.by_group([10**5000], {"a": 1.0})


@pytest.mark.parametrize(
    "call",
    [
        lambda it: fa.align(it, fa.UniformCohorts(1, 1)),
        importance.by_examples,
        fa.OnlineAligner([1.0], step=1.0).join,
        fa.SoftOnlineAligner([1.0], step=1.0, softness=1.0).join,
    ],
)
def test_complex_numbers_are_refused(call):
    with pytest.raises(errors.ImportanceError, match="real numbers, found complex128"):
        call(np.array([0.5 + 1j]))


def test_a_fraction_beyond_double_precision_is_refused():
    with pytest.raises(errors.ImportanceError, match="client 0"):
        fa.align([Fraction(10**400), 0, 0], LAW)


def test_values_are_shown_however_long_they_are():
    assert shown(7) == "7"
    assert "4,999 digits" in shown(10**4999 - 1)
    assert "digits" in shown([10**5000])
    assert len(shown("a" * 10_000)) < 300


@each(
    {
        errors.ImportanceError: [
            (lambda: fa.align(MASKED, LAW), "client 2 has masked"),
            (lambda: fa.certify(MASKED, LAW), "client 2 has masked"),
            (lambda: importance.by_examples(MASKED), "client 2 has masked"),
            (lambda: importance.by_group(MASKED_INDICES, {0: 0.5, 1: 0.5}), "groups"),
            (lambda: importance.by_examples([1.0, np.ma.masked]), "client 1: it has masked"),
            (lambda: importance.tempered(MASKED, exponent=2), "client 2"),
        ],
        errors.LawError: [
            (
                lambda: fa.Cohorts(np.ma.array([[0, 1], [1, 2]], mask=[[0, 0], [0, 1]])),
                "cohort 1 has masked",
            ),
            (lambda: fa.Cohorts([[0], MASKED_INDICES]), "cohort 1 .*entry 2 has mask"),
            (lambda: fa.Cohorts([[0], [1], [2]], MASKED), "cohort 2 has masked"),
            (lambda: fa.Cohorts.from_log([0, 0, 1], MASKED_INDICES), "entry 2"),
            (lambda: fa.Cohorts.from_log(MASKED_INDICES, [0, 0, 1]), "entry 2"),
            (lambda: fa.IndependentClients(MASKED), "entry 2 has masked"),
            (lambda: fa.SuccessiveDraws(MASKED, 2), "entry 2 has masked"),
            (lambda: fa.Mixture([LAW] * 3, MASKED), "state 2 has masked"),
        ],
        errors.CohortError: [
            (lambda: LAW.coverage(MASKED_INDICES), "entry 2 has masked"),
            (lambda: Clients(3).mask(MASKED_INDICES), "entry 2 has masked"),
            (lambda: fa.align([0.4, 0.3, 0.3], LAW).weights(MASKED_INDICES), "entry 2 has masked"),
        ],
        errors.OptionError: [
            (lambda: as_potentials(MASKED, 3), "client 2 has masked"),
            (lambda: as_levels(MASKED_INDICES, 3), "entry 2 has masked"),
            (lambda: fa.align([0.4, 0.3, 0.3], LAW, tol=np.ma.masked), "tol: it has masked"),
        ],
        errors.InputError: [
            (lambda: fa.select(MASKED, 1, np.random.default_rng(0)), "client 2"),
            (lambda: build("horvitz-thompson", known=Known(MASKED, LAW)), "2 has masked"),
        ],
        errors.TaskError: [
            (
                lambda: Task("odd", np.ma.masked_less(np.zeros((2, 3, 2)), 1), loss, init),
                "client 0 has masked",
            ),
            (
                lambda: Task("odd", np.zeros((3, 3, 2)), loss, init, MASKED_INDICES + 1),
                "client 2 has masked",
            ),
            (
                lambda: from_clients(
                    "odd",
                    [np.zeros((2, 2)), np.ma.masked_less(np.zeros((2, 2)), 1)],
                    loss=loss,
                    init=init,
                ),
                "client 1 of task",
            ),
            (
                lambda: linear_task("odd", [(np.zeros((3, 2)), MASKED)]),
                "client 0 of task .*entry 2 has masked",
            ),
            (
                lambda: dirichlet(
                    MASKED_INDICES,
                    2,
                    examples_per_client=1,
                    concentration=1.0,
                    rng=np.random.default_rng(0),
                ),
                "entry 2 has masked",
            ),
        ],
    }
)
def test_masked_entries_are_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_masked_arrays_without_masked_entries_are_plain_data():
    plain = np.ma.array([0.4, 0.3, 0.3])
    assert np.array_equal(fa.align(plain, LAW).importance, fa.align(plain.data, LAW).importance)
    assert fa.Cohorts(np.ma.array([[0, 1], [1, 2]])).n_clients == 3
    assert fa.Cohorts([np.ma.array([0, 1]), [2]]).n_clients == 3


@pytest.mark.parametrize("seed", [-1, 2**128, 1.0, "1", None, np.float64(3)])
@pytest.mark.parametrize(
    "made",
    [
        as_seed,
        lambda seed: heterogeneous_regression(n_clients=2, seed=seed),
        lambda seed: heterogeneous_classification(n_clients=2, seed=seed),
        lambda seed: Training(1, constant(0.1), seeds=[seed]),
    ],
)
def test_seeds_that_are_no_integers_from_zero_are_refused(made, seed):
    with pytest.raises(errors.OptionError, match="seed"):
        made(seed)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 0.5},
        {"seed": 10**5000},
        {"period": 10**5000},
        {"period": np.ma.masked},
        {"cohort_size": 10**5000},
        {"columns": {"client": 10**5000}},
    ],
)
def test_options_of_intervals_are_refused(tmp_path, options):
    path = tmp_path / "log.csv"
    path.write_text("client,start,end\na,0,100\nb,0,50\n")
    with pytest.raises(errors.OptionError, match=next(iter(options)).removesuffix("s")):
        read_log(path, **{"period": 10, "cohort_size": 1, **options})


@pytest.mark.parametrize("options", ["seed", "tolerance"])
def test_options_of_an_audit_are_refused(tmp_path, options):
    path = tmp_path / "log.csv"
    path.write_text("round,client\n1,a\n2,b\n")
    federation = federation_of(read_log(path))
    for value in (-1, 10**5000, np.ma.masked, "a"):
        with pytest.raises(errors.OptionError, match=options):
            audit(federation, **{options: value})


@pytest.mark.parametrize("seed", [0, np.int64(5), 2**128 - 1])
def test_seeds_are_integers_of_up_to_128_bits(seed):
    assert as_seed(seed) == seed


def test_a_count_beyond_memory_is_refused_before_it_is_allocated():
    with pytest.raises(errors.TooLargeError, match="n_clients"):
        importance.uniform(2**60)


@pytest.mark.parametrize("least", [5e-324, 1e-320, 2.3e-308])
def test_example_counts_may_be_subnormal(least):
    assert importance.by_examples([least, least]).tolist() == [0.5, 0.5]
    within = importance.by_group(["a", "a"], {"a": 1.0}, within=[least, least])
    assert within.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("least", [5e-324, 1e-320, 2.3e-308])
def test_subnormal_importance_is_aligned(least):
    found = fa.align([least, 0.5, 0.5], LAW)
    assert np.isfinite(found.potentials).all()
    assert np.allclose(found.attained, [0.0, 0.5, 0.5], atol=1e-8)


@pytest.mark.parametrize("least", [5e-324, 1e-320, 2.3e-308])
def test_cohorts_of_subnormal_probability_are_certified(least):
    law = fa.Cohorts([[0], [1], [0, 1]], [least, 0.5, 0.5])
    certificate = fa.certify([0.5, 0.5], law)
    assert certificate.feasible
    assert certificate.verify([0.5, 0.5], law)
