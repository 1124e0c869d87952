"""Findings as files hold what was found; a file that no audit wrote is refused."""

import csv
import json
import os
from dataclasses import fields, is_dataclass, replace

import made
import numpy as np
import pytest

import fedavot as fa
from fedavot.audit import Participation
from fedavot.audit.federation import federation_of
from fedavot.audit.findings import Behaviour, Findings, Shares
from fedavot.audit.recommending import Estimate
from fedavot.audit.report.document import (
    COLUMNS,
    ELSEWHERE,
    findings_document,
    read_findings,
    write_clients,
    write_findings,
)
from fedavot.errors import FileFormatError
from fedavot.flower import Weighting
from sealing import sealed

WRITERS = (write_findings, write_clients)
SEALS = {"format", "version", "fedavot", "importance_digest"}
"""Keys of findings.json beside the attributes of the findings."""


def named(findings, clients):
    return [findings.clients[client] for client in clients]


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_what_is_written_is_read_back(tmp_path, variant):
    write_findings(variant(), tmp_path / "findings.json")
    assert read_findings(tmp_path / "findings.json") == findings_document(variant())


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_a_document_is_strict_json(variant):
    document = findings_document(variant())
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def attributes(value):
    """Return what a finding has in findings.json, by attribute; None if it is no object."""
    if is_dataclass(value):
        return {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.name not in ELSEWHERE
        }
    return value._asdict() if hasattr(value, "_asdict") else None


def compare_keys(value, written):
    """Compare the keys of an object with the attributes that it is made from, and go inside."""
    held = attributes(value)
    if held is not None:
        assert list(written) == list(held)
        for name, part in held.items():
            compare_keys(part, written[name])
    elif isinstance(value, tuple):
        for part, one in zip(value, written, strict=True):
            compare_keys(part, one)
    else:
        assert not isinstance(written, dict)


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_the_keys_are_the_attributes_of_the_findings_and_of_their_parts(variant):
    document = findings_document(variant())
    compare_keys(variant(), {key: document[key] for key in document if key not in SEALS})


def test_what_findings_json_leaves_out_is_in_the_table_of_clients_or_in_the_alignment():
    everywhere = {field.name for part in (Findings, Shares, Behaviour) for field in fields(part)}
    assert everywhere >= ELSEWHERE
    columns = {field.name for field in fields(Shares)} | {"client", "group", "level"}
    assert set(COLUMNS) == columns | {"implied_first_half", "implied_last_half"}
    assert ELSEWHERE - set(COLUMNS) == {"alignment", "by_client", "group_of"}


def test_the_figures_are_those_of_the_findings():
    findings = made.infeasible()
    document = findings_document(findings)
    reach = findings.reach
    assert document["clients"] == list(findings.clients)
    assert document["rounds"] == findings.rounds
    assert document["gap"] == findings.gap._asdict()
    assert document["reach"]["feasible"] is False
    assert document["reach"]["hall_ratio"]["value"] == reach.hall_ratio.value
    assert document["reach"]["deficient"]["clients"] == named(findings, reach.deficient.clients)
    assert document["reach"]["larger_cohorts"] == reach.larger_cohorts
    assert document["recommendation"]["action"] == "change the weights"
    assert document["recommendation"]["best"]["softness"] == 0.1
    assert document["replay"]["recorded"] == findings.replay.recorded.tolist()
    assert document["by_group"]["implied"] == findings.by_group.implied.tolist()
    assert document["behaviour"]["groups_by_hour"] == findings.behaviour.groups_by_hour.tolist()


def test_what_is_infinite_or_unknown_is_null():
    findings = made.never_seen()
    document = findings_document(findings)
    assert np.isinf(findings.reach.hall_ratio.value)
    assert document["reach"]["hall_ratio"] == {"value": None, "low": None, "high": None}
    assert document["reach"]["never_seen"] == named(findings, findings.reach.never_seen)
    hours = np.where(np.arange(24) == 3, np.nan, 1.0)
    quiet = replace(findings.behaviour, by_hour=hours)
    written = findings_document(replace(findings, behaviour=quiet))["behaviour"]["by_hour"]
    assert [hour for hour, value in enumerate(written) if value is None] == [3]


def test_numbers_of_numpy_become_numbers_of_json():
    reach = replace(
        made.findings().reach,
        feasible=np.bool_(True),
        larger_cohorts=np.int64(3),
        never_seen=np.arange(2),
    )
    findings = made.findings(reach=reach, rounds=np.int64(7), tolerance=np.float64(0.05))
    document = findings_document(findings)
    assert json.loads(json.dumps(document)) == document
    assert (document["reach"]["feasible"], document["reach"]["larger_cohorts"]) == (True, 3)
    assert document["rounds"] == 7


def test_without_groups_or_times_there_are_none():
    document = findings_document(made.without_groups())
    assert document["groups"] == []
    assert document["by_group"] is None
    document = findings_document(made.without_times())
    assert document["span"] is None
    assert document["behaviour"]["by_hour"] is None
    assert document["behaviour"]["dated"] is False


@pytest.fixture
def written(tmp_path):
    """Return a function that writes findings with some values changed: a__b is b within a."""

    def write(**changes):
        document = findings_document(made.findings())
        for key, value in changes.items():
            *path, last = key.split("__")
            inside = document
            for name in path:
                inside = inside[name]
            inside[last] = value
        path = tmp_path / "findings.json"
        path.write_text(sealed(document))
        return path

    return write


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "fedavot-alignment"}, "holds 'fedavot-alignment', not 'fedavot-findings'"),
        ({"version": 5}, "version 5 of 'fedavot-findings'"),
        ({"gap__value": float("nan")}, "NaN is not a JSON number"),
        ({"gap__value": 10**400}, "an integer has 401 digits"),
    ],
)
def test_a_document_that_no_audit_wrote_is_refused(written, changes, words):
    with pytest.raises(FileFormatError, match=words):
        read_findings(written(**changes))


def test_findings_that_were_edited_are_refused(written):
    path = written()
    path.write_text(path.read_text().replace('"rounds": ', '"rounds": 1'))
    with pytest.raises(FileFormatError, match="checksum"):
        read_findings(path)


@pytest.mark.parametrize("version", [2, 3])
def test_findings_of_an_earlier_version_are_refused_with_what_to_do(written, version):
    with pytest.raises(FileFormatError, match=f"version {version} .*audit the earlier log again"):
        read_findings(written(version=version))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"3", b'{"format": "fedavot-findings"', b"\xff\xfe", b"[" * 100_000, b"9" * 5000],
)
def test_what_is_no_document_is_refused(tmp_path, content):
    (tmp_path / "old.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"old\.json"):
        read_findings(tmp_path / "old.json")


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_the_alignment_loads_with_its_names_and_weighs_the_same(tmp_path, variant):
    findings = variant()
    findings.alignment.save(tmp_path / "alignment.json")
    loaded = fa.Alignment.load(tmp_path / "alignment.json")
    weighting = Weighting.load(tmp_path / "alignment.json")
    assert tuple(weighting.clients) == findings.clients
    for cohort in ([0, 3, 11], [5], [1, 2]):
        expected = findings.alignment.weights(cohort).tobytes()
        assert loaded.weights(cohort).tobytes() == expected
        assert weighting.alignment.weights(cohort).tobytes() == expected


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, strict=True))


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_the_table_of_clients_has_every_number_exactly(tmp_path, variant):
    findings = variant()
    write_clients(findings, tmp_path / "clients.csv")
    rows = rows_of(tmp_path / "clients.csv")
    assert tuple(row["client"] for row in rows) == findings.clients
    for column, values in {
        "importance": findings.by_client.importance,
        "owed": findings.by_client.owed,
        "inclusion": findings.by_client.inclusion,
        "implied": findings.by_client.implied,
        "implied_first_half": findings.behaviour.implied_first_half,
        "implied_last_half": findings.behaviour.implied_last_half,
        "attained": findings.by_client.attained,
        "level": findings.alignment.levels,
    }.items():
        read = [float(row[column]) if row[column] else np.nan for row in rows]
        np.testing.assert_array_equal(read, values)


def test_without_groups_the_field_is_empty(tmp_path):
    write_clients(made.without_groups(), tmp_path / "clients.csv")
    assert {row["group"] for row in rows_of(tmp_path / "clients.csv")} == {""}


ODD = ("a,b", 'say "x"', "two\nlines", "<b>", "🐝", " b ", "=1+1", "é", "i", "j", "k", "l")


FORMULAS = ("=cmd|'/c calc'!A0", "+a", "-a", "@a", "\ta", "\ra", "'=a", "-1", "x", "1", "b", "c")
"""Names that spreadsheets run as formulas, and some that they do not."""


def test_names_that_spreadsheets_would_run_have_an_apostrophe_before_them(tmp_path):
    write_clients(made.findings(clients=FORMULAS, groups=("=x", "y", "@z")), tmp_path / "c.csv")
    rows = rows_of(tmp_path / "c.csv")
    assert {row["group"] for row in rows} == {"'=x", "y", "'@z"}
    cells = [cell for row in rows for cell in row.values()]
    assert all(float(cell) < 0 for cell in cells if cell[:1] in set("=+-@\t\r") - {""})
    assert set(fa.importance.read_mapping(tmp_path / "c.csv")) == set(FORMULAS)


@pytest.mark.parametrize(
    ("names", "groups"), [(ODD, ("x, y", '"', "<i>")), (FORMULAS, ("=x", "y", "@z"))]
)
def test_the_table_of_clients_is_an_importance_with_groups_whatever_the_names(
    tmp_path, names, groups
):
    findings = made.findings(clients=names, groups=groups)
    write_clients(findings, tmp_path / "clients.csv")
    log = Participation(tuple(sorted(names)), np.array([0, 1]), np.zeros(1, dtype=np.int32))
    federation = federation_of(log, importance=tmp_path / "clients.csv")
    found = dict(zip(federation.participation.clients, federation.importance, strict=True))
    assert found == pytest.approx(dict(zip(names, findings.by_client.importance, strict=True)))
    found_groups = [federation.groups[at] for at in federation.group_of]
    expected = dict(zip(names, (findings.groups[at] for at in findings.group_of), strict=True))
    assert dict(zip(federation.participation.clients, found_groups, strict=True)) == expected


@pytest.mark.parametrize("write", WRITERS)
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, write):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write(made.findings(), path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", WRITERS)
def test_the_same_findings_give_the_same_bytes(tmp_path, write):
    for name in ("a", "b"):
        write(made.findings(gap=Estimate(0.1, 0.05, 0.2)), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
