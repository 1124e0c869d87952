"""Text files are read strictly, and what is wrong with one is said with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot._reading import (
    SEPARATORS,
    csv_table,
    decoded,
    json_in,
    parse_json,
    read_text,
    unguarded,
)
from fedavot._reading import csv_line as line
from fedavot.audit.reading.files.csv_text import OpenQuoteError, csv_header, csv_rows
from fedavot.errors import FileFormatError

NAMES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1)


def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa\nb\n\xe9\n")
    with pytest.raises(FileFormatError, match=r"a\.csv, line 3: byte 0xe9"):
        read_text(tmp_path / "a.csv")
    with pytest.raises(FileFormatError, match="line 11: byte 0xff"):
        decoded(b"a\n\xff", "a.csv", line=10)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=5))
def test_what_is_written_is_read_back_whatever_the_names(rows):
    text = "".join(line(row) for row in rows)
    found = [tuple(map(unguarded, row)) for row, _ in csv_rows(text, "a.csv")]
    assert found == rows


def test_rows_have_the_line_that_they_begin_on():
    found = list(csv_rows('a,b\n\n"c\nd",e\nf,g\n', "a.csv", line=5))
    assert found == [(["a", "b"], 5), (["c\nd", "e"], 7), (["f", "g"], 9)]


def test_a_quote_that_is_not_closed_is_told_from_other_mistakes():
    rows = csv_rows('a,b\n"c,d\n', "a.csv")
    assert next(rows) == (["a", "b"], 1)
    with pytest.raises(OpenQuoteError, match=r"a\.csv, line 2") as caught:
        next(rows)
    assert caught.value.line == 2
    with pytest.raises(FileFormatError, match="line 1") as other:
        list(csv_rows('"a"b,c\n', "a.csv"))
    assert not isinstance(other.value, OpenQuoteError)


def test_every_row_of_a_table_is_as_wide_as_its_header():
    rows = csv_table("\n Client ,X\na,1\n", "a.csv", ["client", "x"])
    assert rows == [(["client", "x"], 2), (["a", "1"], 3)]
    with pytest.raises(FileFormatError, match="line 3: 1 fields"):
        csv_table(" Client ,X\na,1\nb\n", "a.csv", ["client", "x"])
    with pytest.raises(FileFormatError, match="empty"):
        csv_table("\n\n", "a.csv", ["client"])


@pytest.mark.parametrize("separator", list(SEPARATORS))
@pytest.mark.parametrize("mark", ["", '"'])
@pytest.mark.parametrize("known", ["id", "neither"])
def test_the_separator_is_told_from_the_header_and_the_rows(separator, mark, known):
    cells = [["id", "a b" if mark else "ab", "c;d,e|f" if mark else "c"], ["1", "2", "3"]]
    text = "".join(separator.join(f"{mark}{cell}{mark}" for cell in row) + "\n" for row in cells)
    found = csv_header(text, "a.csv", lambda name: name == known)
    assert (found.separator, found.names, found.lines) == (separator, cells[0], 1)


def test_of_two_separators_that_of_known_columns_or_equal_rows_is_taken():
    assert csv_header("a;b,client\n1;2,3\n", "x", "client".__eq__).separator == ","
    assert csv_header("a;b,c\n1;2\n3;4,5,6\n", "x", "client".__eq__).separator == ";"
    assert csv_header("a   b\n1 2\n", "x", "client".__eq__).names == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,\n}', "line 2"),
        ('{"a": 1, "a": 2}', "'a' occurs more than once"),
        ("[NaN]", "NaN"),
        ("9" * 301, "301 digits"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_the_reason(text, words):
    with pytest.raises(FileFormatError, match=rf"a\.json.*{words}"):
        json_in(text, "a.json")


def test_nan_is_read_where_that_is_asked_for():
    assert parse_json(b"[NaN]", nan=True)[0] != parse_json(b"[NaN]", nan=True)[0]
