"""Large alignments: arrays in a binary file beside the document, checked, mapped, atomic."""

import json

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import FileFormatError


@pytest.fixture
def large(monkeypatch):
    """Treat ten clients as too many for lists, and return an alignment of twelve."""
    monkeypatch.setattr("fedavot.alignment._MOST_LISTED", 10)
    monkeypatch.setattr("fedavot._columns.CHUNK", 5)
    importance = np.linspace(1, 2, 12)
    return fa.align(importance / importance.sum(), fa.UniformCohorts(12, 4))


def binaries(folder):
    return sorted(folder.glob("*.bin"))


def test_arrays_come_back_bit_for_bit_and_mapped(large, tmp_path):
    path = tmp_path / "large.json"
    large.save(path)
    assert len(json.loads(path.read_text())) < 15
    loaded = fa.Alignment.load(path)
    for name in ("importance", "potentials", "attained", "levels"):
        assert np.array_equal(getattr(loaded, name), getattr(large, name))
    assert isinstance(loaded.potentials, np.memmap)
    assert loaded.weights([3, 11]).tolist() == large.weights([3, 11]).tolist()
    assert loaded.effective_cohort_size == large.effective_cohort_size


def test_levels_are_kept_where_there_are_several(monkeypatch, tmp_path):
    monkeypatch.setattr("fedavot.alignment._MOST_LISTED", 2)
    nearest = fa.align([0.8, 0.1, 0.1], fa.Cohorts([[0, 1], [1, 2]]))
    assert nearest.levels.any()
    nearest.save(tmp_path / "a.json")
    assert np.array_equal(fa.Alignment.load(tmp_path / "a.json").levels, nearest.levels)


def test_the_file_is_what_the_documentation_says(large, tmp_path):
    large.save(tmp_path / "a.json")
    header = json.loads((tmp_path / "a.json").read_text())["arrays"]
    assert list(header["columns"]) == ["importance", "potentials", "attained"]
    values = np.fromfile(tmp_path / header["file"], "<f8").reshape(3, header["length"])
    assert np.array_equal(values[1], large.potentials)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_or_missing_file_is_refused(large, tmp_path, damage):
    path = tmp_path / "a.json"
    large.save(path)
    (binary,) = binaries(tmp_path)
    content = bytearray(binary.read_bytes())
    if damage == "remove":
        binary.unlink()
    else:
        content[40] ^= 1
        binary.write_bytes(content if damage == "flip" else content[:-8])
    with pytest.raises(FileFormatError, match=binary.name):
        fa.Alignment.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: {**arrays, "columns": {**arrays["columns"], "potentials": "object"}},
        lambda arrays: {**arrays, "length": "3"},
        lambda arrays: {**arrays, "columns": [1]},
        lambda arrays: {"file": arrays["file"]},
        lambda arrays: 5,
        lambda arrays: "columns",
    ],
    ids=["type", "length", "list", "missing", "number", "word"],
)
def test_columns_that_are_not_described_properly_are_refused(large, tmp_path, change):
    from fedavot._files import read_document, write_document

    path = tmp_path / "a.json"
    large.save(path)
    document = read_document(path, format="fedavot-alignment", version=3)
    document["arrays"] = change(document["arrays"])
    del document["format"], document["version"]
    write_document(path, format="fedavot-alignment", version=3, content=document)
    with pytest.raises(FileFormatError, match="columns"):
        fa.Alignment.load(path)


def test_saving_again_leaves_one_file_and_a_failure_leaves_the_old_one(
    large, tmp_path, monkeypatch
):
    path = tmp_path / "a.json"
    large.save(path)
    large.save(path)
    (before,) = binaries(tmp_path)

    def fail(*_args, **_kwargs):
        raise OSError("no space left")

    monkeypatch.setattr("fedavot.alignment.write_document", fail)
    with pytest.raises(OSError, match="no space left"):
        large.save(path)
    assert before in binaries(tmp_path)
    assert np.array_equal(fa.Alignment.load(path).potentials, large.potentials)
    monkeypatch.undo()
    monkeypatch.setattr("fedavot.alignment._MOST_LISTED", 10)
    large.save(path)
    assert len(binaries(tmp_path)) == 1
