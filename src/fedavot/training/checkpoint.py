"""Checkpoints: the state of a run in one file, written completely or not at all.

A sealed NumPy archive with the carry's arrays in order, the records so far, and a fingerprint of
the run's inputs and program: data, cohorts, weights, steps, seeds, and what is computed from them.
A file with another fingerprint is refused; so is one that is truncated, damaged or edited.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._files import (
    ARCHIVE_FAILURES,
    PathLike,
    note_unsealed,
    read_archive,
    write_archive,
)
from fedavot.errors import FileFormatError, OptionError

_FORMAT = "fedavot-training-3"
_UNSEALED = "fedavot-training-2"
"""The format's name before checkpoints had a checksum."""


def fingerprint(words: Iterable[str], arrays: Iterable[Any]) -> str:
    """Return a digest of words and arrays."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(f"{len(word)}:{word}".encode())
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Saved:
    """The content of a checkpoint."""

    carry: Any
    done: int
    recorded: list[int]
    losses: Floats


class Checkpoint:
    """The checkpoint file of one run.

    Parameters
    ----------
    path : path
        Path of the file.
    fingerprint : str
        Fingerprint of the run it belongs to.
    like : pytree
        A carry with the structure of those saved.
    """

    def __init__(self, path: PathLike, fingerprint: str, like: Any) -> None:
        self._path = Path(path)
        # Noticed only after the first piece, its rounds would be lost.
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
        write_archive(self._path, arrays)

    def load(self) -> Saved | None:
        """Return what was saved, or None if there is no file yet."""
        import jax
        import jax.numpy as jnp

        if not self._path.exists():
            return None
        held, sealed = self._read()
        if str(held.get("format")) != (_FORMAT if sealed else _UNSEALED):
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
        leaves = [held[name] for name in names]
        self._refuse_unlike(leaves, held["recorded"], held["losses"])
        if not sealed:
            note_unsealed(self._path, stacklevel=3)
        carry = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
        recorded: Integers = held["recorded"]
        return Saved(carry, int(recorded[-1]), recorded.tolist(), held["losses"])

    def _refuse_unlike(self, leaves: list[Any], recorded: Any, losses: Any) -> None:
        """Refuse arrays that this run cannot have: other shapes or types, inconsistent records."""
        import jax

        wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(self._like)]
        rows = {array.shape[:1] for array in wanted[:1]} or {losses.shape[:1]}
        fits = (
            [(leaf.shape, leaf.dtype) for leaf in leaves]
            == [(array.shape, array.dtype) for array in wanted]
            and (recorded.dtype, losses.dtype) == (np.int64, np.float64)
            and recorded.ndim == 1
            and recorded.size > 0
            and (np.diff(recorded, prepend=0) > 0).all()
            and losses.shape in {(*row, recorded.size) for row in rows}
            and np.isfinite(losses).all()
        )
        if not fits:
            raise FileFormatError(
                f"{self._path} holds arrays that this run cannot have saved; remove it to start "
                "afresh"
            )

    def _read(self) -> tuple[dict[str, Any], bool]:
        try:
            return read_archive(self._path)
        except FileNotFoundError:
            raise
        except ARCHIVE_FAILURES as cause:
            raise FileFormatError(
                f"{self._path} is not a complete checkpoint ({cause}); remove it to start afresh"
            ) from None
