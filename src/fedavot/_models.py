"""Models of any kind as named arrays, and back: mappings, sequences, single arrays, JAX pytrees.

The arrays may be NumPy's, PyTorch's or JAX's; neither PyTorch nor JAX is imported unless the caller
has. An entry is named by its path, with dots in between: "layer.weight", or "0" in a list. Models
that are aggregated must have the same entries, of their own, and finite.
"""

import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, quoted, shown
from fedavot.errors import ModelError

Build = Callable[[Iterator[Any]], Any]
"""A function that puts new leaves, in order, into a model's structure."""
TENSORS = r"torch\.(bool|u?int(8|16|32|64)|b?float(16|32|64))"
"""Types of PyTorch's tensors that NumPy has too, and bfloat16."""


@dataclass(frozen=True, eq=False)
class Model:
    """A model's arrays by name, and its structure."""

    leaves: dict[str, Any]
    build: Build

    def like(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Return a model of the same kind, types and devices with these entries."""
        return self.build(_like(leaf, arrays[name]) for name, leaf in self.leaves.items())


def as_model(value: Any, *, what: str) -> Model:
    """Return the arrays of a model, or refuse what is no model."""
    leaves: dict[str, Any] = {}
    build = _walk(value, "", leaves, what)
    if not leaves:
        raise ModelError(f"{what} has no arrays: found {shown(value)}")
    return Model(leaves, build)


def as_numpy(leaf: Any) -> NDArray[Any]:
    """Return a leaf as a NumPy array, without a copy if possible; bfloat16 as float32."""
    if _is_tensor(leaf):
        leaf = leaf.detach().cpu()
        return np.asarray((leaf.float() if "bfloat16" in str(leaf.dtype) else leaf).numpy())
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def shape_of(leaf: Any) -> tuple[int, ...]:
    """Return a leaf's shape."""
    return tuple(np.shape(leaf))


def is_float(leaf: Any) -> bool:
    """Return whether a leaf is of a floating-point type."""
    kind = getattr(leaf, "dtype", type(leaf))
    return "float" in getattr(kind, "name", str(kind))


def as_models(model: Any, ends: Mapping[Any, Any], *, noun: str) -> dict[str, Model]:
    """Return the server's model and the clients' models or updates, which are alike in form.

    They are keyed by who they are of, for messages; ``noun`` is what clients sent.
    """
    base = as_model(model, what="the model")
    models, owners = {"the model": base}, dict[frozenset[int], str]()
    for name, value in ends.items():
        who = f"the {noun} of client {quoted(name)}"
        leaves = as_model(value, what=who).leaves
        for key in sorted(base.leaves.keys() ^ leaves.keys()):
            number = "no" if key in base.leaves else "an"
            raise ModelError(f"{who} has {number} entry {key!r}, unlike the server's model")
        for key, leaf in base.leaves.items():
            shape, expected = shape_of(leaves[key]), shape_of(leaf)
            if shape != expected:
                raise ModelError(f"{who} has shape {shape} at {key!r}; the server's has {expected}")
            if is_float(leaves[key]) and not is_float(leaf):
                raise ModelError(
                    f"{who} has floats at {key!r}; the server's model must have them too"
                )
        models[who] = Model(leaves, base.build)
    for who, each in models.items():  # models of the same tensors: training one changed the other
        floats = [leaf for leaf in each.leaves.values() if is_float(leaf)]
        places = frozenset(leaf.data_ptr() for leaf in floats if hasattr(leaf, "data_ptr"))
        if places and places in owners:
            raise ModelError(
                f"{who} and {owners[places]} are the same tensors, so that training one changes "
                "both; pass copies, as from copy.deepcopy(net.state_dict())"
            )
        owners[places] = who
    return models


def is_finite(array: NDArray[Any], kind: np.dtype[Any]) -> bool:
    """Return whether all entries are finite in a type; their sum, if finite, shows it faster."""
    array = array.astype(kind, copy=False) if kind.kind == "f" else array
    return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def refuse_not_finite(key: str, models: Mapping[str, Model]) -> NoReturn:
    """Say which model or update has an entry that is not finite."""
    for who, model in models.items():
        if not np.isfinite(as_numpy(model.leaves[key])).all():
            remedy = "leave this client out"
            if who == "the model":
                remedy = "go back to an earlier one, or leave out constants such as masks"
            raise ModelError(f"{who} is not finite at {key!r}; {remedy}")
    who = max(list(models)[1:], key=lambda who: np.abs(as_numpy(models[who].leaves[key])).max())
    raise ModelError(f"{who} is too large at {key!r} for the model's type; leave this client out")


def moved(
    first: NDArray[Any], others: Sequence[NDArray[Any]], weights: Floats, are_models: bool
) -> NDArray[Any]:
    """Return the model moved by the weighted updates; integers are rounded."""
    kind = np.result_type(np.float32 if first.dtype.kind == "f" else np.float64, first.dtype)
    result = first.astype(kind) * kind.type(1.0 - weights.sum() if are_models else 1.0)
    for weight, other in zip(weights.tolist(), others, strict=True):
        result += np.multiply(other, weight, dtype=kind)
    if first.dtype.kind == "f":
        return np.asarray(result)
    alike = np.all([other == (first if are_models else 0) for other in others], axis=0)
    if first.dtype.kind != "b":
        result = np.clip(result, np.iinfo(first.dtype).min, np.iinfo(first.dtype).max)
    return np.where(alike, first, np.rint(result).astype(first.dtype))


def _walk(part: Any, name: str, leaves: dict[str, Any], what: str) -> Build:
    """Collect the leaves below a part of a model, and return how to build it again."""
    if isinstance(part, Mapping):
        builds = {
            key: _walk(each, f"{name}.{key}" if name else str(key), leaves, what)
            for key, each in part.items()
        }
        return lambda new: _filled(part, {key: build(new) for key, build in builds.items()})
    if isinstance(part, list | tuple):
        parts = [
            _walk(each, f"{name}.{place}" if name else str(place), leaves, what)
            for place, each in enumerate(part)
        ]
        make = getattr(part, "_make", type(part))
        return lambda new: make([build(new) for build in parts])
    if part is None:
        return lambda new: None
    if hasattr(part, "state_dict") and not isinstance(part, type):
        raise ModelError(f"{what} is a {type(part).__name__}; pass its state_dict() instead")
    if _is_leaf(part):
        if (name or "0") in leaves:
            raise ModelError(f"{what} has two entries named {name or '0'!r}; rename one")
        leaves[name or "0"] = part
        return next
    jax = sys.modules.get("jax")
    if jax is not None and not jax.tree_util.all_leaves([part]):
        paths, structure = jax.tree_util.tree_flatten_with_path(part)
        for path, each in paths:
            label = jax.tree_util.keystr(path, simple=True, separator=".")
            _walk(each, f"{name}.{label}" if name else label, leaves, what)
        return lambda new: structure.unflatten([next(new) for _ in paths])
    where = f"{what} has {shown(part)} at {name!r}" if name else f"{what} is {shown(part)}"
    raise ModelError(
        f"{where}; a model is a mapping of arrays (a state_dict), a sequence of arrays, an array, "
        "or a JAX pytree; arrays are dense, of integers or of floats of 16 bits or more"
    )


def _is_leaf(part: Any) -> bool:
    """Return whether a part is an array of numbers, or a number."""
    if _is_tensor(part):
        return "strided" in str(part.layout) and re.fullmatch(TENSORS, str(part.dtype)) is not None
    jax = sys.modules.get("jax")
    if isinstance(part, np.ndarray | np.generic) or (jax and isinstance(part, jax.Array)):
        return getattr(part.dtype, "kind", "O") in "biuf" or str(part.dtype) == "bfloat16"
    return isinstance(part, bool | int | float)


def _is_tensor(leaf: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def _filled(part: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    """Return a mapping like another one, with its attributes, such as those of a state_dict."""
    if not isinstance(part, MutableMapping):
        return type(part)(entries)  # type: ignore[call-arg]
    filled = copy.copy(part)
    filled.update(entries)
    return filled


def _like(leaf: Any, array: NDArray[Any]) -> Any:
    """Return an array as a leaf of the same kind, type, device and shape as another one."""
    shaped = array.reshape(shape_of(leaf))
    if _is_tensor(leaf):
        import torch

        return torch.from_numpy(shaped).to(leaf.device, leaf.dtype)
    if isinstance(leaf, np.ndarray):
        return shaped.astype(leaf.dtype, copy=False)
    if isinstance(leaf, bool | int | float | np.generic):
        return type(leaf)(shaped)
    import jax

    return jax.device_put(shaped.astype(leaf.dtype), leaf.sharding)
