"""Explicit cohorts on an accelerator: ``python -m benchmarks.explicit_accelerator [ENTRIES ...]``.

One evaluation of the dual of a list of cohorts of ten, the expected weights u ∘ Sᵀ(q/Su): on the
host as the library computes it (sparse products on all cores), and by JAX on its first device,
with the members already there. Sums over clients are done in two ways: scattered into place, and
gathered by a second list of the cohorts of each client. Answers are compared with the host's, and
on a sample of clients with sums in extended precision. It is no part of ``make bench``.
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedavot._incidence import Incidence
from fedavot.laws._explicit import ExplicitSystem

ENTRIES = (10**6, 10**7, 10**8)
SIZE = 10
COHORTS_PER_CLIENT = 100
SAMPLE = 200
REPEAT = 5


def draw(n_entries: int) -> tuple[Any, int]:
    """Return random cohorts, shape (n_cohorts, SIZE), and the number of clients."""
    n_clients = max(SIZE * SIZE, n_entries // COHORTS_PER_CLIENT)
    rng = np.random.default_rng(8)
    # One member from each tenth of the clients: distinct and ascending without sorting.
    tenth = n_clients // SIZE
    members = rng.integers(0, tenth, (n_entries // SIZE, SIZE), dtype=np.int32)
    return members + np.arange(0, SIZE * tenth, tenth, dtype=np.int32), SIZE * tenth


@jax.jit
def _scattered(members: Any, shares: Any, potentials: Any) -> Any:
    scale = jnp.exp(potentials)
    share = shares / scale[members].sum(axis=1)
    spread = jnp.broadcast_to(share[:, None], members.shape)
    return scale * jnp.zeros_like(scale).at[members].add(spread)


@jax.jit
def _gathered(members: Any, shares: Any, cohorts: Any, owners: Any, potentials: Any) -> Any:
    scale = jnp.exp(potentials)
    share = shares / scale[members].sum(axis=1)
    sums = jax.ops.segment_sum(
        share[cohorts], owners, num_segments=scale.size, indices_are_sorted=True
    )
    return scale * sums


def least_seconds(work: Any) -> tuple[float, Any]:
    """Return the least time of several calls after a first one, and the result."""
    found = jax.block_until_ready(work())
    times = []
    for _ in range(REPEAT):
        begin = time.perf_counter()
        found = jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return min(times), found


def sampled_error(members: Any, shares: Any, potentials: Any, found: Any) -> float:
    """Return the largest relative error of a sample of clients, in extended precision."""
    sample = np.random.default_rng(0).choice(potentials.size, SAMPLE, replace=False)
    chosen = np.isin(members, sample).any(axis=1)
    scale = np.exp(potentials.astype(np.longdouble))[members[chosen]]
    weights = scale / scale.sum(axis=1, keepdims=True) * shares[chosen, None]
    wanted = np.zeros(potentials.size, dtype=np.longdouble)
    np.add.at(wanted, members[chosen], weights)
    return float(np.max(np.abs(found[sample] / wanted[sample] - 1)))


def measure(n_entries: int) -> None:
    """Time and check one size."""
    members, n_clients = draw(n_entries)
    shares = np.full(len(members), 1.0 / len(members))
    potentials = np.random.default_rng(9).normal(0.0, 0.5, n_clients)
    offsets = np.arange(0, members.size + 1, SIZE, dtype=np.int64)
    system = ExplicitSystem(Incidence(members.ravel(), offsets, n_clients), shares, None)
    host, wanted = least_seconds(lambda: system.marginal(potentials))
    begin = time.perf_counter()
    held = jax.block_until_ready(tuple(map(jnp.asarray, (members, shares, potentials))))
    moving = time.perf_counter() - begin
    owners = members.ravel()
    order = np.argsort(owners, kind="stable")
    lists = tuple(map(jnp.asarray, ((order // SIZE).astype(np.int32), owners[order])))
    scatter, first = least_seconds(lambda: _scattered(*held))
    gather, second = least_seconds(lambda: _gathered(held[0], held[1], *lists, held[2]))
    apart = max(float(np.abs(np.asarray(one) / wanted - 1).max()) for one in (first, second))
    error = sampled_error(members, shares, potentials, np.asarray(second))
    print(
        f"{members.size:12,} {n_clients:10,} {host:9.4f} {moving:9.4f} {scatter:9.4f} "
        f"{gather:9.4f} {host / min(scatter, gather):7.1f} {apart:9.1e} {error:9.1e}",
        flush=True,
    )


def main() -> None:
    """Print one line per number of entries."""
    sizes = [int(float(text)) for text in sys.argv[1:]] or list(ENTRIES)
    print(f"{jax.devices()[0].device_kind}; seconds of one evaluation:")
    heads = ("host", "moving", "scattered", "gathered")
    named = " ".join(f"{head:>9}" for head in heads)
    print(f"{'entries':>12} {'clients':>10} {named} {'times':>7} {'apart':>9} {'error':>9}")
    with jax.enable_x64(True):
        for n_entries in sizes:
            measure(n_entries)


if __name__ == "__main__":
    main()
