"""Alignments come back from a file bit for bit, and a failed write leaves the old file alone."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa
from sealing import sealed

FIELDS = ("importance", "potentials", "levels", "attained")

distributions = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).filter(
    lambda values: sum(values) > 0.5
)


def with_values(x, importance):
    """Return an alignment that holds exactly these floats."""
    return fa.Alignment(
        importance=importance,
        potentials=x,
        levels=np.arange(x.size) // 2,
        attained=importance[::-1].copy(),
        residual=5e-324,
        iterations=17,
        status=fa.Status.NEAREST,
        objective="variance",
        softness=0.1,
        saved_effective_size=min(4 / 3, x.size),
    )


def assert_same(found, saved):
    for name in FIELDS:
        assert getattr(found, name).dtype == getattr(saved, name).dtype
        assert getattr(found, name).tobytes() == getattr(saved, name).tobytes()
    for name in ("residual", "iterations", "status", "objective", "softness"):
        assert getattr(found, name) == getattr(saved, name)
        assert type(getattr(found, name)) is type(getattr(saved, name))
    assert found.effective_cohort_size == saved.effective_cohort_size


@given(distributions, st.data())
def test_any_floats_come_back_bit_for_bit(tmp_path_factory, values, data):
    importance = np.array(values) / np.sum(values)
    finite = st.floats(allow_nan=False, allow_infinity=False)
    x = data.draw(st.lists(finite, min_size=importance.size, max_size=importance.size))
    path = tmp_path_factory.mktemp("saved") / "a.json"
    saved = with_values(np.array(x), importance)
    saved.save(path)
    assert_same(fa.Alignment.load(path), saved)


@pytest.mark.parametrize(
    "law",
    [fa.UniformCohorts(3, 2), fa.UniformCohorts(3, 1), fa.Cohorts([[0, 1], [2]])],
    ids=["exact", "nearest", "levels"],
)
def test_a_solved_alignment_weighs_the_same_after_a_file(tmp_path, law):
    saved = fa.align([0.5, 0.3, 0.2], law)
    saved.save(tmp_path / "a.json")
    found = fa.Alignment.load(tmp_path / "a.json")
    assert_same(found, saved)
    assert found.weights([2, 0, 1]).tobytes() == saved.weights([2, 0, 1]).tobytes()
    assert found.gap == saved.gap


def test_the_file_is_the_documented_json(tmp_path):
    fa.align([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2)).save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["format"] == "fedavot-alignment"
    assert document["version"] == 2
    assert json.loads(sealed(document)) == document
    assert set(document) == {
        *("format", "version", "importance", "potentials", "levels", "attained", "residual"),
        *("iterations", "status", "objective", "softness", "effective_cohort_size", "checksum"),
    }


def test_names_are_kept_by_a_file_and_change_nothing_else(tmp_path):
    names = ("lyon", "<b>", 'é"🐝')
    bare = fa.align([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2))
    named = fa.align([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2), clients=names)
    for alignment in (bare, named):
        alignment.save(tmp_path / "a.json")
        found = fa.Alignment.load(tmp_path / "a.json")
        assert_same(found, bare)
        assert found.clients == alignment.clients
    assert found.weights(["<b>", "lyon"]).tobytes() == bare.weights([1, 0]).tobytes()


@pytest.mark.parametrize("path_type", [str, Path])
def test_saving_over_a_file_replaces_it(tmp_path, path_type):
    path = tmp_path / "a.json"
    path.write_text("old")
    fa.align([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2)).save(path_type(path))
    assert fa.Alignment.load(path_type(path)).status == "exact"
    assert os.listdir(tmp_path) == ["a.json"]
