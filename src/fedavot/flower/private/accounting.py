"""Privacy accounting: the ε of Gaussian releases, without amplification by sampling."""

import math

from scipy.special import erfcx, log_ndtr

from fedavot._checks import as_amount, as_size
from fedavot.errors import OptionError

EPSILON_TOLERANCE = 1e-12
"""Relative width at which the search for ε stops; it returns the upper end."""


def epsilon_spent(noise_multiplier: float, releases: int, *, delta: float) -> float:
    """Return the exact ε that a number of releases has spent at a given δ.

    T adaptively composed Gaussian releases are as private as a single one with μ = √T / z (Dong,
    Roth & Su 2022), for which (Balle & Wang 2018)

        δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    The module of `ExactNoise` states what is protected and under which assumptions.

    Parameters
    ----------
    noise_multiplier : float
        z, the ratio of noise to sensitivity. Pass half of it if neighbouring runs replace a
        client's updates by other updates.
    releases : int
        T, such as `ExactNoise.releases`.
    delta : float
        δ, above 0 and below 1.

    Returns
    -------
    float
        ε, to at least eight digits; infinite without noise, 0 without releases.

    Examples
    --------
    >>> round(epsilon_spent(1.0, 1, delta=1e-5), 3)
    4.377
    """
    multiplier = as_amount(noise_multiplier, what="noise_multiplier")
    count = as_size(releases, what="releases", low=0)
    probability = as_amount(delta, what="delta", positive=True)
    if not probability < 1.0:
        raise OptionError(f"delta is {delta}; it must be below 1")
    if count == 0:
        return 0.0
    if multiplier == 0.0:
        return math.inf
    mu = math.sqrt(count) / multiplier
    wanted = math.log(probability)
    if math.erf(mu / math.sqrt(8.0)) <= probability:
        return 0.0
    low, high = 0.0, mu * (mu / 2 + math.sqrt(-2 * wanted))  # the bound from concentrated privacy
    while high - low > EPSILON_TOLERANCE * high:
        middle = (low + high) / 2
        if _log_delta(middle, mu) > wanted:
            low = middle
        else:
            high = middle
    return high


def _log_delta(epsilon: float, mu: float) -> float:
    """Return log δ(ε) for ε > 0 without cancellation between large exponents.

    With a, b = −ε/μ ± μ/2 we have b² − a² = 2ε, so e^ε Φ(b) = e^(−a²/2) erfcx(−b/√2) / 2.
    """
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    first = float(log_ndtr(a))
    second = math.log(erfcx(-b / math.sqrt(2.0)) / 2) - a * a / 2
    # If both are equal up to rounding, δ is smaller than any δ that can be requested.
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf
