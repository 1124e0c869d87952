"""Build the wheel and the source distribution, check them, and try the wheel by itself.

    python .ci/release.py [--out dist] [--quick]

What is built is the last commit, whatever lies in the working tree. It is built twice, in folders
of different names, and the second wheel from the source distribution: all must be equal to the
byte. Needs build, twine and hatchling (`pip install -c constraints.txt '.[release]'`).
"""

import argparse
import email
import functools
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
"""What a wheel has beside the package, in its folder of metadata."""
NEEDED = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src/fedavot/py.typed"}
"""What a source distribution must have, among other things."""
LARGEST = {".whl": 1_000_000, ".gz": 8_000_000}
"""Bytes of the files at most."""


def git(*arguments):
    """Return what a git command prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


@functools.cache
def commit():
    """Return the last commit, the same one to the end."""
    return git("rev-parse", "HEAD").decode().strip()


def exported(folder):
    """Write the last commit into a folder, and return the folder."""
    with zipfile.ZipFile(io.BytesIO(git("archive", "--format=zip", commit()))) as archive:
        archive.extractall(folder)
    return folder


def built(source, out, *kinds):
    """Build in a folder; return the files by their suffixes."""
    # The time of the commit stands in archives for the time of the build.
    committed = git("log", "-1", "--format=%ct", commit()).decode().strip()
    variables = os.environ | {"SOURCE_DATE_EPOCH": committed}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *kinds, source]
    subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
    return {path.suffix: path for path in Path(out).iterdir()}


def check_equal(first, second):
    """End unless two files have the same bytes."""
    if first.read_bytes() != second.read_bytes():
        sys.exit(f"{first.name} is another one when it is built again")
    print(f"{first.name}: {hashlib.sha256(first.read_bytes()).hexdigest()}, twice")


def check_wheel(path, version):
    """End unless a wheel has the package as it is tracked, its metadata, and nothing else."""
    tracked = git("ls-tree", "-r", "--name-only", commit(), "src/fedavot").decode().split("\n")[:-1]
    info = f"fedavot-{version}.dist-info"
    wanted = {name.removeprefix("src/") for name in tracked} | {f"{info}/{name}" for name in INFO}
    with zipfile.ZipFile(path) as archive:
        found = set(archive.namelist())
        about = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    if found != wanted:
        sys.exit(f"{path.name} lacks or has too much: {sorted(found ^ wanted)[:10]}")
    if about["License-Expression"] != "Apache-2.0" or about["Requires-Python"] != ">=3.11":
        sys.exit(f"{path.name} has other metadata than pyproject.toml")


def check_source(path, version):
    """End unless a source distribution has what is needed, and nothing that is not tracked."""
    tracked = set(git("ls-tree", "-r", "--name-only", commit()).decode().split("\n"))
    with tarfile.open(path) as archive:
        names = {member.name for member in archive if member.isfile()}
    found = {name.removeprefix(f"fedavot-{version}/") for name in names}
    if missing := NEEDED - found:
        sys.exit(f"{path.name} lacks {sorted(missing)}")
    if surplus := found - tracked - {"PKG-INFO"}:
        sys.exit(f"{path.name} has files that are not tracked: {sorted(surplus)[:10]}")


def main():
    """Build, compare, check, and try."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--quick", action="store_true", help="leave out the Flower app")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedavot-release-") as folder:
        place = Path(folder)
        first = built(exported(place / "first"), place / "one", "--sdist", "--wheel")
        again = built(exported(place / "a-second-place"), place / "two", "--sdist")
        shutil.unpack_archive(again[".gz"], place)
        version = first[".gz"].name.removeprefix("fedavot-").removesuffix(".tar.gz")
        check_equal(first[".gz"], again[".gz"])
        unpacked = built(place / f"fedavot-{version}", place / "three", "--wheel")
        check_equal(first[".whl"], unpacked[".whl"])
        for suffix, most in LARGEST.items():
            if first[suffix].stat().st_size > most:
                sys.exit(f"{first[suffix].name} has more than {most:,} bytes")
        check_wheel(first[".whl"], version)
        check_source(first[".gz"], version)
        paths = [str(path) for path in first.values()]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *paths], check=True)
        quick = ["--quick"] if options.quick else []
        tried = place / "first" / ".ci" / "installed.py"  # with the pages of the same commit
        subprocess.run([sys.executable, tried, first[".whl"], *quick], check=True)
        options.out.mkdir(exist_ok=True)
        kept = [shutil.copy(path, options.out) for path in paths]
    print(f"ready: {' '.join(kept)}")


if __name__ == "__main__":
    main()
