"""Files that are written whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def written(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    with partial.open("wb") as stream:
        write(stream)
    partial.replace(path)
