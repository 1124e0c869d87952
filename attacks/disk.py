"""A disk that fails: at one file operation of a program, and for good if the program is killed.

Operations on files of a folder are counted: opening to write, writing, truncating, closing,
flushing to disk, renaming, removing, and making folders. One of them fails:

full
    It raises OSError, as when no space is left; of a write, half is on the disk.
killed
    It raises `Killed`, which nobody catches, and so does every operation after it, so that nothing
    can be tidied up. Buffers that were not written are lost; files and their locks are released.
power
    As killed, and of every file only what was flushed to disk is left.
"""

import builtins
import contextlib
import errno
import io
import os
from pathlib import Path
from unittest import mock

KINDS = ("full", "killed", "power")
WRITES = ("w", "a", "x", "+")


class Killed(BaseException):
    """The process ended here."""


class Disk:
    """Counts the operations on a folder within a ``with`` block, and fails at one of them.

    Parameters
    ----------
    folder : Path
        Operations elsewhere are not counted.
    point : int, optional
        Which operation fails, from 0; none by default.
    kind : str
        How it fails.
    """

    def __init__(self, folder, *, point=None, kind="full"):
        self.operations = []
        """The operations so far, in words."""
        self._folder = os.fspath(folder)
        self._point, self._kind = point, kind
        self._dead = False
        self._held = []
        self._numbers = set()
        self._unsafe = {}
        """What is safe of each file that was written to and not flushed, by inode."""
        self._real = {name: getattr(os, name) for name in ("open", "close", "fsync")}

    def __enter__(self):
        replaced = {
            **{name: self._named(name) for name in ("mkdir", "rmdir", "unlink", "remove")},
            **{name: self._named(name) for name in ("rename", "replace")},
            **{"fsync": self._fsync, "open": self._open_number, "close": self._close_number},
        }
        self._patches = contextlib.ExitStack()
        for name, function in replaced.items():
            self._patches.enter_context(mock.patch.object(os, name, function))
        for module in (builtins, io):
            self._patches.enter_context(mock.patch.object(module, "open", self._open(io.open)))
        return self

    def __exit__(self, *_):
        self._patches.close()
        for stream in self._held:
            io.FileIO.close(stream)
        # The program's own objects will close these numbers, and must not close others' files.
        nothing = self._real["open"](os.devnull, os.O_RDONLY)
        for number in self._numbers:
            os.dup2(nothing, number)
        self._real["close"](nothing)
        if self._dead and self._kind == "power":
            for path in Path(self._folder).rglob("*"):
                safe = self._unsafe.get(path.stat().st_ino) if path.is_file() else None
                if safe is not None:
                    os.truncate(path, min(safe, path.stat().st_size))

    @property
    def failed(self):
        """Whether the operation has come at which the disk fails."""
        return self._point is not None and len(self.operations) > self._point

    def operate(self, what, *, partly=lambda: None):
        """Count an operation; fail if it is the one to, after a part of it."""
        if self._dead:
            raise Killed
        self.operations.append(what)
        if len(self.operations) - 1 != self._point:
            return
        partly()
        if self._kind == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._dead = True
        raise Killed

    def dirty(self, number, safe):
        """Note that a file has content that was not flushed, beyond what was."""
        self._unsafe.setdefault(os.fstat(number).st_ino, safe)

    def hold(self, stream):
        """Keep a stream, to close it when the program is over."""
        self._held.append(stream)

    @property
    def dead(self):
        """Whether the program was killed."""
        return self._dead

    def _inside(self, path):
        if isinstance(path, int):
            return False
        return os.path.abspath(os.fspath(path)).startswith(self._folder)

    def _named(self, name):
        real = getattr(os, name)

        def operate(path, *others, **options):
            if self._inside(path) or options.get("dir_fd") is not None:
                self.operate(name)
            return real(path, *others, **options)

        return operate

    def _open(self, real):
        def opened(file, mode="r", buffering=-1, encoding=None, *others, **options):
            inside = not isinstance(file, int) and self._inside(file)
            if not inside or not any(letter in mode for letter in WRITES):
                return real(file, mode, buffering, encoding, *others, **options)
            self.operate("open")
            plain = mode.replace("b", "").replace("t", "")
            raw = Watched(file, plain, self)
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, encoding=encoding, **options)

        return opened

    def _open_number(self, path, flags, *arguments, **options):
        if self._inside(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.operate("open")
        number = self._real["open"](path, flags, *arguments, **options)
        if self._inside(path):
            self._numbers.add(number)
        return number

    def _close_number(self, number):
        if self._dead and number in self._numbers:
            raise Killed
        self._numbers.discard(number)
        self._real["close"](number)

    def _fsync(self, number):
        self.operate("fsync")
        self._real["fsync"](number)
        self._unsafe.pop(os.fstat(number).st_ino, None)


class Watched(io.FileIO):
    """A file whose operations are a `Disk`'s."""

    def __init__(self, path, mode, disk):
        super().__init__(path, mode)
        self._disk = disk
        self._safe = os.fstat(self.fileno()).st_size

    def write(self, data):
        """Write, or half of it if the disk fails here."""
        half = bytes(data)[: len(data) // 2]
        self._disk.operate("write", partly=lambda: super(Watched, self).write(half))
        self._disk.dirty(self.fileno(), self._safe)
        return super().write(data)

    def truncate(self, size=None):
        """Cut off or extend."""
        self._disk.operate("truncate")
        return super().truncate(size)

    def close(self):
        """Close; if the disk fails here, the file is closed all the same."""
        if self.closed or not hasattr(self, "_disk"):
            return super().close()
        if self._disk.dead:
            self._disk.hold(self)
            raise Killed
        try:
            self._disk.operate("close")
        except Killed:
            self._disk.hold(self)
            raise
        except OSError:
            super().close()
            raise
        return super().close()
