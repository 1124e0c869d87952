"""The model before training, and a check that the loss accepts it.

The results of a caller's ``init``, ``start`` and ``loss`` are checked here once, by shape alone, so
that a mistake is reported as an error of the task, not from within a compiled program.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedavot.errors import TaskError
from fedavot.training.options import Training
from fedavot.training.task import Params, Task, leaves


def first_models(task: Task, training: Training, keys: Any) -> Params:
    """Return the first models, floats in the task's precision, with a leading axis of seeds.

    They come from the task's ``init`` with each seed's key, or are the training's ``start``.
    """
    models = _initial(task, keys, _models)
    if training.start is not None:
        start = jax.tree.map(lambda leaf: np.asarray(leaf)[None], training.start)
        _refuse_unlike(task, start, models, "the arrays of start")
        models = jax.tree.map(lambda leaf: jnp.repeat(leaf, keys.size, axis=0), start)
    for path, leaf in jax.tree.leaves_with_path(models):
        place = f" at {jax.tree_util.keystr(path)}" if path else ""
        what = f"the first model of task {task.name!r}{place}"
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TaskError(f"{what} has type {leaf.dtype}; parameters must be floats")
        if not np.isfinite(np.asarray(leaf)).all():
            raise TaskError(f"{what} has entries that are not finite")
    return jax.tree.map(lambda leaf: leaf.astype(task.dtype), models)


def as_models(task: Task, params: Params) -> Params:
    """Return a caller's models, with a leading axis of seeds, if their shapes are the task's."""
    models = _initial(task, jax.random.key(0)[None], _models.eval_shape)
    what = "beside a leading axis of seeds, which params[None] adds, the models"
    _refuse_unlike(task, params, models, what)
    return params


def check_loss(task: Task, models: Params, data: Any, batch_size: int | None) -> None:
    """Refuse a loss that fails on models from `first_models` and batches of this data.

    It must return a scalar. The data are in the precision used for training.
    """
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
    if getattr(value, "shape", None) != () or not jnp.issubdtype(value.dtype, jnp.floating):
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


def _initial(task: Task, keys: Any, make: Callable[..., Params]) -> Params:
    """Return the models that the task's init makes, or their shapes."""
    try:
        models = make(task.init, keys)
    except Exception as cause:
        raise TaskError(
            f"init of task {task.name!r} fails ({type(cause).__name__}: {cause}); it must take a "
            "JAX key and return a pytree of arrays"
        ) from cause
    if not leaves(models):
        raise TaskError(f"the model of task {task.name!r} has no parameters")
    return models


def _refuse_unlike(task: Task, params: Params, models: Params, what: str) -> None:
    """Refuse models whose structure or shapes, after the axis of seeds, are not the task's."""
    shapes, needed = (
        jax.tree.map(lambda leaf: np.shape(leaf)[1:], tree) for tree in (params, models)
    )
    seeds = {np.shape(leaf)[:1] for leaf in leaves(params)}
    if shapes != needed or len(seeds) != 1 or () in seeds:
        raise TaskError(
            f"{what} have shapes {shapes}; init of task {task.name!r} makes models of {needed}"
        )


def _shapes(tree: Any) -> Any:
    return jax.tree.map(np.shape, tree)
