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


@pytest.mark.parametrize("options", [{"softness": 0}, {"softness": 0.1}])
def test_online_aligners_learn_and_save_by_name(options, tmp_path):
    kind = fa.OnlineAligner
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
