"""The summary on a terminal, from findings made without an audit."""

import io

import made
import pytest
from rich.console import Console

from fedavot.audit.decision.rules import label
from fedavot.audit.findings import Advice
from fedavot.audit.report.availability_words import OWED
from fedavot.cli.summary import show


def printed(findings):
    """Return what is printed on a wide terminal, by line."""
    written = io.StringIO()
    show(Console(file=written, width=120), findings, None, ())
    return written.getvalue().splitlines()


def heading(lines):
    return next(line for line in lines if line.split()[:1] == ["group"])


def test_the_recommended_rule_is_marked():
    findings = made.findings()
    lines = printed(findings)
    assert any(line.startswith(f"    {label(findings.advice.rule)} *") for line in lines)
    assert any(line.strip() == "* recommended" for line in lines)


def test_no_rule_is_marked_if_more_rounds_are_needed():
    short = Advice("collect more rounds", "Too short.", "fedavg", rounds_needed=900)
    assert not any("*" in line for line in printed(made.findings(advice=short)))


@pytest.mark.parametrize(
    ("findings", "owed"), [(made.findings, False), (made.unknown_client, True)]
)
def test_the_table_is_headed_owed_and_owed_is_defined_where_states_are_unknown(findings, owed):
    lines = printed(findings())
    assert ("owed" in heading(lines)) == owed
    assert ("importance" in heading(lines)) != owed
    text = " ".join(" ".join(lines).split())
    assert (OWED in text) == owed
