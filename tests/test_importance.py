"""Importance helpers return distributions, and name what stops them."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot import importance as fi
from fedavot.errors import FedavotError, FileFormatError, ImportanceError

ROUNDING = 1e-14
"""A few units in the last place of a sum of at most a few dozen shares."""

SUBNORMAL = 1e-300
"""Shares below it have no relative precision left."""

COUNTS = st.lists(st.floats(0.0, 1e300), min_size=1, max_size=20).filter(any)
"""Counts of any magnitude, one at least above zero."""


@given(COUNTS)
def test_by_examples_is_proportional_to_the_counts_and_sums_to_one(counts):
    shares = fi.by_examples(counts)
    assert abs(shares.sum() - 1) < ROUNDING
    relative = np.array(counts) / max(counts)
    np.testing.assert_allclose(shares / shares.max(), relative, rtol=1e-12, atol=SUBNORMAL)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(1e-3, 1e300)), min_size=1))
def test_by_group_gives_every_group_its_share_in_proportion_within(clients):
    groups = [group for group, _ in clients]
    sizes = np.array([size for _, size in clients])
    present = sorted(set(groups))
    parts = {label: (1 + place) for place, label in enumerate(present)}
    targets = {label: part / sum(parts.values()) for label, part in parts.items()}
    shares = fi.by_group(groups, targets, within=sizes)
    for label in present:
        members = np.array(groups) == label
        assert abs(shares[members].sum() - targets[label]) < ROUNDING
        largest = sizes[members].max()
        expected = sizes[members] / largest * shares[members].max()
        np.testing.assert_allclose(shares[members], expected, rtol=1e-12)


@given(COUNTS, st.floats(0.0, 1e4))
def test_tempered_raises_the_odds_between_clients_to_the_exponent(counts, exponent):
    shares = fi.by_examples(counts)
    result = fi.tempered(shares, exponent=exponent)
    assert abs(result.sum() - 1) < ROUNDING
    expected = np.where(shares > 0, (shares / shares.max()) ** exponent, 0.0)
    np.testing.assert_allclose(result / result.max(), expected, rtol=1e-10, atol=SUBNORMAL)


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "client,importance\nlyon,3\nporto,0.5\nrome,0\n"),
        ("a.csv", "client,importance\r\nlyon,3\r\nporto,5e-1\r\nrome,0\r\n"),
        ("a.csv", "importance,country,client\n3,FR,lyon\n0.5,PT,porto\n0,IT,rome\n"),
        ("a.csv", " Client , Importance \nlyon,3\n\nporto, 0.5\nrome,0"),
        ("a.csv", '\ufeffclient,importance\n"lyon",3\n"porto","0.5"\nrome,0\n'),
        ("a.csv", "client,examples\nlyon,3\nporto,0.5\nrome,0\n"),
        ("a.csv", "client,examples,importance\nlyon,900,3\nporto,1,0.5\nrome,7,0\n"),
        ("a.txt", "client,importance\nlyon,3\nporto,0.5\nrome,0\n"),
        ("a.json", '{"lyon": 3, "porto": 0.5, "rome": 0}'),
        ("a.JSON", '\ufeff \n{"lyon": 3.0, "porto": 5e-1, "rome": 0}\n'),
    ],
)
def test_read_mapping_reads_what_is_meant(tmp_path, name, content):
    mapping = fi.read_mapping(written(tmp_path / name, content))
    assert mapping == {"lyon": 3.0, "porto": 0.5, "rome": 0.0}
    assert list(mapping) == ["lyon", "porto", "rome"]


NAMES = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\r\x00"), min_size=1, max_size=8
)


@pytest.mark.parametrize("suffix", ["csv", "json"])
@given(st.dictionaries(NAMES, st.floats(0, 1e300), min_size=1).filter(lambda m: any(m.values())))
def test_read_mapping_gives_back_any_names_and_numbers(tmp_path_factory, suffix, mapping):
    path = tmp_path_factory.mktemp("mapping") / f"a.{suffix}"
    with path.open("w", encoding="utf-8", newline="") as stream:
        if suffix == "json":
            json.dump(mapping, stream)
        else:
            rows = csv.writer(stream)
            rows.writerow(["client", "importance"])
            rows.writerows((name, repr(value)) for name, value in mapping.items())
    assert fi.read_mapping(path) == mapping


REFUSED: dict[tuple[str, type[FedavotError]], list[tuple[str | bytes, str]]] = {
    ("a.csv", FileFormatError): [
        ("", r"a\.csv is empty; it needs a header line and rows"),
        ("lyon,3\nporto,1\n", "it must have client, and importance"),
        ("client,weight\na,1\n", "line 1: the columns are 'client' and 'weight'"),
        ("client,importance\na,1,2\n", "line 2: 3 fields, but the header has 2"),
        ("client,importance\na\n", "line 2: 1 fields"),
        ('client,importance\n"a,1\n', "line 2"),
        ("client,importance\na,1\nb,2\na,3\n", "line 4: client 'a' a second"),
        ("client,importance\n,1\n", "line 2: .*name"),
        ("client,importance\n", "has no clients"),
        (b"client,importance\n\xff,1\n", "is not UTF-8"),
    ],
    ("a.csv", ImportanceError): [
        ("client,importance\na,-1\n", "line 2: .* 'a' is '-1'"),
        ("client,importance\na,nan\n", "'a' is 'nan'; it must be a fin"),
        ("client,importance\na,\n", "'a' is ''"),
        ("client,importance\na,0\n", "no client an importance above 0"),
    ],
    ("a.json", FileFormatError): [
        ("", "not valid JSON"),
        ("[1, 2]", "must hold one object"),
        ('{"a": 1, "a": 2}', "key 'a' occurs more than once"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"": 1}', "name"),
        ("{}", "has no clients"),
    ],
    ("a.json", ImportanceError): [
        ('{"a": true}', "'a' is True"),
        ('{"a": null}', "'a' is None"),
        ('{"a": -0.5}', r"'a' is -0\.5"),
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        (name, content, error, message)
        for (name, error), cases in REFUSED.items()
        for content, message in cases
    ],
)
def test_read_mapping_names_the_file_and_the_place(tmp_path, name, content, error, message):
    path = written(tmp_path / name, content)
    with pytest.raises(error, match=message) as caught:
        fi.read_mapping(path)
    assert name in str(caught.value)


def test_read_mapping_of_no_file_says_which(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        fi.read_mapping(tmp_path / "nowhere.csv")
