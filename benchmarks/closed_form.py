"""Plain IPFP on a NumPy version of the independent law's closed form.

The same integral on the same quadrature nodes as the library's, so that only the programs
differ: two passes over (clients, nodes) in blocks that stay in the cache, every array reused,
one exponential and one logarithm an entry in the first pass, one exponential and one division
in the second.
"""

import numpy as np

from benchmarks.evaluate import Answer
from benchmarks.problems import Floats, IndependentProblem
from fedavot.laws._quadrature import place_nodes

_BLOCK_ENTRIES = 1 << 17
"""Entries of a block, 1 MB: the fastest of 2^13 … 2^19 on the machine of the README."""


def ipfp(problem: IndependentProblem, max_iter: int = 1_000) -> Answer:
    """Run u ← u p/m(u) until the marginal is within ``tol`` in L1."""
    potentials = np.zeros(problem.importance.size)
    sweeps = 0
    while True:
        marginal = expected_weights(problem.probabilities, potentials)
        residual = np.abs(marginal - problem.importance).sum()
        if residual <= problem.tol or sweeps == max_iter:
            return Answer(potentials, note=f"{sweeps} iterations")
        potentials += np.log(problem.importance / marginal)
        sweeps += 1


def expected_weights(probabilities: Floats, potentials: Floats) -> Floats:
    """Return the expected weights of independent clients, shape (n_clients,)."""
    scale = np.exp(potentials - potentials.max())
    low, high = np.log(scale.min()), np.log(max(scale @ probabilities, 1.0))
    nodes = place_nodes(low, high)
    times = np.exp(nodes.log_times)
    block = max(1, _BLOCK_ENTRIES // times.size)
    work, divisor = np.empty((2, block, times.size))
    logs = np.zeros_like(times)
    for start in range(0, scale.size, block):
        part = slice(start, start + block)
        entries = work[: scale[part].size]
        _decay(scale[part], times, entries)
        entries -= 1.0
        entries *= probabilities[part, None]
        np.log1p(entries, out=entries)
        logs += entries.sum(axis=0)
    steps = nodes.steps * np.exp(logs) * times
    marginal = np.empty_like(scale)
    for start in range(0, scale.size, block):
        part = slice(start, start + block)
        entries, either = work[: scale[part].size], divisor[: scale[part].size]
        _decay(scale[part], times, entries)
        np.multiply(entries, probabilities[part, None], out=either)
        either += 1.0 - probabilities[part, None]
        entries /= either
        marginal[part] = entries @ steps
    marginal *= probabilities * scale
    # The weights sum to one: that settles P(A ≠ ∅) and the rounding in the normaliser.
    return marginal / marginal.sum()


def _decay(scale: Floats, times: Floats, out: Floats) -> None:
    """Write e^{−t u} for every client and node."""
    np.multiply.outer(scale, times, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
