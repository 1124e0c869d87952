"""What changed since the last audit is told, and what did not is not."""

import json
from dataclasses import replace

import made
import numpy as np
import pytest

from fedavot.audit.findings import Reached
from fedavot.audit.recommending import Estimate
from fedavot.audit.report.comparison import compare
from fedavot.audit.report.document import findings_document, read_findings, write_findings
from fedavot.errors import FileFormatError


def changed(before, after):
    """Return the changes by name."""
    changes = compare(findings_document(before), after)
    assert len({change.name for change in changes}) == len(changes)
    return {change.name: change for change in changes}


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_nothing_changed_between_equal_audits(tmp_path, variant):
    write_findings(variant(), tmp_path / "findings.json")
    assert compare(read_findings(tmp_path / "findings.json"), variant()) == ()


@pytest.mark.parametrize("before", made.VARIANTS)
@pytest.mark.parametrize("after", made.VARIANTS)
def test_any_two_audits_can_be_compared(before, after):
    for change in compare(json.loads(json.dumps(findings_document(before()))), after()):
        assert change.before != change.after or change.name in {"clients", "groups"}
        assert change.words.endswith(".")
        assert "nan" not in change.words
        assert "None" not in change.words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.25, 0.45, "intervals overlap"), (0.35, 0.45, "intervals do not overlap")],
)
def test_a_gap_is_told_with_whether_the_intervals_overlap(low, high, words):
    before = made.findings(gap=Estimate(0.28, 0.25, 0.31))
    change = changed(before, made.findings(gap=Estimate(0.4, low, high)))
    assert list(change) == ["gap of the plain average"]
    told = change["gap of the plain average"]
    assert (told.before, told.after) == ("28\u202f%", "40\u202f%")
    assert words in told.words


def test_a_gap_that_reads_the_same_has_not_changed():
    before = made.findings(gap=Estimate(0.28001, 0.25, 0.31))
    assert changed(before, made.findings(gap=Estimate(0.27999, 0.1, 0.2))) == {}


def test_another_importance_is_said_before_anything_else():
    changes = compare(findings_document(made.findings()), made.infeasible())
    assert changes[0].name == "importance"
    assert "different objectives" in changes[0].words
    assert "importance" not in changed(made.findings(), made.findings())


def test_a_new_recommendation_comes_next():
    changes = compare(findings_document(made.findings()), made.infeasible())
    told = changes[1]
    assert (told.name, told.before) == ("recommendation", "use memory, with FedAVOT, steady")
    assert told.after == "change the weights, with FedAVOT, soft"


def test_another_rule_in_use_is_told():
    change = changed(made.findings(), made.findings(in_use="by-examples"))
    assert [*change] == ["rule in use"]
    assert change["rule in use"].after == "average by examples"


def test_what_became_impossible_is_told_with_who_is_out_of_reach():
    change = changed(made.findings(), made.infeasible())
    told = change["exact alignment"]
    assert (told.before, told.after) == ("possible", "not possible")
    assert change["clients out of reach"].before == "0 clients"
    assert "clinic-1 and clinic-2" in change["clients out of reach"].words
    assert change["importance that no weights can deliver"].before == "0\u202f%"


def test_doubt_about_the_long_run_comes_and_goes():
    doubtful = made.findings(reach=replace(made.findings().reach, sure=False))
    came = changed(made.findings(), doubtful)["exact alignment"]
    went = changed(doubtful, made.findings())["exact alignment"]
    assert came.before == went.after == "possible"
    assert came.after == went.before
    assert "uncertain" in came.after


def with_deficient(clients):
    reach = made.infeasible().reach
    set_of = Reached(np.array(clients), reach.deficient.importance, reach.deficient.coverage)
    return made.infeasible(reach=replace(reach, deficient=set_of))


def test_who_joined_and_who_left_a_set_is_named():
    told = changed(with_deficient([0, 1]), with_deficient([1, 2]))
    assert list(told) == ["clients out of reach"]
    came, gone = told["clients out of reach"].words.split("No longer")
    assert "phone-1" in came
    assert "clinic-1" in gone


def test_of_many_that_joined_some_are_named_and_the_rest_counted():
    told = changed(with_deficient([0, 1]), with_deficient(range(12)))["clients out of reach"]
    assert told.after == "12 clients"
    assert "phone-5 and 5 more." in told.words


def test_an_infinite_hall_ratio_is_told_as_such():
    told = changed(made.infeasible(), made.never_seen())["Hall ratio"]
    assert told.after == "∞"


def test_the_hall_ratio_of_what_is_possible_is_left_out():
    reach = replace(made.findings().reach, hall_ratio=Estimate(0.5, 0.4, 0.6))
    assert changed(made.findings(), made.findings(reach=reach)) == {}


@pytest.mark.parametrize(
    ("name", "fields", "after"),
    [
        ("number of rounds", {"rounds": 1, "entries": 3}, "1"),
        ("number of empty rounds", {"empty_rounds": 9}, "9"),
        ("tolerance", {"tolerance": 0.1}, "10\u202f%"),
        ("log", {"source": "june.csv"}, "june.csv"),
        ("share of unknown states", {"unknown_share": 0.25}, "25\u202f%"),
        ("mean number of clients per round", {"entries": 30 * made.ROUNDS}, "30.0"),
    ],
)
def test_a_changed_figure_is_told(name, fields, after):
    told = changed(made.findings(), made.findings(**fields))[name]
    assert told.after == after
    assert told.before in told.words
    assert told.after in told.words


def test_clients_that_came_and_went_are_named_even_if_as_many():
    clients = ("\x1b[2Jnew", *made.CLIENTS[1:])
    told = changed(made.findings(), made.findings(clients=clients))["clients"]
    assert (told.before, told.after) == ("12 clients", "12 clients")
    assert (
        told.words == "Now among the clients: \\x1b[2Jnew. No longer among the clients: clinic-1."
    )


def test_a_groups_share_is_told_for_the_groups_that_changed():
    parts = made.findings().by_group
    more = parts.implied + np.array([0.1, 0.0, -0.1])
    change = changed(made.findings(), made.findings(by_group=replace(parts, implied=more)))
    names = [f"share of the plain average of group {one}" for one in ("clinics", "tablets")]
    assert sorted(change) == names
    told = change[names[0]]
    assert told.before != told.after


def test_new_and_missing_groups_are_named():
    change = changed(made.findings(), made.findings(groups=("labs", "phones", "tablets")))
    assert (
        change["groups"].words == "Now among the groups: labs. No longer among the groups: clinics."
    )


@pytest.mark.parametrize("name", [-1, 5e-324, None, ["fedavg"]])
@pytest.mark.parametrize("place", ["in use", "best"])
def test_a_rule_that_is_no_name_is_refused(place, name):
    before = json.loads(json.dumps(findings_document(made.findings())))
    if place == "best":
        before["recommendation"]["best"] = {"rule": name}
    else:
        before["in_use"] = name
    with pytest.raises(FileFormatError, match="is not a name"):
        compare(before, made.findings())


def test_a_recommendation_of_no_rule_names_none():
    advice = replace(made.findings().recommendation, best=None)
    change = changed(made.findings(), made.findings(recommendation=advice))
    assert change["recommendation"].after == advice.action
