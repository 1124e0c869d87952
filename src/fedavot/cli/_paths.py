"""Names of files and folders as options take them."""

from pathlib import Path
from typing import Any

import click


class _File(click.Path):
    """A file that is there; not a pipe, which is empty when it is read again."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a name."""
        found = super().convert(value, param, ctx)
        if not Path(value).is_file():
            words = "is not a file on disk; write it to one, as it is read more than once"
            self.fail(f"{value} {words}", param, ctx)
        return found


class _Folder(click.Path):
    """A folder's name; not the empty one, which a variable that is not set leaves."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a name."""
        if value == "":
            self.fail("the name is empty; name a folder, or . for this one", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(exists=True, dir_okay=False, path_type=Path)
FOLDER = _Folder(file_okay=False, path_type=Path)
