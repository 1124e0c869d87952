"""Clients have names from the first line to the last, and a wrong name is found where it enters."""

import numpy as np
import pytest

import fedavot as fa
from fedavot import errors

CITIES = ("berlin", "porto", "lyon")
SHARES = {"porto": 0.3, "lyon": 0.2, "berlin": 0.5}
LAWS = {
    "cohorts": lambda **names: fa.Cohorts([[0, 1], [1, 2], [0, 2]], **names),
    "uniform": lambda **names: fa.UniformCohorts(3, 2, **names),
    "independent": lambda **names: fa.IndependentClients([0.5, 0.6, 0.7], **names),
    "successive": lambda **names: fa.SuccessiveDraws([0.5, 0.3, 0.2], 2, **names),
    "mixture": lambda **names: fa.Mixture([fa.UniformCohorts(3, 2, **names)], [1.0]),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_names_go_from_the_law_to_the_weights(law):
    named, bare = law(clients=CITIES), law()
    assert named.clients == CITIES
    assert bare.clients is None
    assert named.coverage(["porto"]) == bare.coverage([1])
    alignment = fa.align(SHARES, named)
    assert alignment.clients == CITIES
    expected = fa.align([0.5, 0.3, 0.2], bare)
    assert np.array_equal(alignment.importance, expected.importance)
    assert np.array_equal(alignment.weights(["lyon", "berlin"]), expected.weights([2, 0]))
    assert np.array_equal(alignment.weights([2, 0]), expected.weights([2, 0]))
    assert fa.certify(SHARES, named).verify(SHARES, named)


def test_cohorts_and_logs_may_be_given_by_name():
    named = fa.Cohorts([["porto", "lyon"], ["berlin"]], clients=CITIES)
    bare = fa.Cohorts([[1, 2], [0]])
    assert np.array_equal(named.inclusion(), bare.inclusion())
    log = fa.Cohorts.from_log([1, 1, 2], ["porto", "lyon", "berlin"], clients=CITIES)
    assert np.array_equal(log.inclusion(), bare.inclusion())
    own = fa.Cohorts.from_log([1, 1, 2], ["porto", "lyon", "berlin"])
    assert own.clients == ("berlin", "lyon", "porto")
    assert own.n_cohorts == 2


def test_a_certificate_names_the_deficient():
    law = fa.Cohorts([[0, 1], [1, 2]], clients=CITIES)
    certificate = fa.certify({"berlin": 0.6, "porto": 0.2, "lyon": 0.2}, law)
    assert certificate.deficient_clients == ["berlin"]
    assert "berlin" in str(certificate)
    assert fa.certify([0.6, 0.2, 0.2], fa.Cohorts([[0, 1], [1, 2]])).deficient_clients == [0]


@pytest.mark.parametrize("options", [{"step": 0.5}, {"step": 0.5, "softness": 0.1}])
def test_online_aligners_learn_and_save_by_name(options, tmp_path):
    kind = fa.SoftOnlineAligner if "softness" in options else fa.OnlineAligner
    named, bare = kind(SHARES, **options), kind(list(SHARES.values()), **options)
    assert named.clients == tuple(SHARES)
    given = named.observe(["lyon", "porto"])
    assert np.array_equal(given, bare.observe([1, 0]))
    named.join([0.1], clients=["kyiv"])
    bare.join([0.1])
    named.save(tmp_path / "state.json")
    found = kind.load(tmp_path / "state.json")
    assert found.clients == (*SHARES, "kyiv")
    assert np.array_equal(found.weights(["kyiv", "lyon"]), bare.weights([3, 1]))


@pytest.mark.parametrize(
    ("cohort", "match"),
    [
        (["berlin", "proto"], "'proto'; did you mean 'porto'"),
        (["berlin", "oslo"], "'oslo'; the clients are 'berlin', 'porto' and 'lyon'$"),
        (["berlin", "berlin"], "'berlin' more than once"),
        (["berlin", 1], "mixes names and indices, such as 'berlin' and 1"),
        ([1, 1], "'porto' more than once"),
        ("berlin", "found the text 'berlin'"),
        ([""], "unknown client, ''"),
        ({"berlin", "porto"}, "must have an order"),
        ({"berlin": 1, "porto": 2}, "must have an order"),
    ],
)
def test_a_cohort_with_a_wrong_name_is_refused(cohort, match):
    alignment = fa.align(SHARES, fa.UniformCohorts(3, 2, clients=CITIES))
    with pytest.raises(errors.CohortError, match=match):
        alignment.weights(cohort)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["a", "b"], "2 names for 3 clients"),
        (["a", "b", 3], "non-empty text; found 3"),
        (["a", "b", ""], "non-empty text; found ''"),
        (["a", "b", "a"], "the name 'a' more than once"),
        ("abc", "found the text 'abc'"),
        (3, "found 3"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda names: fa.UniformCohorts(3, 2, clients=names),
        lambda names: fa.align([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2), clients=names),
        lambda names: fa.certify([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2), clients=names),
        lambda names: fa.OnlineAligner([0.5, 0.3, 0.2], step=1.0, clients=names),
    ],
)
def test_names_that_do_not_fit_the_clients_are_refused(call, names, match):
    with pytest.raises(errors.OptionError, match=match):
        call(names)


@pytest.mark.parametrize(
    ("importance", "match"),
    [
        ({"berlin": 0.5, "porto": 0.5}, "no entry for 'lyon'"),
        ({"berlin": 0.5, "porto": 0.3, "lion": 0.2}, "'lion'; did you mean 'lyon'"),
        ({0: 0.5, 1: 0.3, 2: 0.2}, "unknown client, 0; the clients are"),
        ({"berlin": 0.5, "porto": 0.7, "lyon": -0.2}, "client 'lyon' is -0.2"),
        (SHARES | {"oslo": 0.0}, "unknown client, 'oslo'"),
    ],
)
def test_importance_by_name_has_exactly_the_clients(importance, match):
    law = fa.UniformCohorts(3, 2, clients=CITIES)
    for call in (fa.align, fa.certify):
        with pytest.raises(errors.ImportanceError, match=match):
            call(importance, law)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fa.IndependentClients([0.5, 0.5, 2.0], clients=CITIES), "client 'lyon' is 2.0"),
        (lambda: fa.SuccessiveDraws([1.0, -1.0, 1.0], 2, clients=CITIES), "client 'porto' is -1.0"),
        (lambda: fa.Cohorts([["lyon", "lyon"]], clients=CITIES), "'lyon' more than once"),
        (lambda: fa.Cohorts([["lyon"], ["lion"]], clients=CITIES), "a cohort .*'lion'; did you"),
        (lambda: fa.Cohorts.from_log([1, 1], ["lyon", 1]), "mixes names and indices"),
    ],
)
def test_a_law_names_the_client_that_is_wrong(call, match):
    with pytest.raises(errors.InputError, match=match):
        call()


def test_two_orders_of_the_same_names_are_refused():
    law = fa.UniformCohorts(3, 2, clients=CITIES)
    with pytest.raises(errors.OptionError, match="client 0 is 'lyon' in clients and 'berlin'"):
        fa.align([0.5, 0.3, 0.2], law, clients=CITIES[::-1])
    other = fa.UniformCohorts(3, 2, clients=CITIES[::-1])
    with pytest.raises(errors.OptionError, match="client 0 is 'berlin'"):
        fa.Mixture([law, other], [0.5, 0.5])


def test_new_clients_are_described_as_the_others_are():
    named, bare = fa.OnlineAligner(SHARES, step=1.0), fa.OnlineAligner([0.5, 0.5], step=1.0)
    with pytest.raises(errors.OptionError, match="have names"):
        named.join([0.1])
    with pytest.raises(errors.OptionError, match="have no names"):
        bare.join([0.1], clients=["oslo"])
    with pytest.raises(errors.OptionError, match="'lyon' more than once"):
        named.join([0.1], clients=["lyon"])
    assert named.n_clients == 3
    assert bare.n_clients == 2


def test_reprs_are_short_and_true():
    law = fa.Cohorts([[0, 1], [1, 2]])
    assert repr(law) == "Cohorts(3 clients, 2 cohorts)"
    assert repr(fa.UniformCohorts(4, 2)) == "UniformCohorts(4 clients, size 2)"
    assert repr(fa.Mixture([law, law], [0.5, 0.5])) == "Mixture(3 clients, 2 states)"
    assert repr(fa.SuccessiveDraws([1, 1, 1], 2)) == "SuccessiveDraws(3 clients, size 2)"
    independent = fa.IndependentClients([1.0, 0.5])
    assert repr(independent) == "IndependentClients(2 clients, mean cohort size 1.5)"
    alignment = fa.align([0.6, 0.2, 0.2], law)
    assert repr(alignment).startswith("Alignment(3 clients, nearest, gap 10.00%, residual ")
    assert repr(fa.certify([0.6, 0.2, 0.2], law)) == (
        "Certificate(infeasible, 1 deficient, deficiency 10.00%, Hall ratio 1.2)"
    )
    assert repr(fa.OnlineAligner([0.5, 0.5], step=1.0)) == "OnlineAligner(2 clients, 0 rounds)"
