"""Checkpoints: a run under way as one file, written whole or not at all.

A NumPy archive with the carry's arrays in order, the records so far, and a fingerprint of
everything the run follows from: data, cohorts, weights, steps, seeds, and what is computed of them.
A file with another fingerprint is refused; so is one that is cut off.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._files import ARCHIVE_FAILURES, PathLike, write_whole
from fedavot.errors import FileFormatError, OptionError

_FORMAT = "fedavot-training-2"


def fingerprint(words: Iterable[str], arrays: Iterable[Any]) -> str:
    """Return a digest of some words and arrays."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(f"{len(word)}:{word}".encode())
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Saved:
    """What a checkpoint holds."""

    carry: Any
    done: int
    recorded: list[int]
    losses: Floats


class Checkpoint:
    """One run's file.

    Parameters
    ----------
    path : path
        Where it is.
    fingerprint : str
        Of the run it belongs to.
    like : pytree
        A carry of the same structure as those saved.
    """

    def __init__(self, path: PathLike, fingerprint: str, like: Any) -> None:
        self._path = Path(path)
        # Found out after the first piece, its rounds would be lost.
        if not self._path.parent.is_dir():
            raise OptionError(f"checkpoint is {self._path}, in a folder that does not exist")
        self._fingerprint = fingerprint
        self._like = like

    def save(self, carry: Any, recorded: Sequence[int], losses: Floats) -> None:
        """Write the run as it stands, whole or not at all."""
        import jax

        arrays: dict[str, Any] = {
            f"leaf{at}": np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves(carry))
        }
        arrays |= {
            "format": np.array(_FORMAT),
            "fingerprint": np.array(self._fingerprint),
            "recorded": np.asarray(recorded, dtype=np.int64),
            "losses": losses,
        }
        write_whole(self._path, lambda stream: np.savez(stream, allow_pickle=False, **arrays))

    def load(self) -> Saved | None:
        """Return what was saved, or None if there is no file yet."""
        import jax
        import jax.numpy as jnp

        if not self._path.exists():
            return None
        held = self._read()
        if str(held.get("format")) != _FORMAT:
            raise FileFormatError(f"{self._path} is not a checkpoint of this version of fedavot")
        if str(held.get("fingerprint")) != self._fingerprint:
            raise FileFormatError(
                f"{self._path} belongs to another run (other data, rule, seeds or options); "
                "remove it, or save this run elsewhere"
            )
        structure = jax.tree.structure(self._like)
        names = [f"leaf{at}" for at in range(structure.num_leaves)]
        missing = {*names, "recorded", "losses"} - held.keys()
        if missing:
            raise FileFormatError(
                f"{self._path} lacks {sorted(missing)}; remove it to start afresh"
            )
        carry = jax.tree.unflatten(structure, [jnp.asarray(held[name]) for name in names])
        recorded: Integers = held["recorded"]
        return Saved(carry, int(recorded[-1]), recorded.tolist(), held["losses"])

    def _read(self) -> dict[str, Any]:
        with self._path.open("rb") as stream:
            try:
                with np.load(stream, allow_pickle=False) as archive:
                    return dict(archive)
            except ARCHIVE_FAILURES as cause:
                raise FileFormatError(
                    f"{self._path} is not a complete checkpoint ({cause}); remove it to start "
                    "afresh"
                ) from None
