"""Bad logs: a message with file, line and remedy, or a note; never another library's error."""

import gzip
from unittest import mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot.audit import read_log
from fedavot.audit.reading.files import blocks
from fedavot.errors import FedavotError, FileFormatError, OptionError

HEAD = b"round,client\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bad")


def saved(folder, content, name="log.csv"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "log.csv is empty; a log needs a header line and rows"),
        (b"\n\n", "log.csv is empty"),
        (HEAD, "has a header and no rows"),
        (b"round,client", "has a header and no rows"),
        (b"client,start,end\n", "has a header and no rows"),
        (
            b"when,who\n1,a\n",
            r"columns are 'when' and 'who'; .*columns=\{.round.: .when., .client.: .who.}",
        ),
        (b"1,phone\n2,phone\n", "if this line is data, add a header above it: round,client"),
        # Each time would be a round of its own.
        (b"ts,node\n10,a\n11,b\n", "there are times, and no rounds; add a column round"),
        (b"client,importance\na,1\n", "this is a table of importance: give another file"),
        (b"round,client,client\n1,a,b\n", "2 columns are called 'client'; rename all but one"),
        (b'round,"client\n1,a\n', "line 1: unexpected end of data"),
        (HEAD + b"1,a\n2,b,c\n", "line 3: 3 fields, but the header has 2"),
        (HEAD + b"1,a\n2\n3,c\n", "line 3: 1 fields, but the header has 2"),
        (HEAD + b"1,a,x\n2\n", "line 2: 3 fields, but the header has 2"),
        (HEAD + b"1,a\n,b\n", "line 3: no round; fill it in, or remove the line"),
        (HEAD + b"1,a\n2, \n3,b\n", "line 3: no client; fill it in"),
        (HEAD + b'1,a\n2,"b\n3,c\n', "line 3: a quote is opened and not closed"),
        (HEAD + b'1,a\n2,"b"x\n3,c\n', "line 3: ',' expected after '\"'"),
        (HEAD + b'1,a\n2,"' + b"x" * 200_000 + b"\n3,c\n", "line 3: field larger than field limit"),
        (HEAD + b"1,a\n2,b\0\n", "line 3: a NUL byte"),
        (HEAD + b"1,a\n2,caf\xe9\n", "line 3: byte 0xe9 is not UTF-8; in Latin-1 .*'é'.*iconv"),
        (HEAD + b"1,caf\xe9s", "line 2: byte 0xe9 is not UTF-8"),
        ("round,client\n1,a\n".encode("utf-32"), "is UTF-32 text; save it as UTF-8"),
        (
            gzip.compress(HEAD, mtime=0)[:12],
            "is cut off before its first line ends; compress it again",
        ),
        (b"round,a,b\n1,0,1\n", "if every client has a column, write one row per round and client"),
        (b"client\na\n", "needs round and client, .*: add them, or add a header line"),
        (HEAD + b'1,a\n2,"b\n3,c\n', "opened and not closed"),
        (b"XXXX" + b"\0" * 50 + b"PAR1", "is damaged: Parquet without its beginning"),
        (b'{"round": NaN, "client": "a"}\n', "line 1: no round; fill it in"),
        (b'{"round": 1, "client": Infinity}\n', "line 1: no client; fill it in"),
        (b'{"round": 1, "client": {}}\n', "line 1: 'client' is an object; it must be text"),
        (b'{"round": 1, "client": {"a": 1}}\n', "columns are 'round' and 'client.a'"),
        (b'{\n"round": 1}\n', "line 1: .*; write one object per line"),
        (b'{"round": ' + b"9" * 5000 + b"}\n", "line 1: .*5000 digits"),
        ("round,client\n1,a\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("round,client\n1,a\n".encode("utf-16-le"), "NUL bytes between its letters: UTF-16"),
        (b"round,client\r1,a\r2,b\r", "line 1: carriage returns for line ends"),
        (b"PK\x03\x04xxxx", "a zip archive or a spreadsheet; export the table as CSV"),
        (b'[{"round": 1}]', "line 1: a JSON list; write JSON lines"),
        (b'{"round": 1, "client": "a"}\n{"round": 2,\n', "line 2: not a JSON object"),
        (b'{"round": 1, "client": "a"}\n{"round": 2}\n', "line 2: no client"),
        (b'{"round": 1, "client": [["a"]]}\n', "line 1: 'client' is a list; it must be text"),
        (b'{"round": 1, "clients": "a", "status": ["ok"]}\n', "line 1: 'status' is a list"),
        (
            b'{"round": 1, "clients": ["a", "b"], "status": ["ok"]}\n',
            "line 1: 'status' has 1 entries, and there are 2 clients",
        ),
        (b'{"round": 1, "client": null}\n', "line 1: no client"),
        (b'\n{"round": 1', "has no complete line"),
        (b'{"round": 1', "line 1: not a JSON object"),
        (b'{"round": 1, "client": "a"}\n\n{"round": 2}\n', "line 3: no client"),
        (b"PAR1 and nothing else", "is cut off: .*Parquet"),
        (b"PAR1" + b"\7" * 60 + b"PAR1", "is damaged or not Parquet"),
        (
            gzip.compress(HEAD + b"1,a\n", mtime=0)[:-6] + b"abcdef",
            "is damaged: .*; compress it again",
        ),
        (b"\x1f\x8bxxxxxxxxxx", "is damaged"),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_a_remedy(folder, content, words):
    with pytest.raises(FileFormatError, match=words):
        read_log(saved(folder, content), period=1 if b"start" in content else None)


TIMED = b"round,client,time\n"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (b"1,a,5\n2,a,noon\n", "line 3: time is 'noon'; it must be a number of seconds, or"),
        (b"1,a,5\n2,a,\n", "line 3: time is empty"),
        (b"1,a,5\n2,a,inf\n", "line 3: time is 'inf'"),
        (b"1,a,5\n2,a,1_0\n", "line 3: time is '1_0'"),
        (b"1,a,5\n2,a,2024-01-01\n", "line 3: .* a date without an offset, .* a number of seconds"),
        (
            b"1,a,2024-01-01T00:00Z\n2,a,2024-01-01\n",
            "line 3: .* is a date without an offset, .* are a date with an offset; write all",
        ),
        (b"1,a,2024-13-01\n", "line 2: time is '2024-13-01'"),
    ],
)
def test_a_bad_or_mixed_time_is_refused_with_its_line(folder, rows, words):
    with pytest.raises(FileFormatError, match=words):
        read_log(saved(folder, TIMED + rows))


def test_lines_are_counted_across_blocks_and_quoted_line_ends(folder):
    rows = b'1,"two\nlines"\n' * 40 + b"1,a\n" * 40
    with (
        mock.patch.object(blocks, "BLOCK", 37),
        pytest.raises(FileFormatError, match="line 122: 1 fields"),
    ):
        read_log(saved(folder, HEAD + rows + b"oops\n3,c\n"))


@pytest.mark.parametrize("tail", [b"2", b"2,", b"2,phone-", b'2,"phone', b"2,phone-\xc3", b"2,pho"])
def test_a_last_line_that_is_cut_off_is_dropped_with_a_note(folder, tail):
    log = read_log(saved(folder, HEAD + b"1,phone-1\n1,phone-2\n" + tail))
    assert log.clients == ("phone-1", "phone-2")
    assert log.notes == ("line 4, the last, is cut off: dropped",)


@pytest.mark.parametrize("tail", [b"2,phone-1", b"2,other", b'2,"phone-1"'])
def test_a_last_line_that_only_lacks_its_end_is_read(folder, tail):
    log = read_log(saved(folder, HEAD + b"1,phone-1\n1,phone-2\n" + tail))
    assert log.n_rounds == 2
    assert log.notes == ()


def test_a_last_status_that_is_cut_off_is_dropped(folder):
    log = read_log(saved(folder, b"round,client,status\n1,a,replied\n2,a,repl"))
    assert log.n_rounds == 1
    assert log.notes[0] == "line 3, the last, is cut off: dropped"


def test_a_last_time_that_is_cut_off_is_dropped(folder):
    log = read_log(saved(folder, TIMED + b"1,a,2024-01-01T00:00:00Z\n2,b,2024-01-0"))
    assert log.clients == ("a",)


def test_a_compressed_log_that_is_cut_off_is_read_up_to_there(folder):
    rows = b"".join(b"%d,client-%d\n" % (i // 9, i * i % 97) for i in range(5000))
    packed = gzip.compress(HEAD + rows)
    log = read_log(saved(folder, packed[: len(packed) // 2]))
    assert 0 < log.n_rounds < 556
    assert "the compressed file is cut off; it was read up to line" in log.notes[0]


def test_members_of_a_compressed_file_are_joined(folder):
    log = read_log(saved(folder, gzip.compress(HEAD + b"1,a") + gzip.compress(b"b\n2,c\n")))
    assert log.clients == ("ab", "c")


def test_half_a_pair_of_surrogates_is_spelt_out(folder):
    log = read_log(saved(folder, b'{"round": 1, "client": "\\ud83d"}\n'))
    assert log.clients == ("\\ud83d",)


def test_nested_parquet_is_refused_by_column(folder):
    path = folder / "nested.parquet"
    pl.DataFrame({"round": [1], "client": [["a"]]}).write_parquet(path)
    with pytest.raises(FileFormatError, match="column 'client' holds List"):
        read_log(path)


def test_an_empty_value_in_parquet_is_refused_by_row(folder):
    path = folder / "gap.parquet"
    pl.DataFrame({"round": [1, None], "client": ["a", "b"]}).write_parquet(path)
    with pytest.raises(FileFormatError, match="row 2: no round; fill it in, or remove the row"):
        read_log(path)


def test_columns_that_no_log_has_are_refused(folder):
    path = saved(folder, HEAD + b"1,a\n")
    with pytest.raises(OptionError, match="columns has 'cleint'; it may have round, client"):
        read_log(path, columns={"cleint": "x"})
    with pytest.raises(FileFormatError, match="no column 'x' for the client; the columns are"):
        read_log(path, columns={"client": "x"})


PIECES = st.sampled_from(
    [HEAD, b"1,a\n", b"2,b\n", b'"', b",", b"\r", b"\n", b"\xff", b"\0", b"{", b'{"round":1}', b"x"]
)


def outcome(path):
    """Return the clients that are read, or what our error says; any other error is a failure."""
    try:
        return read_log(path).clients
    except FedavotError as error:
        return str(error)


@given(content=st.lists(PIECES, max_size=12).map(b"".join), headed=st.booleans())
def test_whatever_the_bytes_only_our_errors_are_raised(folder, content, headed):
    path = saved(folder, (HEAD if headed else b"") + content)
    found = outcome(path)
    assert found
    assert isinstance(found, tuple) or str(path) in found


@given(cut=st.integers(0, 700))
def test_a_parquet_file_cut_off_anywhere_is_refused_as_such(folder, cut):
    path = folder / "whole.parquet"
    pl.DataFrame({"round": [1, 2], "client": ["a", "b"]}).write_parquet(path)
    whole = path.read_bytes()
    content = whole[: min(cut, len(whole) - 1)]
    found = outcome(saved(folder, content, "cut.parquet"))
    words = "is cut off" if len(content) >= 4 else "cut.parquet"
    assert isinstance(found, str)
    assert words in found


def test_one_column_for_two_meanings_is_refused(folder):
    path = saved(folder, HEAD + b"1,a\n")
    with pytest.raises(FileFormatError, match="column 'client' is both the round and the client"):
        read_log(path, columns={"round": "client"})


@pytest.mark.parametrize("role", ["round", "client"])
def test_not_a_number_in_parquet_is_missing(folder, role):
    path = folder / "nan.parquet"
    columns = {"round": [1.0, 2.0], "client": [3.0, 4.0]}
    columns[role][1] = float("nan")
    pl.DataFrame(columns).write_parquet(path)
    with pytest.raises(FileFormatError, match=f"row 2: no {role}; fill it in"):
        read_log(path)
