"""Numbers, cells and columns, piece by piece."""

import numpy as np
import pytest

from fedavot.audit.recommending import Estimate
from fedavot.audit.report.page import _printable
from fedavot.audit.report.tables import Cell, Column, Table, percents
from fedavot.audit.report.terms import ABSENT, digits_of, number, share, times


def test_text_keeps_line_breaks_and_loses_other_control_characters():
    assert _printable('a\n"<&>"\x07\ud800') == 'a\n"<&>"\ufffd\ufffd'


def test_a_column_sorts_by_numbers_if_all_its_cells_have_one():
    assert Column("n", percents([1.0, np.nan])).numeric
    assert not Column("n", [Cell("a", "a"), Cell("1", 1.0)]).numeric


def test_a_cell_without_a_number_sorts_by_nothing():
    assert [cell.sorts_by for cell in percents([0.25, np.nan])] == ["0.25", ""]


def test_a_table_explains_the_headings_that_need_it_and_what_else_it_names():
    table = Table("t", "T", [Column("a", [], "what a is"), Column("b", [])], explained={"c": "C"})
    assert table.terms == {"a": "what a is", "c": "C"}


@pytest.mark.parametrize("value", [10.1, np.inf, np.nan])
def test_a_loss_many_times_as_large_has_no_number(value):
    assert times(value).startswith("over")
    assert times(Estimate(1.5, 1, 2).value) == "150\u202f%"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5, "50"),
        (0.0312, "3.1"),
        (1e-12, "0"),
        (-1e-12, "0"),
        (2e-7, "<0.0001"),
        (-0.25, "−25"),
        (1.0, "100"),
    ],
)
def test_shares_are_written_in_per_cent(value, written):
    assert share(value) == f"{written}\u202f%"


def test_what_is_not_known_is_a_dash():
    assert share(np.nan) == number(np.nan) == ABSENT


def test_shares_of_one_column_have_as_many_digits_as_most_of_them_need():
    assert digits_of([0.31, 0.2, 0.001]) == 0
    assert digits_of([0.00031, 0.0002, 0.2]) == 3
    assert digits_of([]) == 0
