"""Text, tables and numbers of the page, piece by piece."""

import numpy as np
import pytest

from fedavot.audit.report.markup import Cell, Column, figures, name, paragraphs, table, text
from fedavot.audit.report.numerals import ABSENT, digits_of, number, share


def test_text_keeps_line_breaks_and_loses_other_control_characters():
    assert text('a\n"<&>"\x07\ud800') == "a\n&quot;&lt;&amp;&gt;&quot;\ufffd\ufffd"


def test_a_name_of_spaces_is_said_to_be_none():
    assert name("  ") == '<bdi class="name">(no name)</bdi>'


def test_a_column_sorts_by_numbers_if_all_its_cells_have_one():
    assert Column("n", figures([1.0, np.nan], ["1", "–"])).numeric
    assert not Column("n", [Cell("a", "a"), Cell("1", 1.0)]).numeric


def test_a_table_that_can_be_searched_says_by_what():
    columns = [Column("Client", [Cell("a", "a")])]
    assert 'data-find="Find a client"' in table("t", columns, key="k", find="Find a client")
    assert "data-find" not in table("t", columns, key="k")


def test_no_sentences_are_no_paragraphs():
    assert paragraphs(()) == ""
    assert paragraphs(("One.",)) == '<p class="lead">One.</p>'


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
