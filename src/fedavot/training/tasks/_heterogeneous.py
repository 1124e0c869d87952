"""Clients that differ in where their features lie, how widely, and in the model behind them.

    x = μ_i/2 + s_i ε,   θ_i = base + (i − (N+1)/2)/(N/2) · direction + .3 ε_i,   i = 1, …, N

with μ_i, base, direction and every ε standard normal and s_i uniform on (.5, 1.5). The models drift
along one direction with the client's number, so that weighing clients wrongly moves the optimum.
"""

import numpy as np

from fedavot._checks import Floats, as_size


def heterogeneous_clients(
    n_clients: int, n_features: int, n_examples: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Draw every client's features, its model, and their products.

    Parameters
    ----------
    n_clients, n_features, n_examples : int
        Number of clients, of features, and of examples per client; at least 1.
    rng : numpy.random.Generator
        Source of everything random.

    Returns
    -------
    features : ndarray of shape (n_clients, n_examples, n_features)
        The clients' features.
    models : ndarray of shape (n_clients, n_features)
        The models behind them, θ_i.
    responses : ndarray of shape (n_clients, n_examples)
        Each example's xᵀθ_i, without noise.
    """
    clients = as_size(n_clients, what="n_clients", low=1)
    width = as_size(n_features, what="n_features", low=1)
    examples = as_size(n_examples, what="n_examples", low=1)
    base, direction = rng.standard_normal((2, width))
    means = rng.standard_normal((clients, 1, width))
    scales = rng.uniform(0.5, 1.5, (clients, 1, 1))
    features = 0.5 * means + scales * rng.standard_normal((clients, examples, width))
    drift = (np.arange(1, clients + 1) - (clients + 1) / 2) / (clients / 2)
    models = base + drift[:, None] * direction + 0.3 * rng.standard_normal((clients, width))
    return features, models, np.einsum("nmd,nd->nm", features, models)
