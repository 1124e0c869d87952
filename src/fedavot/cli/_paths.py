"""Types of options that are files and folders."""

from pathlib import Path
from typing import Any

import click


class _File(click.Path):
    """An existing file; not a pipe, which cannot be read twice."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a path."""
        found = super().convert(value, param, ctx)
        if not Path(value).is_file():
            words = "is not a file on disk; save it as one, since it is read more than once"
            self.fail(f"{value} {words}", param, ctx)
        return found


class _Folder(click.Path):
    """A folder; not an empty name, as an unset shell variable leaves it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a path."""
        if value == "":
            self.fail("the name is empty; give a folder, or . for the current one", param, ctx)
        return super().convert(value, param, ctx)


class _Log(_File):
    """An existing file, or a folder with the parts of one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a path."""
        if Path(value).is_dir():
            return click.Path.convert(self, value, param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(exists=True, dir_okay=False, path_type=Path)
FOLDER = _Folder(file_okay=False, path_type=Path)
LOG = _Log(exists=True, path_type=Path)
