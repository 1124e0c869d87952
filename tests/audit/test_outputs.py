"""An audit's files are written all or none, over an earlier audit and over nothing else."""

import json
import os
import subprocess
import sys
import time
from functools import cache

import made
import pytest

import fedavot as fa
from fedavot.audit.report import document, figures, outputs
from fedavot.audit.report.document import read_findings
from fedavot.audit.report.outputs import check_folder, write_audit
from fedavot.errors import OptionError

FILES = ["alignment.json", "clients.csv", "figures", "findings.json", "report.html"]


def contents(folder):
    """Return every file under a folder, hidden ones too, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module", autouse=True)
def _drawn_once():
    """Draw the same findings once for all tests: they are about files."""
    drawn = cache(figures.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedavot.audit.report.figures.draw", drawn)
        yield


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Return the folder of an audit, made once, and not to be changed."""
    folder = tmp_path_factory.mktemp("first") / "audit"
    write_audit(made.findings(), folder)
    return folder


@pytest.fixture
def earlier(first, tmp_path):
    """Return a folder with an earlier audit in it."""
    place = tmp_path / "audit"
    for name, data in contents(first).items():
        if data is not None:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
    return place


def test_every_file_of_an_audit_is_written_and_reads_back(first):
    assert sorted(os.listdir(first)) == FILES
    found = made.findings()
    assert read_findings(first / "findings.json")["clients"] == list(found.clients)
    assert fa.Alignment.load(first / "alignment.json").n_clients == 12
    assert json.loads((first / "alignment.json").read_text())["clients"] == list(found.clients)
    assert (first / "clients.csv").read_text().startswith("client,group,importance")
    assert (first / "report.html").read_bytes()[:15].lower() == b"<!doctype html>"
    for picture in figures.draw(found):
        assert (first / "figures" / f"{picture.name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_files_are_returned_the_report_first(tmp_path):
    files = write_audit(made.findings(), tmp_path / "audit")
    assert files[0] == tmp_path / "audit" / "report.html"
    assert all(file.is_file() for file in files)
    written = [path for path in (tmp_path / "audit").rglob("*") if path.is_file()]
    assert sorted(files) == sorted(written)


def test_folders_on_the_way_are_made(tmp_path):
    write_audit(made.findings(), tmp_path / "a" / "b" / "audit")
    assert sorted(os.listdir(tmp_path / "a" / "b" / "audit")) == FILES
    assert os.listdir(tmp_path / "a" / "b") == ["audit"]


def test_an_empty_folder_is_filled(tmp_path):
    write_audit(made.findings(), tmp_path)
    assert sorted(os.listdir(tmp_path)) == FILES


def test_an_earlier_audit_is_replaced_and_pictures_it_alone_had_are_removed(earlier):
    assert (earlier / "figures" / "hours.png").exists()
    (earlier / "figures" / "mine.png").write_bytes(b"mine")
    (earlier / "notes.txt").write_text("mine")
    write_audit(made.without_times(), earlier)
    assert read_findings(earlier / "findings.json")["fit"]["law"] == "explicit"
    assert not (earlier / "figures" / "hours.png").exists()
    assert (earlier / "figures" / "mine.png").read_bytes() == b"mine"
    assert (earlier / "notes.txt").read_text() == "mine"
    assert not [name for name in os.listdir(earlier) if name.startswith(".")]


STEPS = ["page", "clients", "picture"]


def fail_at(monkeypatch, step, error):
    """Make the writing of one file fail."""

    def fail(*_, **__):
        raise error

    target = {
        "page": ("fedavot.audit.report.page.page", fail),
        "clients": ("fedavot.audit.report.outputs.write_clients", fail),
        "picture": ("fedavot.audit.report.drawing.write_png", fail),
    }[step]
    monkeypatch.setattr(*target)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt("stopped"), OSError("no space left"), MemoryError("too much")]
)
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_while_files_are_made_leaves_no_trace(tmp_path, monkeypatch, step, error):
    fail_at(monkeypatch, step, error)
    with pytest.raises(type(error), match=str(error)):
        write_audit(made.findings(), tmp_path / "on" / "the" / "way")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_while_files_are_made_leaves_an_earlier_audit(earlier, monkeypatch, step):
    before = contents(earlier)
    fail_at(monkeypatch, step, KeyboardInterrupt("stopped"))
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        write_audit(made.infeasible(), earlier)
    assert contents(earlier) == before


NAMES = ["report.html", "alignment.json", "findings.json", "clients.csv", "figures/price.png"]


def put_interrupted(place, aside, monkeypatch, moves):
    """Put new files in place, and stop before or after so many moves; return how many there are."""
    move, count = os.replace, 0.0

    def replaced(source, target):
        nonlocal count
        if count == moves:
            count += 0.5  # half a move: putting back is not stopped again
            raise KeyboardInterrupt("stopped")
        move(source, target)
        count += 1

    (aside / "figures").mkdir(parents=True)
    for name in NAMES:
        (aside / name).write_text("new")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        outputs._put(aside, place, NAMES)
    return count


def test_an_interruption_between_any_two_moves_puts_back_an_earlier_audit(earlier, monkeypatch):
    before = contents(earlier)
    for moves in range(len(NAMES)):
        aside = earlier.parent / f"aside-{moves}"
        with pytest.raises(KeyboardInterrupt, match="stopped"):
            put_interrupted(earlier, aside, monkeypatch, moves)
        assert contents(earlier) == before
    assert put_interrupted(earlier, earlier.parent / "aside", monkeypatch, None) == len(NAMES)
    assert contents(earlier) != before


def test_an_interruption_between_any_two_moves_leaves_an_empty_folder(tmp_path, monkeypatch):
    (tmp_path / "place").mkdir()
    for moves in range(len(NAMES)):
        with pytest.raises(KeyboardInterrupt, match="stopped"):
            put_interrupted(tmp_path / "place", tmp_path / f"{moves}", monkeypatch, moves)
        assert os.listdir(tmp_path / "place") == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OptionError, match="is a file; name a folder for the report"):
        check_folder(tmp_path / "file")
    with pytest.raises(OptionError, match="file is a file, so .* cannot be created"):
        check_folder(tmp_path / "file" / "audit")


@pytest.mark.parametrize("name", ["report.html", "findings.json", "clients.csv"])
def test_files_of_the_same_names_that_are_not_an_audits_are_refused(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(OptionError, match=f"has {name}, which no audit wrote"):
        write_audit(made.findings(), tmp_path)
    assert contents(tmp_path) == {name: b"mine"}


def test_a_picture_of_the_same_name_that_is_not_an_audits_is_refused(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "price.png").write_text("mine")
    with pytest.raises(OptionError, match="has figures/price.png, which no audit wrote"):
        write_audit(made.findings(), tmp_path)
    assert (tmp_path / "figures" / "price.png").read_text() == "mine"


def test_a_link_to_nowhere_is_refused(tmp_path):
    (tmp_path / "audit").symlink_to(tmp_path / "gone")
    with pytest.raises(OptionError, match="audit is a link to nothing"):
        check_folder(tmp_path / "audit")


def test_folders_of_the_same_names_are_refused_even_in_an_earlier_audit(earlier):
    (earlier / "clients.csv").unlink()
    (earlier / "clients.csv").mkdir()
    with pytest.raises(OptionError, match="has clients.csv, which no audit wrote"):
        check_folder(earlier)


def test_a_file_called_figures_is_refused(tmp_path):
    (tmp_path / "figures").write_text("mine")
    with pytest.raises(OptionError, match="has figures, which no audit wrote"):
        check_folder(tmp_path)


def test_a_folder_that_may_not_be_written_into_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root, everything may be
    with pytest.raises(OptionError, match="is not writable"):
        check_folder(tmp_path / "audit")


def test_an_earlier_audit_is_told_by_its_first_bytes(first):
    assert document.FORMAT in (first / "findings.json").read_text()[:200]
    check_folder(first)


def test_a_link_in_the_folder_is_replaced_and_not_written_through(earlier, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("mine")
    (earlier / "report.html").unlink()
    (earlier / "report.html").symlink_to(other)
    (earlier / "clients.csv").unlink()
    (earlier / "clients.csv").symlink_to(tmp_path / "nowhere")
    write_audit(made.findings(), earlier)
    assert other.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    for name in ("report.html", "clients.csv"):
        assert not (earlier / name).is_symlink()
        assert (earlier / name).stat().st_size > 100


def test_links_are_there_again_after_an_audit_that_fails(earlier, tmp_path, monkeypatch):
    (earlier / "clients.csv").unlink()
    (earlier / "clients.csv").symlink_to(tmp_path / "nowhere")
    replaced = os.replace

    def failing(source, target):
        if str(target).endswith("figures/drift.png") and ".audit-" in str(source):
            raise OSError("no room")
        replaced(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="no room"):
        write_audit(made.findings(), earlier)
    assert (earlier / "clients.csv").is_symlink()
    assert sorted(os.listdir(earlier)) == FILES


def test_a_folder_of_pictures_that_is_a_link_is_refused(earlier, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for name in os.listdir(earlier / "figures"):
        (earlier / "figures" / name).unlink()
    (earlier / "figures").rmdir()
    (earlier / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match=r"figures is a link"):
        write_audit(made.findings(), earlier)
    assert not os.listdir(tmp_path / "elsewhere")


def test_a_folder_that_is_itself_a_link_is_the_users_choice(earlier, tmp_path):
    (tmp_path / "link").symlink_to(earlier)
    write_audit(made.findings(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(earlier)) == FILES


KILLED = """
import os, sys, pathlib
sys.path.insert(0, {tests!r})
import made
from fedavot.audit.report import figures, outputs
figures.draw = lambda findings: ()  # what is drawn does not matter here, and takes a while
make = outputs._make
def killed(*arguments):
    make(*arguments)
    os.kill(os.getpid(), 9)
outputs._make = killed
outputs.write_audit(made.findings(), {place!r})
"""


@pytest.mark.parametrize("there", [True, False])
def test_what_a_killed_audit_left_is_removed_an_hour_later(earlier, tmp_path, there):
    place = earlier if there else tmp_path / "new"
    parent = earlier if there else tmp_path
    code = KILLED.format(tests=os.path.dirname(__file__), place=str(place))
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    (leftover,) = parent.glob(".audit-*")
    os.utime(leftover, (time.time() - 4000,) * 2)
    write_audit(made.findings(), place)
    assert not [name for name in os.listdir(parent) if name.startswith(".audit-")]
    assert sorted(os.listdir(place)) == FILES


def test_the_folder_of_an_audit_under_way_is_left_alone(tmp_path):
    mine = tmp_path / ".audit-notours"
    mine.mkdir()
    with outputs._made_aside(tmp_path / "slow") as aside:
        write_audit(made.findings(), tmp_path / "quick")
        assert aside.is_dir()
    assert mine.is_dir()
