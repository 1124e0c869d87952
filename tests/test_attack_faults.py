"""A part of the points at which the disk may fail, and that what is wrong would be found."""

import os

import pytest
from attacks.disk import Disk, Killed
from attacks.fault_scenarios import SCENARIOS, Scenario
from attacks.faults import campaign

EVERY = {"alignment": 1, "aligner": 2, "sample-log": 13, "audit": 31, "study": 61}
OTHERWISE = 83
"""How many points there are for each one that is tried; no multiple of the three ways to fail."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_a_failure_of_the_disk_a_program_ends_as_if_there_had_been_none(name, tmp_path):
    survived, found = campaign(SCENARIOS[name](), tmp_path, every=EVERY.get(name, OTHERWISE))
    assert found == []
    assert all(survived.values())


def write_in_place(folder):
    with (folder / "file").open("wb") as stream:
        stream.write(b"x" * 100)


def write_without_flushing(folder):
    temporary = folder / "temporary"
    with temporary.open("wb") as stream:
        stream.write(b"x" * 100)
    os.replace(temporary, folder / "file")
    (folder / "done").mkdir(exist_ok=True)


def is_old_or_new(folder, kind):
    return (folder / "file").read_bytes() in (b"old", b"x" * 100)


@pytest.mark.parametrize(
    ("act", "kinds"),
    [(write_in_place, {"full", "killed", "power"}), (write_without_flushing, {"power"})],
)
def test_a_program_that_writes_carelessly_is_found_out(act, kinds, tmp_path):
    careless = Scenario(act, lambda folder: (folder / "file").write_bytes(b"old"), is_old_or_new)
    _, found = campaign(careless, tmp_path / "work")
    assert {line.split()[0] for line in found if "neither" in line} == kinds


def write_under_a_drawn_name(folder):
    (folder / os.urandom(8).hex()).write_bytes(b"x")
    (folder / "done").write_bytes(b"x")


def test_a_program_that_leaves_a_file_under_a_drawn_name_is_found_out(tmp_path):
    _, found = campaign(Scenario(write_under_a_drawn_name), tmp_path / "work")
    kinds = {line.split()[0] for line in found if "another result: ['*']" in line}
    assert kinds == {"full", "killed", "power"}


def test_nothing_can_be_tidied_up_after_the_process_is_killed(tmp_path):
    path = tmp_path / "file"

    def act():
        try:
            with path.open("wb") as stream:
                stream.write(b"x" * 100)
                stream.flush()
        finally:
            path.unlink()

    with pytest.raises(Killed), Disk(tmp_path, point=1, kind="killed") as disk:
        act()
    assert disk.operations == ["open", "write"]
    assert path.read_bytes() == b"x" * 50
