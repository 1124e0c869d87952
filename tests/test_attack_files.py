"""The attack on saved files: a slice of it finds nothing, and what is wrong would be found."""

import dataclasses

import pytest
from attacks import files
from attacks.saved_files import MAKERS, kinds, plain

from fedavot.errors import FileFormatError


@pytest.mark.parametrize("name", MAKERS)
def test_mutations_and_flips_are_refused_or_harmless(name, capsys):
    assert files.main([name, "--mutations", "250", "--flips", "120"]) == 0
    header, row, count = capsys.readouterr().out.splitlines()
    assert header.startswith("kind")
    assert row.split()[0] == name
    assert count == "0 found"


def raw(data):
    raise KeyError("importance")


def refuse(data):
    raise FileFormatError("no")


@pytest.mark.parametrize(
    ("read", "careful", "judgement"),
    [
        (raw, True, "raw KeyError"),
        (refuse, False, "refused"),
        (lambda data: {"share": 1.0}, False, "equal"),
        (lambda data: {"share": 1}, False, "another object"),
        (lambda data: {"share": 0.5}, False, "another object"),
        (lambda data: {"share": 0.5}, True, "proper"),
        (lambda data: {"share": -0.5}, True, "no proper object"),
        (lambda data: {}, True, "no proper object, KeyError"),
    ],
)
def test_every_answer_of_a_reader_is_judged(read, careful, judgement, tmp_path):
    (kind,) = kinds(tmp_path, ["alignment"])
    kind = dataclasses.replace(kind, read=read, sound=lambda found: found["share"] > 0)
    good = plain({"share": 1.0})
    assert files.judged(kind, b"", good, careful=careful).startswith(judgement)


def test_a_reader_that_checks_nothing_is_found_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedavot._files.checksum", lambda content: "any")
    assert files.main(["alignment", "--mutations", "0", "--flips", "200"]) == 1
    assert "another object" in capsys.readouterr().out
