"""Checkpoints: the state of a run in one file, written completely or not at all.

The file is a NumPy archive with a checksum. It has the carry's arrays in order, the records so far,
and a fingerprint of the run's inputs and program: data, cohorts, weights, steps, seeds, and what is
computed from them. A file with another fingerprint is refused; so is one that is truncated, damaged
or edited.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedavot._checks import Floats
from fedavot._files import PathLike, read_archive, write_archive
from fedavot.errors import FileFormatError, OptionError
from fedavot.training.task import leaves

_FORMAT = "fedavot-training-3"
PART = 0.1
"""Largest fraction of a run's time spent on saving it, approximately."""
MOMENT = 1.0
"""Seconds of writing below which every piece is saved."""
BYTES_A_SECOND = 3e8
"""Assumed speed of writing before the first checkpoint has been written."""


def fingerprint(words: Iterable[str], arrays: Iterable[Any]) -> str:
    """Return a digest of words and arrays."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(f"{len(word)}:{word}".encode())
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Piece(NamedTuple):
    """The result of some consecutive rounds."""

    carry: Any
    losses: Floats
    """The recorded objective, shape (n_seeds, n_records)."""
    recorded: list[int]
    """The rounds after which it was recorded, including the last."""


class Checkpoint:
    """The checkpoint file of the run with this fingerprint; its carry has the form of ``like``."""

    def __init__(self, path: PathLike, fingerprint: str, like: Any) -> None:
        self._path = Path(path)
        # If this were noticed only after the first piece, its rounds would be lost.
        if not self._path.parent.is_dir():
            raise OptionError(f"checkpoint is {self._path}, in a folder that does not exist")
        self._fingerprint = fingerprint
        self._like = {f"leaf{at}": np.asarray(leaf) for at, leaf in enumerate(leaves(like))}
        self._structure = jax.tree.structure(like)
        self._cost = sum(leaf.nbytes for leaf in self._like.values()) / BYTES_A_SECOND
        self._last = time.perf_counter()

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the run was last saved.

        Small carries are always due. Writing a table of a million models would take longer than the
        rounds in between.
        """
        return PART * (time.perf_counter() - self._last) >= self._cost - MOMENT

    def save(self, carry: Any, recorded: Sequence[int], losses: Floats) -> None:
        """Write the current state of the run, completely or not at all."""
        arrays: dict[str, Any] = {
            "format": _FORMAT,
            "fingerprint": self._fingerprint,
            "recorded": np.asarray(recorded, dtype=np.int64),
            "losses": losses,
        }
        begin = time.perf_counter()
        write_archive(self._path, dict(zip(self._like, leaves(carry), strict=True)) | arrays)
        self._last = time.perf_counter()
        self._cost = self._last - begin

    def load(self) -> Piece | None:
        """Return the rounds that were saved, or None if there is no file yet."""
        if not self._path.exists():
            return None
        try:
            held = read_archive(self._path)
        except FileFormatError as cause:
            raise self._refusal(f"is not a complete checkpoint ({cause})") from None
        if str(held.get("format")) != _FORMAT:
            raise FileFormatError(f"{self._path} is not a checkpoint of this version of fedavot")
        if str(held.get("fingerprint")) != self._fingerprint:
            raise FileFormatError(
                f"{self._path} belongs to another run (other data, rule, seeds or options); "
                "remove it, or save this run elsewhere"
            )
        missing = {*self._like, "recorded", "losses"} - held.keys()
        if missing:
            raise self._refusal(f"lacks {sorted(missing)}")
        recorded, losses = held["recorded"], held["losses"]
        if not self._fits(held, recorded, losses):
            raise self._refusal("holds arrays that this run cannot have saved")
        carry = jax.tree.unflatten(self._structure, [held[name] for name in self._like])
        return Piece(carry, losses, recorded.tolist())

    def _fits(self, held: dict[str, Any], recorded: Any, losses: Any) -> bool:
        """Return whether shapes, types and records are those of this run."""
        n_seeds = next(iter(self._like.values())).shape[0]
        return bool(
            all(
                (held[name].shape, held[name].dtype) == (leaf.shape, leaf.dtype)
                for name, leaf in self._like.items()
            )
            and (recorded.dtype, losses.dtype) == (np.int64, np.float64)
            and recorded.ndim == 1
            and recorded.size > 0
            and (np.diff(recorded, prepend=0) > 0).all()
            and losses.shape == (n_seeds, recorded.size)
            and np.isfinite(losses).all()
        )

    def _refusal(self, what: str) -> FileFormatError:
        return FileFormatError(f"{self._path} {what}; remove it to start afresh")
