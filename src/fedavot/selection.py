"""Selection: which of the available clients to ask, and how to weight their answers.

When the server sees which clients are available and asks only K of them, client i is asked with
inclusion probability π_i = min(1, c·w_i), where c makes the π_i sum to K, and answers with weight
w_i/π_i. The aggregate is then unbiased for Σ w_i θ_i, and the weights of any draw sum to one: a
capped client keeps w_i, the others share the rest equally. The sample is systematic in random order
(Madow 1949; Tillé 2006, section 7.1): its size is fixed and its inclusion probabilities are exact.
The weights w come from an alignment.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_distribution, as_generator, as_size
from fedavot.errors import InputError


def select(weights: ArrayLike, size: int, rng: np.random.Generator) -> tuple[Integers, Floats]:
    """Choose ``size`` of the available clients so that their weighted sum is unbiased.

    Parameters
    ----------
    weights : array_like of shape (n_available,)
        Weights of all available clients; non-negative, summing to one.
    size : int
        Number of clients to choose, at least 1. A size larger than the number of clients with
        positive weight is deliberately not an error: in some rounds fewer clients are available
        than a server asks for. Exactly these clients are then chosen, with the weights given.
    rng : numpy.random.Generator
        Source of the random order and offset.

    Returns
    -------
    chosen : ndarray of int64, shape (n_chosen,)
        Positions into ``weights``, ascending.
    weights : ndarray of shape (n_chosen,)
        Weights of their answers: weight divided by inclusion probability, summing to one.

    Examples
    --------
    >>> import numpy as np
    >>> chosen, answers = select([0.5, 0.25, 0.125, 0.125], 2, np.random.default_rng(0))
    >>> int(chosen[0]), answers.tolist()
    (0, [0.5, 0.5])
    """
    rng = as_generator(rng)
    shares, inclusion = _design(weights, size)
    certain = np.flatnonzero(inclusion == 1.0)
    uncertain = np.flatnonzero((inclusion > 0.0) & (inclusion < 1.0))
    if not uncertain.size:
        return certain, shares[certain]
    order = rng.permutation(uncertain.size)
    drawn = uncertain[systematic(inclusion[uncertain], order, rng.random())]
    chosen = np.sort(np.concatenate([certain, drawn]))
    return chosen, shares[chosen] / inclusion[chosen]


def inclusion_probabilities(weights: ArrayLike, size: int) -> Floats:
    """Return the probability with which `select` chooses each client, shape (n_available,).

    It is proportional to the weights and capped at 1; the excess over the cap is distributed among
    the other clients in proportion, until no further client reaches the cap. The probabilities sum
    to ``size``, or to the number of positive weights if that is less.

    Parameters
    ----------
    weights, size
        As for `select`.
    """
    return _design(weights, size)[1]


def systematic(inclusion: Floats, order: Integers, offset: float) -> Integers:
    """Draw one systematic sample: the clients under the points offset, offset + 1, ...

    The inclusion probabilities are intervals, laid end to end in the given order; a client is drawn
    if a point falls into its interval, which for a uniform offset has exactly that probability. The
    number of clients drawn, all distinct and in that order, is the sum of the probabilities.

    Parameters
    ----------
    inclusion : ndarray of shape (n_clients,)
        Probabilities strictly between 0 and 1, summing to a whole number below n_clients.
    order : ndarray of int64, shape (n_clients,)
        A permutation of the clients.
    offset : float
        Position of the first point, in [0, 1).
    """
    ends = np.cumsum(inclusion[order])
    size = round(float(ends[-1]))
    points = np.arange(size)
    hit = np.searchsorted(ends, offset + points, side="right")
    # Intervals are shorter than 1, so no two points fall into one, even rounded. The last point may
    # be rounded past the end.
    hit = np.minimum(hit, order.size - size + points)
    return np.asarray(order[hit], dtype=np.int64)


def _design(weights: ArrayLike, size: int) -> tuple[Floats, Floats]:
    """Return the checked weights and their inclusion probabilities."""
    shares = as_distribution(weights, what="weight", item="available client", error=InputError)
    left = as_size(size, what="size", low=1)
    inclusion = np.zeros(shares.size)
    free = np.flatnonzero(shares)
    while left and left < free.size:
        # Divide before multiplying: the quotient stays in range however small the weights.
        scaled = left * (shares[free] / shares[free].sum())
        capped = scaled >= 1.0
        if not capped.any():
            inclusion[free] = scaled
            return shares, inclusion
        inclusion[free[capped]] = 1.0
        free = free[~capped]
        left -= int(capped.sum())
    if left:
        inclusion[free] = 1.0
    return shares, inclusion
