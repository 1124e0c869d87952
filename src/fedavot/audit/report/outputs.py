"""The files of an audit, written all or none.

All files are first written to a hidden folder on the same disk, and then moved into place. If that
fails or is interrupted, the previous files are restored. If an audit is killed, one that succeeds
an hour later removes the hidden folder it left. Links are replaced, never followed.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from fedavot import _files
from fedavot._checks import enumerated
from fedavot._files import PathLike, write_whole
from fedavot.audit.findings import Findings
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.document import FORMAT, write_clients, write_findings
from fedavot.errors import OptionError

REPORT, ALIGNMENT, FINDINGS = "report.html", "alignment.json", "findings.json"
CLIENTS, FIGURES = "clients.csv", "figures"
_ASIDE = re.compile(r"\.audit-[0-9a-f]{16}")
PICTURES = ("shares", "replay", "hours", "drift", "price")
"""Names of the pictures; those of an earlier audit that this one does not have are removed."""


def check_folder(folder: PathLike) -> None:
    """Refuse a folder that cannot be written to, or that has other files of the same names.

    Parameters
    ----------
    folder : path
        It need not exist. An earlier audit in it is replaced, other files are not.
    """
    place = Path(folder)
    if place.is_symlink() and not place.exists():
        raise OptionError(f"{place} is a link to nothing; name another folder")
    if place.exists() and not place.is_dir():
        raise OptionError(f"{place} is a file; name a folder for the report")
    nearest = next(one for one in (place, *place.absolute().parents) if one.exists())
    if not nearest.is_dir():
        raise OptionError(f"{nearest} is a file, so {place} cannot be created; name another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OptionError(f"{nearest} is not writable; name another folder")
    if (place / FIGURES).is_symlink():
        raise OptionError(
            f"{place / FIGURES} is a link, and pictures would be written to its target; remove it, "
            "or name another folder"
        )
    names = (REPORT, ALIGNMENT, FINDINGS, CLIENTS, *(_png(name) for name in PICTURES))
    taken = [name for name in names if (place / name).exists()]
    folders = [name for name in taken if (place / name).is_dir()]
    if (place / FIGURES).exists() and not (place / FIGURES).is_dir():
        taken, folders = [*taken, FIGURES], [*folders, FIGURES]
    if folders or (taken and not _is_audit(place)):
        them = folders or taken
        raise OptionError(
            f"{place} has {enumerated(them, 20)}, which no audit wrote; name another folder, or "
            f"move {'it' if len(them) == 1 else 'them'} away"
        )


def write_audit(
    findings: Findings, folder: PathLike, *, changes: Sequence[Change] = ()
) -> tuple[Path, ...]:
    """Write the report, the weights, the figures and all numbers.

    Parameters
    ----------
    findings : Findings
        What was found.
    folder : path
        Folder for the files; created if it does not exist. An earlier audit in it is replaced.
    changes : sequence of Change
        What changed since an earlier audit, for the report.

    Returns
    -------
    tuple of path
        The files that were written, the report first.
    """
    place = Path(folder)
    check_folder(place)
    with _made_aside(place) as aside:
        names = _make(findings, changes, aside, place)
        if place.exists():
            _put(aside, place, names)
        else:
            os.rename(aside, place)
    # Only now: until then it may hold the files of an earlier audit.
    _remove_leftovers(place)
    _remove_leftovers(place.absolute().parent)
    return tuple(place / name for name in names)


def _png(name: str) -> str:
    return f"{FIGURES}/{name}.png"


def _is_audit(place: Path) -> bool:
    """Return whether a folder has the findings of an audit."""
    try:
        with (place / FINDINGS).open("rb") as stream:
            return f'"{FORMAT}"'.encode() in stream.read(200)
    except OSError:
        return False


@contextmanager
def _made_aside(place: Path) -> Iterator[Path]:
    """Provide a hidden folder on the disk of ``place``, and remove it afterwards.

    It is inside ``place`` if that exists, since it may be a disk of its own; otherwise beside it.
    Parent folders are created as needed, and removed again after a failure.
    """
    inside = place.exists()
    parent = place if inside else place.absolute().parent
    missing = [one for one in (parent, *parent.parents) if not one.exists()]
    aside = parent / f".audit-{os.urandom(8).hex()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        yield aside
        if inside:
            shutil.rmtree(aside)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        for one in missing:
            with suppress(OSError):
                one.rmdir()
        raise


def _remove_leftovers(parent: Path) -> None:
    """Remove hidden folders that audits which were killed left an hour ago or more."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            if _ASIDE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > _files.STALE_SECONDS:
                    shutil.rmtree(entry, ignore_errors=True)


def _make(findings: Findings, changes: Sequence[Change], folder: Path, place: Path) -> list[str]:
    """Write every file into a folder and return their names; ``place`` is where they will be."""
    from fedavot.audit.report.drawing import write_png
    from fedavot.audit.report.figures import draw
    from fedavot.audit.report.page import page

    drawn = draw(findings)
    text = page(findings, changes, folder=place, pictures=drawn).encode()
    write_whole(folder / REPORT, lambda stream: stream.write(text))
    findings.alignment.save(folder / ALIGNMENT)
    write_findings(findings, folder / FINDINGS)
    write_clients(findings, folder / CLIENTS)
    (folder / FIGURES).mkdir()
    pictures = []
    for picture in drawn:
        pictures.append(_png(picture.name))
        write_whole(folder / pictures[-1], partial(write_png, picture))
    return [REPORT, ALIGNMENT, FINDINGS, CLIENTS, *pictures]


def _put(aside: Path, place: Path, names: Sequence[str]) -> None:
    """Move files into an existing folder, or restore its content.

    At any time every file is present in its old or its new version, even if the process is killed:
    a folder without findings would not be recognised as that of an audit.
    """
    old = aside / "old"
    every = dict.fromkeys([*names, *map(_png, PICTURES)])
    before = [name for name in every if os.path.lexists(place / name)]
    had_figures = (place / FIGURES).exists()
    (old / FIGURES).mkdir(parents=True)
    for name in before:
        _keep(place / name, old / name)
    try:
        (place / FIGURES).mkdir(exist_ok=True)
        for name in names:
            os.replace(aside / name, place / name)
        for name in every.keys() - set(names):
            (place / name).unlink(missing_ok=True)
    except BaseException:
        for name in every:
            if name in before:
                os.replace(old / name, place / name)
            else:
                (place / name).unlink(missing_ok=True)
        if not had_figures and (place / FIGURES).exists():
            (place / FIGURES).rmdir()
        raise


def _keep(source: Path, target: Path) -> None:
    """Make a hard link to a file or a link; make a copy if the disk has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
