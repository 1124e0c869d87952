"""Arrays of one number per client that lie on an accelerator and stay there.

A billion float64 numbers are 8 GB: results of that size are handed on as they lie, and come to the
host entry by entry, where a cohort asks for its members, or whole, where NumPy asks for an array.
"""

import functools
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedavot._checks import SUM_SLACK, Floats
from fedavot.errors import ImportanceError, InputError, LawError

CHUNK = 1 << 24
"""Clients that come to the host at once where all of them are wanted."""


LEAST_CLIENTS = 1_000_000
"""Number of clients from which on moving them to an accelerator pays."""


def pays(n_clients: int) -> bool:
    """Say whether so many clients are better off on an accelerator, and there is one."""
    return n_clients >= LEAST_CLIENTS and _has_accelerator()


@functools.cache
def _has_accelerator() -> bool:
    if find_spec("jax") is None:
        return False
    import jax

    return bool(jax.default_backend() != "cpu")


def is_held(values: Any) -> bool:
    """Say whether values are a JAX array on an accelerator, without importing JAX for it."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(values, jax.Array):
        return False
    return bool(all(device.platform != "cpu" for device in values.devices()))


class DeviceVector:
    """A one-dimensional float64 array on an accelerator.

    Indexing returns NumPy arrays, and so does ``numpy.asarray``, which copies everything.

    Parameters
    ----------
    values : jax.Array, shape (n_clients,)
        The numbers.
    """

    def __init__(self, values: Any) -> None:
        self.values = values
        self.size: int = values.size

    @property
    def shape(self) -> tuple[int]:
        """Number of entries, as of an array."""
        return (self.size,)

    def __repr__(self) -> str:
        return f"DeviceVector({self.size:,} entries)"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, entries: Any) -> Any:
        import jax

        if isinstance(entries, slice):
            first, last, step = entries.indices(self.size)
            return np.asarray(self.values[first:last])[::step]
        with jax.enable_x64(True):
            return np.asarray(self.values[np.asarray(entries)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.asarray(self.values, dtype=dtype)

    def chunks(self) -> Any:
        """Yield all entries as NumPy arrays, some at a time."""
        for first in range(0, self.size, CHUNK):
            yield self[first : min(first + CHUNK, self.size)]


def as_held(values: Any, *, what: str, error: type[InputError]) -> DeviceVector:
    """Return a JAX array on an accelerator as a vector of float64, or raise."""
    import jax.numpy as jnp

    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise error(
            f"{what} must be one real number per client, found {values.dtype} of shape "
            f"{values.shape}"
        )
    return DeviceVector(values.astype(jnp.float64))


def held_probabilities(values: Any) -> DeviceVector:
    """Return probabilities on an accelerator, checked there."""
    import jax

    with jax.enable_x64(True):
        held = as_held(values, what="probabilities", error=LawError)
        _refuse_first(
            held,
            lambda one: ~((one >= 0) & (one <= 1)),
            lambda place, value: (
                f"the probability of client {place} is {value}; it must be in [0, 1]"
            ),
            LawError,
        )
        if not bool((held.values > 0).any()):
            raise LawError("no client is ever available: every probability is 0")
    return held


def held_log_absence(probabilities: DeviceVector) -> float:
    """Return the log of the probability that nobody is available."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        return float(jnp.log1p(-probabilities.values).sum())


def held_importance(values: Any, n_clients: int) -> DeviceVector:
    """Return an importance on an accelerator, checked there, divided by its sum."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        held = as_held(jnp.asarray(values), what="importance", error=ImportanceError)
        if held.size != n_clients:
            raise ImportanceError(
                f"importance has {held.size} entries, but there are {n_clients} clients"
            )
        _refuse_first(
            held,
            lambda one: ~((one >= 0) & (one <= 1.0 + SUM_SLACK)),
            lambda place, value: (
                f"the importance of client {place} is {value}; it must be in [0, 1]"
            ),
            ImportanceError,
        )
        total = float(held.values.sum())
        if not abs(total - 1.0) <= SUM_SLACK:
            raise ImportanceError(
                f"importance sums to {total!r}, not 1; to use shares, divide it by its sum"
            )
        return DeviceVector(held.values / total)


def held_together(importance: Any, law: Any) -> DeviceVector | None:
    """Return the importance on the accelerator if it or the law's probabilities lie there."""
    if is_held(importance) or getattr(law, "held", None) is not None:
        return held_importance(importance, law.n_clients)
    return None


def _refuse_first(
    held: DeviceVector,
    wrong: Callable[[Any], Any],
    message: Callable[[int, float], str],
    error: type[InputError],
) -> None:
    bad = wrong(held.values)
    if bool(bad.any()):
        place = int(bad.argmax())
        raise error(message(place, float(held.values[place])))
