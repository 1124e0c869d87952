"""The files of an audit, written all or none.

Every file is made first, in a hidden folder on the same disk, and put in its place when all are
there. If that fails, or is interrupted, whatever was there before is there again. A hidden folder
that a killed audit left is removed by the next one that succeeds. Links are replaced, and never
written through.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from fedavot._files import STALE_SECONDS, PathLike, _lock, write_whole
from fedavot.audit.comparison import Change
from fedavot.audit.document import FORMAT, write_alignment, write_clients, write_findings
from fedavot.audit.findings import Findings
from fedavot.errors import OptionError

REPORT, ALIGNMENT, FINDINGS = "report.html", "alignment.json", "findings.json"
CLIENTS, FIGURES = "clients.csv", "figures"
_ASIDE = re.compile(r"\.audit-[0-9a-f]{16}")
PICTURES = ("shares", "hours", "weekdays", "drift", "held-out", "price")
"""What pictures may be called; those of an earlier audit that this one has not are removed."""


def check_folder(folder: PathLike) -> None:
    """Refuse a folder that an audit could not be written into, or would spoil.

    Parameters
    ----------
    folder : path
        There or not. An earlier audit in it may be replaced, other files of the same names not.
    """
    place = Path(folder)
    if place.is_symlink() and not place.exists():
        raise OptionError(f"{place} is a link to what is not there; name another folder")
    if place.exists() and not place.is_dir():
        raise OptionError(f"{place} is a file; name a folder for the report")
    nearest = next(one for one in (place, *place.absolute().parents) if one.exists())
    if not nearest.is_dir():
        raise OptionError(f"{nearest} is a file, so that {place} cannot be made; name another")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OptionError(f"{nearest} may not be written into; name another folder")
    if (place / FIGURES).is_symlink():
        raise OptionError(
            f"{place / FIGURES} is a link, and pictures would go where it leads; remove it, or "
            "name another folder"
        )
    names = (REPORT, ALIGNMENT, FINDINGS, CLIENTS, *(_png(name) for name in PICTURES))
    taken = [name for name in names if (place / name).exists()]
    folders = [name for name in taken if (place / name).is_dir()]
    if (place / FIGURES).exists() and not (place / FIGURES).is_dir():
        taken, folders = [*taken, FIGURES], [*folders, FIGURES]
    if folders or (taken and not _is_audit(place)):
        raise OptionError(
            f"{place} has {', '.join(folders or taken)}, not of an audit; name another folder, or "
            "move them away"
        )


def write_audit(
    findings: Findings, folder: PathLike, *, changes: Sequence[Change] = ()
) -> tuple[Path, ...]:
    """Write the report, the weights, the figures, and all numbers.

    Parameters
    ----------
    findings : Findings
        What was found.
    folder : path
        Where the files go; made if it is not there. An earlier audit in it is replaced.
    changes : sequence of Change
        What changed since an earlier audit, for the report.

    Returns
    -------
    tuple of path
        What was written: the report first.
    """
    place = Path(folder)
    check_folder(place)
    with _made_aside(place) as aside:
        names = _make(findings, changes, aside)
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
    """Tell by a folder's findings whether an audit wrote it."""
    try:
        with (place / FINDINGS).open("rb") as stream:
            return f'"{FORMAT}"'.encode() in stream.read(200)
    except OSError:
        return False


@contextmanager
def _made_aside(place: Path) -> Iterator[Path]:
    """Give a hidden folder on the disk of ``place``, and leave none behind.

    Inside ``place`` if that is there, which may be a disk of its own; else beside it, in folders
    that are made as needed, and removed again if what they were made for does not come about.
    """
    inside = place.exists()
    parent = place if inside else place.absolute().parent
    missing = [one for one in (parent, *parent.parents) if not one.exists()]
    aside = parent / f".audit-{os.urandom(8).hex()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        with _locked(aside):
            yield aside
        if inside:
            shutil.rmtree(aside)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        for one in missing:
            with suppress(OSError):
                one.rmdir()
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Lock a folder where there are locks; give what `_lock` says."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield _lock(number)
    finally:
        os.close(number)


def _remove_leftovers(parent: Path) -> None:
    """Remove hidden folders of audits that are no longer under way."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            if _ASIDE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                old = time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS
                with _locked(Path(entry)) as locked:
                    if locked or (locked is None and old):
                        shutil.rmtree(entry, ignore_errors=True)


def _make(findings: Findings, changes: Sequence[Change], folder: Path) -> list[str]:
    """Write every file into a folder and return their names in it."""
    from fedavot.audit.figures import draw, write_png
    from fedavot.audit.page import page

    text = page(findings, changes).encode()
    write_whole(folder / REPORT, lambda stream: stream.write(text))
    write_alignment(findings, folder / ALIGNMENT)
    write_findings(findings, folder / FINDINGS)
    write_clients(findings, folder / CLIENTS)
    (folder / FIGURES).mkdir()
    pictures = []
    for picture in draw(findings):
        pictures.append(_png(picture.name))
        write_whole(folder / pictures[-1], partial(write_png, picture))
    return [REPORT, ALIGNMENT, FINDINGS, CLIENTS, *pictures]


def _put(aside: Path, place: Path, names: Sequence[str]) -> None:
    """Move files into a folder that is there, or put back what was in it."""
    old = aside / "old"
    every = dict.fromkeys([*names, *map(_png, PICTURES)])
    before = {name for name in every if os.path.lexists(place / name)}
    had_figures = (place / FIGURES).exists()
    try:
        (old / FIGURES).mkdir(parents=True)
        (place / FIGURES).mkdir(exist_ok=True)
        for name in every:
            if name in before:
                os.replace(place / name, old / name)
            if name in names:
                os.replace(aside / name, place / name)
    except BaseException:
        # Told from what is where, as an interruption may come between any two steps.
        for name in every:
            if os.path.lexists(old / name):
                os.replace(old / name, place / name)
            elif name not in before:
                (place / name).unlink(missing_ok=True)
        if not had_figures and (place / FIGURES).exists():
            (place / FIGURES).rmdir()
        raise
