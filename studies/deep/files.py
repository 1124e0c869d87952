"""Files that are written whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def written(path: Path, write: str | Callable[[IO[bytes]], Any]) -> None:
    """Write a text, or what a function writes, under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    with partial.open("wb") as stream:
        stream.write(write.encode()) if isinstance(write, str) else write(stream)
    partial.replace(path)
