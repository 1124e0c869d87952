"""Sums over up to a billion independent clients, on an accelerator, in one pass per sum.

The mathematics is that of `_quadrature`. Arrays lie on the device as (n_blocks, block) from the
first evaluation to the last; a law of independent clients is a mixture of one state. Each program
scans the blocks, and within a block everything from exp to the sum over clients or nodes is fused,
so that device memory is read about once per pass. With several devices, the blocks are sharded
along their second axis, and the compiler adds up over devices. The programs are in `_programs`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedavot._checks import Floats
from fedavot.errors import TooLargeError
from fedavot.laws import _programs as run
from fedavot.laws._law import Law
from fedavot.laws._quadrature import Nodes, place_nodes
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture

_BLOCK = {"cpu": 1 << 13}
"""Clients per block: what a CPU's cache holds with the nodes, and enough to fill an accelerator."""
_LARGE_BLOCK = 1 << 20
_ENTRIES = 1 << 28
"""Largest number of entries of a block of columns, which a matrix product needs in memory."""
_COLUMNS = 24
"""Columns of one state, about."""
_ARRAYS = 6
"""Arrays of one number per client that a solution needs at its largest."""
_WIDEST = 600.0
"""Range of potentials beyond which exp(x) is no float."""


_DIGITS = 24
"""Values of each digit of a bucket's number: 576 buckets."""


class Histogram(NamedTuple):
    """Sums over the clients in equal buckets of log p_i/a_i, of which the first begins at ``low``.

    The other fields are Σ p, Σ a and the number of clients, shape (n_buckets,).
    """

    low: float
    width: float
    importance: Floats
    exponents: Floats
    counts: Floats


@dataclass(frozen=True, eq=False)
class DeviceClients:
    """Importance and probabilities of clients in one or more states, on the device.

    ``importance`` has shape (n_blocks, block), ``chances`` (n_states, n_blocks, block); entries
    past ``n_clients`` are zero. ``shares`` are the states' weights over their P(A ≠ ∅).
    """

    n_clients: int
    importance: Any
    chances: Any
    shares: Floats


def states_of(law: Law | None) -> tuple[list[Any], Floats] | None:
    """Return the probabilities of each state's clients and the states' weights.

    None for laws that are not independent clients or mixtures of such.
    """
    if isinstance(law, IndependentClients):
        return [law.probabilities if law.held is None else law.held.values], np.ones(1)
    if not isinstance(law, Mixture):
        return None
    states = [states_of(one) for one in law.laws]
    if any(state is None or len(state[0]) > 1 for state in states):
        return None
    return [state[0][0] for state in states if state is not None], law.probabilities


def place(importance: Any, chances: list[Any], weights: Floats) -> DeviceClients:
    """Move importance and probabilities to the device, in blocks; raise if there is no room."""
    n_clients, devices = importance.size, jax.devices()
    block = _BLOCK.get(devices[0].platform, _LARGE_BLOCK)
    most = _ENTRIES // (_COLUMNS * len(chances))
    block = min(
        block, 1 << int(most).bit_length() - 1, 1 << max(int(n_clients - 1).bit_length(), 3)
    )
    block += -block % len(devices)
    n_blocks = -(-n_clients // block)
    _refuse_without_room(n_clients, len(chances), devices)
    with jax.enable_x64(True):

        def blocks(values: Any) -> Any:
            padded = jnp.pad(jnp.asarray(values, jnp.float64), (0, n_blocks * block - n_clients))
            return _sharded(padded.reshape(n_blocks, block), devices)

        held = _sharded(jnp.stack([blocks(one) for one in chances]), devices)
        nonempty = -np.expm1(-np.asarray(run.exponents(held)))
        return DeviceClients(n_clients, blocks(importance), held, weights / nonempty)


def _sharded(array: Any, devices: list[Any]) -> Any:
    """Spread the last axis over the devices, if there are several."""
    if len(devices) == 1:
        return array

    mesh = jax.sharding.Mesh(np.array(devices), ("clients",))
    spec = jax.sharding.PartitionSpec(*[None] * (array.ndim - 1), "clients")
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, spec))


def _refuse_without_room(n_clients: int, n_states: int, devices: list[Any]) -> None:
    needed = 8 * n_clients * (_ARRAYS + n_states)
    memory = [device.memory_stats() or {} for device in devices]
    limit = sum(one.get("bytes_limit", np.inf) for one in memory)
    if needed > limit:
        raise TooLargeError(
            f"{n_clients:,} clients in {n_states} states need about {needed / 1e9:,.0f} GB on the "
            f"device, which has {limit / 1e9:,.0f} GB; use more devices (JAX_PLATFORMS, "
            "CUDA_VISIBLE_DEVICES), or JAX_PLATFORMS=cpu"
        )


def ordinary(clients: DeviceClients) -> bool:
    """Say whether every client has importance, and none is always or never there."""
    found = run.extremes(clients.importance, clients.chances, clients.n_clients)
    least, low, high = (float(one) for one in found)
    return least > 0 and low > 0 and high < 1


def histogram_of(clients: DeviceClients) -> Histogram:
    """Return sums of ordinary clients of one state, by p_i/a_i."""
    arrays = (clients.importance, clients.chances)
    low, high = (float(one) for one in run.ratios(*arrays))
    width = max((high - low) / _DIGITS**2, 1e-9)
    sums = run.histogram(*arrays, low, width, np.arange(_DIGITS, dtype=np.float64))
    return Histogram(low, width, *np.asarray(sums))


def nodes_for(clients: DeviceClients, potentials: Any) -> Nodes | None:
    """Return the nodes that the potentials need; None if these are too far apart."""
    found = run.bounds(clients.importance, clients.chances, potentials)
    low, high, total = (float(one) for one in found)
    if not high - low < _WIDEST:
        return None
    nodes = place_nodes(low - high, float(np.log(max(total, 1.0))))
    # They are placed for potentials of at most zero, and t scales with the largest.
    return nodes._replace(log_times=nodes.log_times - high)


def expected_square(law: Law, attained: Any, potentials: Any) -> float:
    """Return E‖Y_A‖², from potentials on the device."""
    states = states_of(law)
    assert states is not None
    with jax.enable_x64(True):
        clients = place(attained, *states)
        blocks = place(potentials, *states).importance
        nodes = nodes_for(clients, blocks)
        assert nodes is not None
        times = np.exp(nodes.log_times)
        return float(run.squares(clients.chances, clients.shares, blocks, times, nodes.steps))
