"""Findings as files hold what was found; a file that no audit wrote is refused."""

import csv
import json
import os
from dataclasses import replace

import made
import numpy as np
import pytest

import fedavot as fa
from fedavot.audit import Participation
from fedavot.audit.document import (
    findings_document,
    read_findings,
    write_alignment,
    write_clients,
    write_findings,
)
from fedavot.audit.findings import Estimate
from fedavot.audit.wanted import federation_of
from fedavot.errors import FedavotWarning, FileFormatError
from fedavot.flower import Weighting
from sealing import sealed, unsealed

WRITERS = (write_findings, write_alignment, write_clients)
ASKED = (
    *("format", "version", "source", "clients", "rounds", "empty_rounds", "unknown_share"),
    *(
        "tolerance",
        "gap_fedavg",
        "gap_fedavg_interval",
        "feasible",
        "feasible_proven",
        "feasible_sure",
        "deficiency",
    ),
    *("deficiency_interval", "hall_ratio", "hall_ratio_interval", "deficient"),
    *("deficient_importance", "deficient_coverage", "never_seen", "larger_cohorts"),
    *("if_all_asked", "gap_attained", "effective_cohort_size", "effective_cohort_size_plain"),
    *("law", "laws", "rules", "curve", "behaviour", "groups", "recommendation", "reason"),
    *("softness", "online", "rounds_needed", "notes"),
)
"""Keys that a reader of findings.json may count on."""


def named(findings, clients):
    return [findings.clients[client] for client in clients]


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_what_is_written_is_read_back(tmp_path, variant):
    write_findings(variant(), tmp_path / "findings.json")
    assert read_findings(tmp_path / "findings.json") == findings_document(variant())


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_a_document_has_every_key_and_is_strict_json(variant):
    document = findings_document(variant())
    assert set(ASKED) <= set(document)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_figures_are_those_of_the_findings():
    findings = made.infeasible()
    document = findings_document(findings)
    reach = findings.reach
    assert document["clients"] == 12
    assert document["rounds"] == findings.rounds
    assert document["mean_cohort"] == findings.entries / findings.rounds
    assert document["gap_fedavg"] == findings.gap.value
    assert document["gap_fedavg_interval"] == [findings.gap.low, findings.gap.high]
    assert document["feasible"] is False
    assert document["hall_ratio"] == reach.hall_ratio.value
    assert document["deficient"] == named(findings, reach.deficient.clients)
    assert document["deficient_importance"] == reach.deficient.importance
    assert document["larger_cohorts"] == reach.larger_cohorts
    assert document["recommendation"] == "align softly"
    assert document["softness"] == 0.1


@pytest.mark.parametrize("variant", [made.findings, made.infeasible])
def test_what_is_attained_is_what_the_recommended_rule_attains(variant):
    findings = variant()
    document = findings_document(findings)
    used = findings.price.of(findings.advice.rule)
    assert document["gap_attained"] == used.gap
    assert document["effective_cohort_size"] == used.effective
    plain = findings.price.of("plain average")
    assert document["effective_cohort_size_plain"] == plain.effective


def test_a_rule_that_was_not_measured_attains_nothing_known():
    advice = replace(made.findings().advice, rule="another")
    document = findings_document(made.findings(advice=advice))
    assert (document["gap_attained"], document["effective_cohort_size"]) == (None, None)


def test_what_is_infinite_or_unknown_is_null():
    findings = made.never_seen()
    document = findings_document(findings)
    assert np.isinf(findings.reach.hall_ratio.value)
    assert document["hall_ratio"] is None
    assert document["hall_ratio_interval"] == [None, None]
    assert document["never_seen"] == named(findings, findings.reach.never)
    hours = np.where(np.arange(24) == 3, np.nan, 1.0)
    quiet = replace(findings.behaviour, by_hour=hours)
    written = findings_document(replace(findings, behaviour=quiet))["behaviour"]["by_hour"]
    assert [hour for hour, value in enumerate(written) if value is None] == [3]


def test_numbers_of_numpy_become_numbers_of_json():
    reach = replace(
        made.findings().reach,
        feasible=np.bool_(True),
        larger_cohorts=np.int64(3),
        never=np.arange(2),
    )
    findings = made.findings(reach=reach, rounds=np.int64(7), tolerance=np.float64(0.05))
    document = findings_document(findings)
    assert json.loads(json.dumps(document)) == document
    assert (document["feasible"], document["larger_cohorts"], document["rounds"]) == (True, 3, 7)


def test_a_group_is_a_row():
    findings = made.findings()
    rows = findings_document(findings)["groups"]
    assert [row["group"] for row in rows] == list(findings.groups)
    assert [row["clients"] for row in rows] == [2, 7, 3]
    assert [row["plain_average"] for row in rows] == findings.by_group.implied.tolist()
    assert [row["takes_part"] for row in rows] == findings.by_group.inclusion.tolist()


def test_without_groups_or_times_there_are_none():
    assert findings_document(made.without_groups())["groups"] == []
    document = findings_document(made.without_times())
    assert document["span"] is None
    assert document["behaviour"]["by_hour"] is None
    assert document["behaviour"]["clock"] == "the log's"


@pytest.fixture
def written(tmp_path):
    """Return a function that writes findings with some keys changed, or gone if None is given."""

    def write(**changes):
        document = {**findings_document(made.findings()), **changes}
        path = tmp_path / "findings.json"
        path.write_text(sealed(document))
        return path

    return write


def test_further_keys_are_kept(written):
    assert read_findings(written(colour="green"))["colour"] == "green"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "fedavot-alignment"}, "holds 'fedavot-alignment', not 'fedavot-findings'"),
        ({"version": 3}, "version 3 of 'fedavot-findings', .*upgrade fedavot"),
        ({"rounds": 3.5}, "rounds is 3.5; it must be a whole number from 0: take a findings.json"),
        ({"rounds": True}, "rounds is True"),
        ({"clients": -1}, "clients is -1"),
        ({"gap_fedavg": None}, "gap_fedavg is None; it must be a number"),
        ({"gap_fedavg": float("nan")}, "NaN is not a JSON number"),
        ({"gap_fedavg": 10**400}, "an integer has 401 digits"),
        ({"gap_fedavg_interval": [0.1]}, r"gap_fedavg_interval is \[0.1\]; .* two numbers"),
        ({"hall_ratio": "high"}, "hall_ratio is 'high'; it must be a number or null"),
        ({"feasible": 1}, "feasible is 1; it must be true or false"),
        ({"deficient": [1]}, r"deficient is \[1\]; it must be a list of names"),
        ({"law": None}, "law is None; it must be text"),
        ({"groups": [{"group": "a"}]}, "it must be a list of groups with their importance"),
        ({"groups": {}}, "it must be a list of groups"),
    ],
)
def test_a_document_that_no_audit_wrote_is_refused(written, changes, words):
    with pytest.raises(FileFormatError, match=words):
        read_findings(written(**changes))


def test_findings_from_before_there_were_checksums_are_read_with_a_note(tmp_path):
    document = findings_document(made.findings())
    (tmp_path / "old.json").write_text(unsealed(document))
    with pytest.warns(FedavotWarning, match=r"old\.json has no checksum"):
        assert read_findings(tmp_path / "old.json") == document | {"version": 1}


def test_missing_keys_are_named(tmp_path):
    document = findings_document(made.findings())
    del document["rounds"], document["law"]
    (tmp_path / "old.json").write_text(sealed(document))
    with pytest.raises(FileFormatError, match=r"old\.json lacks law, rounds; take a findings.json"):
        read_findings(tmp_path / "old.json")


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
    write_alignment(findings, tmp_path / "alignment.json")
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
        "takes_part": findings.by_client.inclusion,
        "plain_average": findings.by_client.implied,
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
