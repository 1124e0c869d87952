"""The summary on a terminal, from findings made without an audit."""

import io

import made
import pytest
from rich.console import Console

from fedavot.audit.report.terms import OWED
from fedavot.audit.statistics.rules import label
from fedavot.cli.summary import show


def printed(findings):
    """Return what is printed on a wide terminal, by line."""
    written = io.StringIO()
    show(Console(file=written, width=120), findings, None, ())
    return written.getvalue().splitlines()


def heading(lines):
    return next(line for line in lines if line.split()[:1] == ["Group"])


def test_the_rules_in_use_and_recommended_are_marked():
    lines = [line.strip() for line in printed(made.with_choice())]
    for rule, sign in (("fedavot-select", "*"), ("fedavot-online", "+"), ("as-applied", "<")):
        marked = [line for line in lines if line.startswith(f"{label(rule)} {sign}")]
        assert len(marked) == 2  # of the replay, and of the gaps


@pytest.mark.parametrize("recommendation", [made.KEEP, made.SHORT])
def test_only_the_rule_in_use_is_marked_if_none_is_recommended(recommendation):
    lines = printed(made.findings(recommendation=recommendation))
    assert any(f"{label('fedavg')} <" in line for line in lines)
    assert not any("*" in line or "+ " in line for line in lines)


def test_no_number_is_cut_on_a_terminal_of_80_columns():
    written = io.StringIO()
    show(Console(file=written, width=80), made.with_choice(), None, ())
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in written.getvalue()


@pytest.mark.parametrize(
    ("findings", "owed"), [(made.findings, False), (made.unknown_client, True)]
)
def test_the_table_is_headed_owed_and_owed_is_defined_where_states_are_unknown(findings, owed):
    lines = printed(findings())
    assert ("Owed" in heading(lines)) == owed
    assert ("Importance" in heading(lines)) != owed
    text = " ".join(" ".join(lines).split())
    assert (OWED in text) == owed
