"""Cells of CSV files: spreadsheets run none as a formula, and text comes back as it was."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot import importance
from fedavot._reading import csv_line as line
from fedavot._reading import guarded, unguarded

FORMULAS = [
    "=1+1",
    "=cmd|'/c calc'!A0",
    "+a",
    "-a",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "-",
    "=",
    "--1",
]
RISKY = "=+-@\t\r\n"
NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_run_is_written_behind_an_apostrophe(text):
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize(
    "text", ["-1", "+1.5", "-1e-3", "-.5", "1-2", "a=b", "", "'a", "berlin", " =1"]
)
def test_numbers_and_plain_text_are_written_as_they_are(text):
    assert guarded(text) == text


@given(st.text() | st.text(alphabet="'=+-@\t\r\n1a."))
def test_text_comes_back_from_its_cell(text):
    cell = guarded(text)
    assert unguarded(cell) == text
    assert not cell or cell[0] not in RISKY or NUMBER.fullmatch(cell)


def test_importance_by_names_like_formulas_is_read_back(tmp_path):
    names = [*FORMULAS, "'=1", "''=1", "berlin", "-1", "a\rb", "a\nb", "a\r\nb", 'a"b', "a,b"]
    path = tmp_path / "importance.csv"
    text = line(["client", "importance"]) + "".join(line([name, 1]) for name in names)
    path.write_bytes(text.encode())
    assert list(importance.read_mapping(path)) == names
