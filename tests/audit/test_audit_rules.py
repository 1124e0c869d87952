"""The audit's rules have the names and labels that rules have everywhere."""

import made

from fedavot.audit.report.terms import MEANT
from fedavot.audit.statistics.rules import AS_APPLIED, label
from fedavot.rules.names import RuleName


def test_every_rule_that_an_audit_compares_has_a_label_and_a_place_in_sentences():
    rules = {one.rule for one in made.with_choice().price.standings}
    assert rules <= set(MEANT)
    assert rules - {AS_APPLIED} < set(RuleName)
    assert all(label(rule) != rule for rule in MEANT)


def test_a_rule_of_another_version_is_called_by_its_name():
    assert label("of-another-version") == "of-another-version"
