"""The independent law's sums as one compiled program, for many clients.

The same two passes over (clients, nodes) as `_quadrature`, fused by JAX so that no intermediate
leaves the cache: 8 times NumPy here, and the same program on an accelerator. Double precision is
asked for locally; the caller's JAX settings stay as they are.
"""

import functools
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.errors import FedavotWarning

_BLOCK = 8192
"""Clients a step: with some 70 nodes, what the second-level cache holds."""


@functools.cache
def can_compile() -> bool:
    """Say whether JAX is installed, and warn once that it would be faster if it is not."""
    if find_spec("jax") is not None:
        return True
    warnings.warn(
        "NumPy computes the weights of this many clients; JAX would do it several times faster: "
        "pip install 'fedavot[training]'",
        FedavotWarning,
        stacklevel=2,
    )
    return False


def independent_sums(
    probabilities: Floats, copies: Floats, potentials: Floats, times: tuple[Floats, Floats]
) -> Floats:
    """Return ∫ a dΩ and ∫ t u a dΩ up to a common factor, shape (2, n_clients).

    Parameters
    ----------
    probabilities, copies, potentials : float arrays, shape (n_clients,)
        Of each client, and how many clients alike it stands for.
    times : pair of float arrays, shape (n_times,)
        The nodes t and their quadrature weights.
    """
    import jax

    padding = -probabilities.size % _BLOCK
    # A client that never takes part adds nothing: pad to whole blocks with such clients.
    blocks = [
        np.pad(values, (0, padding)).reshape(-1, _BLOCK)
        for values in (probabilities, copies, np.exp(potentials))
    ]
    with jax.enable_x64(True):
        sums = np.asarray(_program()(*blocks, *times))
    return np.moveaxis(sums, 1, 0).reshape(2, -1)[:, : probabilities.size]


@functools.cache
def _program() -> Any:
    import jax
    import jax.numpy as jnp

    def sums(chances: Any, copies: Any, scales: Any, times: Any, steps: Any) -> Any:
        def add_logs(total: Any, block: Any) -> Any:
            chance, copy, scale = block
            logs = jnp.log1p(chance * jnp.expm1(-times[:, None] * scale))
            return total + (copy * logs).sum(axis=1), None

        blocks = (chances, copies, scales)
        logs = jax.lax.scan(add_logs, jnp.zeros_like(times), blocks)[0]
        first = steps * jnp.exp(logs) * times
        both = jnp.stack((first, first * times))

        def add_weights(_: Any, block: Any) -> Any:
            chance, copy, scale = block
            present = jnp.exp(-times[:, None] * scale)
            # The tiny term turns 0/0, a sure client long after its time, into 0.
            ratio = present / ((1.0 - chance) + chance * present + 1e-300)
            own = copy * chance * scale
            return None, (both @ ratio) * jnp.stack((own, own * scale))

        return jax.lax.scan(add_weights, None, blocks)[1]

    return jax.jit(sums)
