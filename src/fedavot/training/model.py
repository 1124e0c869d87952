"""The model before training, and a check that the loss accepts it.

The results of a caller's ``init``, ``start`` and ``loss`` are checked here once, by shape alone, so
that a mistake is reported as an error of the task, not from within a compiled program.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import as_array
from fedavot.errors import TaskError
from fedavot.training.options import Training
from fedavot.training.task import Params, Task, leaves


class Shapes(NamedTuple):
    """A pytree of shapes and types instead of arrays; hashable."""

    structure: Any
    arrays: tuple[Any, ...]

    @property
    def tree(self) -> Any:
        """The shapes and types, in a pytree like the arrays they describe."""
        import jax

        return jax.tree.unflatten(self.structure, self.arrays)

    def __str__(self) -> str:
        return str([array.shape for array in self.arrays])


def first_models(task: Task, training: Training, keys: Any) -> Params:
    """Return the first models, floats in the task's precision, with a leading axis of seeds.

    Parameters
    ----------
    task : Task
        Its ``init`` makes a model.
    training : Training
        Its ``start`` replaces that model, if given.
    keys : array of JAX keys, shape (n_seeds,)
        The arguments of ``init``.
    """
    import jax
    import jax.numpy as jnp

    try:
        made = _initialiser(task.init)
        models = made(keys) if training.start is None else jax.eval_shape(made, keys)
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
    return jax.tree.map(lambda leaf: leaf.astype(task.dtype), models)


def check_loss(task: Task, models: Params, data: Any, batch_size: int | None) -> None:
    """Refuse a loss that fails on the models, or is not a scalar.

    Parameters
    ----------
    task : Task
        The task with the loss.
    models : pytree of arrays, each with a leading axis of seeds
        From `first_models`.
    data : pytree of arrays, each of shape (n_clients, n_examples, ...)
        The task's data in the precision trained in.
    batch_size : int or None
        Number of examples per step; all of them if None.
    """
    import jax

    room = batch_size or (task.n_examples if task.counts is None else 1)
    arrays = [jax.ShapeDtypeStruct((room, *leaf.shape[2:]), leaf.dtype) for leaf in leaves(data)]
    params = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves(models)]
    _check_loss(
        task.loss,
        task.name,
        Shapes(jax.tree.structure(models), tuple(params)),
        Shapes(jax.tree.structure(data), tuple(arrays)),
    )


@functools.lru_cache(maxsize=64)
def _check_loss(loss: Callable[..., Any], name: str, params: Shapes, batch: Shapes) -> None:
    """Raise if the loss does; cached, as tracing it takes a while."""
    import jax
    import jax.numpy as jnp

    try:
        value = jax.eval_shape(loss, params.tree, batch.tree)
    except Exception as cause:
        raise TaskError(
            f"the loss of task {name!r} fails on a model of shapes {params} and a batch of shapes "
            f"{batch} ({type(cause).__name__}: {cause})"
        ) from cause
    scalar = isinstance(value, jax.ShapeDtypeStruct) and value.shape == ()
    if not (scalar and jnp.issubdtype(value.dtype, jnp.floating)):
        raise TaskError(
            f"the loss of task {name!r} returns {value}; it must return one float, the mean over "
            "the batch"
        )


def _refuse_unlike(name: str, start: Params, models: Params) -> None:
    """Refuse a start whose structure or shapes differ from those of init's models."""
    import jax

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
    """Return a path in a pytree in words; nothing if the tree is one array."""
    import jax

    return f" at {jax.tree_util.keystr(path)}" if path else ""


@functools.lru_cache(maxsize=64)
def _initialiser(init: Callable[[Any], Params]) -> Any:
    import jax

    return jax.jit(jax.vmap(init))
