"""Linear algebra on models, which are pytrees of arrays, and on tables of one model per client.

Describing a rule needs NumPy alone: JAX is imported when a model is first computed with.
"""

import importlib
from collections.abc import Callable
from typing import Any

Params = Any
"""A model: any pytree of arrays."""


class _Later:
    """A package that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


jax: Any = _Later("jax")
jnp: Any = _Later("jax.numpy")

WRITTEN_OUT = 4
"""Largest number of clients in a round for which compiled programs unroll the sum."""


def weighted(weights: Any, updates: Params) -> Params:
    """Return Σ w_i Δ_i, leaf by leaf."""
    if weights.shape[0] <= WRITTEN_OUT:
        # Unlike a matrix product, a few terms are fused with the operations before and after.
        terms = range(weights.shape[0])
        return each(lambda leaf: sum(weights[k] * leaf[k] for k in terms), updates)
    return each(lambda leaf: jnp.tensordot(weights, leaf, axes=1), updates)


def each(function: Callable[..., Any], *trees: Params) -> Params:
    """Return the function of the trees' leaves, leaf by leaf."""
    return jax.tree.map(function, *trees)


def plus(left: Params, right: Params) -> Params:
    """Return left + right, leaf by leaf."""
    return each(lambda a, b: a + b, left, right)


def minus(left: Params, right: Params) -> Params:
    """Return left − right, leaf by leaf."""
    return each(lambda a, b: a - b, left, right)


def scaled(factor: Any, tree: Params) -> Params:
    """Return factor · tree, leaf by leaf."""
    return each(lambda leaf: factor * leaf, tree)


def arrays(params: Params, *values: Any) -> list[Any]:
    """Return constants as arrays of the model's type, so that a compiled program serves all."""
    return [jnp.asarray(value, jax.tree.leaves(params)[0].dtype) for value in values]


def zeros_like(params: Params) -> Params:
    """Return a model of zeros."""
    return each(jnp.zeros_like, params)


def one_each(params: Params, n_clients: int) -> Params:
    """Return one model of zeros per client, each leaf with a leading axis of clients."""
    return each(lambda leaf: jnp.zeros((n_clients, *leaf.shape), leaf.dtype), params)


def pick(table: Params, members: Any) -> Params:
    """Return the members' rows of a table of models; absent places get an arbitrary row."""
    return each(lambda leaf: leaf.at[members].get(mode="clip"), table)


def along(values: Any, leaf: Any) -> Any:
    """Return one value per row, shaped to be combined with a leaf of a table."""
    return values.reshape(-1, *[1] * (leaf.ndim - 1))


def put(table: Params, members: Any, rows: Params) -> Params:
    """Return the table with the members' rows replaced; absent places are left alone."""
    return each(lambda leaf, row: leaf.at[members].set(row, mode="drop"), table, rows)
