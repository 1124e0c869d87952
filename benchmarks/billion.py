"""Independent clients on an accelerator: ``python -m benchmarks.billion [N ...]``.

Mean cohort 5, importance proportional to exp(Normal(0, .25)). Each size is compiled once and then
timed: the certificate, and the alignment to an L1 gap of 1e-9. The answer is checked by another
evaluation: the normaliser by a finer quadrature, with sums of pieces in extended precision on the
host, and from it the expected weights of a thousand clients in extended precision. Mixtures of 24
states are timed at the smallest size. It is no part of ``make bench``.
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedavot as fa

SIZES = (10**7, 10**8, 10**9)
STATES = 24
SAMPLE = 1_000
PIECE = 1 << 22
FINER = 0.11
"""Step of the check's trapezoid rule in log t, half of the library's."""


def importance_of(n_clients: int, seed: int = 0) -> Any:
    """Return the skewed importance, on the device."""
    draws = jax.random.normal(jax.random.key(seed), (n_clients,), jnp.float64)
    skewed = jnp.exp(0.25 * draws)
    return skewed / skewed.sum()


def timed(work: Any) -> tuple[float, Any]:
    """Return the seconds of the second call, and its result."""
    work()
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


@jax.jit
def _piece(chances: Any, potentials: Any, times: Any) -> Any:
    def of_node(time_: Any) -> Any:
        return jnp.log1p(chances * jnp.expm1(-time_ * jnp.exp(potentials))).sum()

    return jax.lax.map(of_node, times)


def largest_error(found: fa.Alignment, chances: Any, importance: Any) -> float:
    """Return the largest relative error of a sample of clients, by another evaluation."""
    potentials: Any = found.potentials
    values = potentials.values
    low, high = float(values.min()), float(values.max())
    log_times = np.arange(-46.0 - high, np.log(60.0) - low, FINER)
    logs = np.zeros(log_times.size, dtype=np.longdouble)
    for first in range(0, values.size, PIECE):
        part = slice(first, first + PIECE)
        logs += np.asarray(_piece(chances[part], values[part], np.exp(log_times)))
    nonempty = -np.expm1(logs[-1])
    sample = np.random.default_rng(0).choice(values.size, SAMPLE, replace=False)
    own, rate = potentials[sample].astype(np.longdouble), np.asarray(chances[sample])
    scaled = np.exp(np.add.outer(own, log_times.astype(np.longdouble)))
    absent = np.exp(-scaled)
    tilted = absent / (1 - rate[:, None] + rate[:, None] * absent)
    weights = FINER * (rate[:, None] * scaled * tilted) @ np.exp(logs) / nonempty
    wanted = np.asarray(importance[sample])
    return float(np.max(np.abs(weights - wanted) / wanted))


def main() -> None:
    """Print one line per size."""
    sizes = [int(float(text)) for text in sys.argv[1:]] or list(SIZES)
    device = jax.devices()[0]
    print(
        f"{device.device_kind}: clients, certify s, align s, residual, evaluations, largest error"
    )
    with jax.enable_x64(True):
        for n_clients in sizes:
            measure(n_clients, device)
        mixed(sizes[0])


def measure(n_clients: int, device: Any) -> None:
    """Time and check one size."""
    importance = importance_of(n_clients)
    chances = jnp.full(n_clients, 5.0 / n_clients)
    law = fa.IndependentClients(chances)
    proof, certificate = timed(lambda: fa.certify(importance, law))
    seconds, found = timed(lambda: fa.align(importance, law))
    error = largest_error(found, chances, importance)
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 1e9
    print(
        f"{n_clients:13,} {proof:7.3f} {seconds:7.3f} {found.residual:8.1e} "
        f"{found.iterations} {error:8.1e}  peak {peak:.0f} GB, {certificate!r}",
        flush=True,
    )
    cohort = np.random.default_rng(1).choice(n_clients, 100, replace=False)
    weighing = timed(lambda: found.weights(cohort))[0]
    print(f"{'':13} weights of 100: {weighing * 1e6:.0f} µs")


def mixed(n_clients: int) -> None:
    """Time a mixture of many states."""
    importance = importance_of(n_clients)
    rng = np.random.default_rng(2)
    rates = rng.uniform(3.0, 9.0, STATES) / n_clients
    tilts = [1.0 + 0.5 * jnp.sin(jnp.arange(n_clients) * (k + 1.0)) for k in range(STATES)]
    laws = [fa.IndependentClients(r * t) for r, t in zip(rates, tilts, strict=True)]
    law = fa.Mixture(laws, np.full(STATES, 1 / STATES))
    seconds, found = timed(lambda: fa.align(importance, law))
    print(f"{n_clients:13,} in {STATES} states: {seconds:.3f} s, {found!r}")


if __name__ == "__main__":
    main()
