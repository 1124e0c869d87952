"""The model before training, and a check that the loss accepts it.

The results of a caller's ``init``, ``start`` and ``loss`` are checked here once, by shape alone, so
that a mistake is reported as an error of the task, not from within a compiled program.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedavot._checks import as_array
from fedavot.errors import TaskError
from fedavot.training.options import Training
from fedavot.training.task import Params, Task, leaves

_checked: weakref.WeakKeyDictionary[Task, set[Any]] = weakref.WeakKeyDictionary()
"""The shapes of models and batches that each task's loss was seen to accept."""


def first_models(task: Task, training: Training, keys: Any) -> Params:
    """Return the first models, floats in the task's precision, with a leading axis of seeds.

    They come from the task's ``init`` with each seed's key, or are the training's ``start``.
    """
    try:
        made = _models if training.start is None else _models.eval_shape
        models = made(task.init, keys)
    except Exception as cause:
        raise TaskError(
            f"init of task {task.name!r} fails ({type(cause).__name__}: {cause}); it must take a "
            "JAX key and return a pytree of arrays"
        ) from cause
    if not leaves(models):
        raise TaskError(f"the model of task {task.name!r} has no parameters")
    if training.start is not None:
        _refuse_unlike(task.name, training.start, models)
        where = f"the start of task {task.name!r}"
        models = jax.tree.map(
            lambda leaf: jnp.broadcast_to(
                jnp.asarray(as_array(leaf, otherwise=where, error=TaskError)),
                (keys.size, *np.shape(leaf)),
            ),
            training.start,
        )
    for path, leaf in jax.tree.leaves_with_path(models):
        what = f"the first model of task {task.name!r}{_place(path)}"
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TaskError(f"{what} has type {leaf.dtype}; parameters must be floats")
        if not np.isfinite(np.asarray(leaf)).all():
            raise TaskError(f"{what} has entries that are not finite")
    return jax.tree.map(
        lambda leaf: leaf if leaf.dtype == task.dtype else leaf.astype(task.dtype), models
    )


def as_models(task: Task, params: Params) -> Params:
    """Return a caller's models, or refuse those whose shapes differ from the task's own.

    Each leaf has a leading axis of seeds.
    """
    made = _models.eval_shape(task.init, jax.random.key(0)[None])
    wanted, found = (
        (jax.tree.structure(tree), [np.shape(leaf)[1:] for leaf in leaves(tree)])
        for tree in (made, params)
    )
    seeds = {np.shape(leaf)[:1] for leaf in leaves(params)}
    if found != wanted or len(seeds) != 1 or () in seeds:
        raise TaskError(
            f"the models have shapes {jax.tree.map(np.shape, params)}; those of task "
            f"{task.name!r} have {jax.tree.map(lambda leaf: leaf.shape[1:], made)} after a leading "
            "axis of seeds, which params[None] adds to a single array"
        )
    return params


def check_loss(task: Task, models: Params, data: Any, batch_size: int | None) -> None:
    """Refuse a loss that fails on models from `first_models` and batches of this data.

    It must return a scalar. The data are in the precision used for training.
    """
    flat, structure = jax.tree.flatten(models)
    key = (structure, batch_size, *((leaf.shape, leaf.dtype) for leaf in flat))
    if key not in _checked.setdefault(task, set()):
        _try_loss(task, models, data, batch_size)
        _checked[task].add(key)


def _try_loss(task: Task, models: Params, data: Any, batch_size: int | None) -> None:
    room = batch_size or (task.n_examples if task.counts is None else 1)
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), models)
    batch = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((room, *leaf.shape[2:]), leaf.dtype), data
    )
    try:
        value = _loss.eval_shape(task.loss, params, batch)
    except Exception as cause:
        raise TaskError(
            f"the loss of task {task.name!r} fails on a model of shapes {_shapes(params)} and a "
            f"batch of shapes {_shapes(batch)} ({type(cause).__name__}: {cause})"
        ) from cause
    scalar = isinstance(value, jax.ShapeDtypeStruct) and value.shape == ()
    if not (scalar and jnp.issubdtype(value.dtype, jnp.floating)):
        raise TaskError(
            f"the loss of task {task.name!r} returns {value}; it must return one float, the mean "
            "over the batch"
        )


@functools.partial(jax.jit, static_argnums=0)
def _models(init: Callable[[Any], Params], keys: Any) -> Params:
    return jax.vmap(init)(keys)


@functools.partial(jax.jit, static_argnums=0)
def _loss(loss: Callable[[Params, Any], Any], params: Params, batch: Any) -> Any:
    """Return the loss; as one compiled function it is traced once for each set of shapes."""
    return loss(params, batch)


def _refuse_unlike(name: str, start: Params, models: Params) -> None:
    """Refuse a start whose structure or shapes differ from those of init's models."""
    wanted, found = jax.tree.structure(models), jax.tree.structure(start)
    if found != wanted:
        raise TaskError(
            f"start has the structure {found}, but init of task {name!r} makes {wanted}"
        )
    for (path, leaf), model in zip(jax.tree.leaves_with_path(start), leaves(models), strict=True):
        if np.shape(leaf) != model.shape[1:]:
            raise TaskError(
                f"start{_place(path)} has shape {np.shape(leaf)}, "
                f"but init of task {name!r} makes {model.shape[1:]}"
            )


def _place(path: Any) -> str:
    """Return a path in a pytree in words; an empty string if the tree is a single array."""
    return f" at {jax.tree_util.keystr(path)}" if path else ""


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in leaves(tree)]
