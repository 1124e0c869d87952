"""What the attack on saved files would find."""

import dataclasses

import pytest
from attacks import files
from attacks.isolation import settled
from attacks.saved_files import MAKERS, plain


@pytest.mark.parametrize(
    ("read", "careful", "judgement"),
    [
        (lambda data: {"share": 1.0}, False, "equal"),
        (lambda data: {"share": 1}, False, "another object"),
        (lambda data: {"share": 0.5}, False, "another object"),
        (lambda data: {"share": 0.5}, True, "proper"),
        (lambda data: {"share": -0.5}, True, "no proper object"),
        (lambda data: {}, True, "no proper object, KeyError"),
    ],
)
def test_every_answer_of_a_reader_is_judged(read, careful, judgement, tmp_path):
    kind = dataclasses.replace(
        MAKERS["alignment"](tmp_path), read=read, sound=lambda found: found["share"] > 0
    )
    good = plain({"share": 1.0})
    assert files.judged(kind, b"", good, careful=careful).startswith(judgement)


def test_a_reader_that_checks_nothing_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr("fedavot._files.checksum", lambda content: "any")
    judge = files.saved(tmp_path, kind="alignment")
    assert "another object" in {settled(judge, 0, number) for number in range(200)}
