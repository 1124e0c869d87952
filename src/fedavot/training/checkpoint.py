"""Checkpoints: the state of a run in one file, written completely or not at all.

The file is a NumPy archive with a checksum. It has the carry's arrays in order, the records so far,
and a fingerprint of the run: the library's version, the rule's name, the options, the functions of
the task and the rule, data, cohorts, weights, steps and first models. A file with another
fingerprint is refused; so is one that is truncated or damaged.
"""

import hashlib
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import jax
import numpy as np

from fedavot._checks import Floats
from fedavot._files import PathLike, read_archive, write_archive
from fedavot.errors import FileFormatError, OptionError
from fedavot.training.task import leaves

_FORMAT = "fedavot-training-4"


def fingerprint(*values: Any) -> str:
    """Return a digest of pytrees of arrays, functions, and whatever prints as what it is.

    A function counts by its code, its constants and what is bound in it, not by its name, which an
    edited one keeps; the functions that it calls count by their names.
    """
    digest = hashlib.sha256()
    seen: set[int] = set()

    def add(tree: Any) -> None:
        for leaf in jax.tree.leaves(tree, is_leaf=lambda leaf: leaf is None):
            value = inspect.unwrap(leaf) if callable(leaf) else leaf
            if isinstance(value, np.ndarray | np.generic | jax.Array):
                array = np.asarray(value)
                digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
            elif isinstance(value, CodeType):
                add((value.co_code, value.co_names, value.co_consts))
            elif isinstance(value, FunctionType):
                if id(value) not in seen:  # a function may be bound in itself
                    seen.add(id(value))
                    add((value.__code__, [cell.cell_contents for cell in value.__closure__ or ()]))
            else:
                # Some objects print with their address, which differs between processes.
                text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
                digest.update(f"{len(text)}:{text}".encode())

    add(values)
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
        self._structure = jax.tree.structure(like)

    def save(self, carry: Any, recorded: Sequence[int], losses: Floats) -> None:
        """Write the current state of the run, completely or not at all."""
        arrays = {f"leaf{at}": leaf for at, leaf in enumerate(leaves(carry))}
        words = {"format": _FORMAT, "fingerprint": self._fingerprint}
        records = {"recorded": np.asarray(recorded, dtype=np.int64), "losses": losses}
        write_archive(self._path, arrays | words | records)

    def load(self) -> Piece | None:
        """Return the rounds that were saved, or None if there is no file yet."""
        try:
            arrays = read_archive(self._path)
        except FileNotFoundError:
            return None
        except FileFormatError as cause:
            raise FileFormatError(
                f"{self._path} is not a complete checkpoint ({cause}); remove it to start afresh"
            ) from None
        if str(arrays.get("format")) != _FORMAT:
            raise FileFormatError(f"{self._path} is not a checkpoint of this version of fedavot")
        if str(arrays["fingerprint"]) != self._fingerprint:
            raise FileFormatError(
                f"{self._path} belongs to another run (other data, rule, seeds or options); "
                "remove it, or save this run elsewhere"
            )
        values = [arrays[f"leaf{at}"] for at in range(self._structure.num_leaves)]
        carry = jax.tree.unflatten(self._structure, values)
        return Piece(carry, arrays["losses"], arrays["recorded"].tolist())
