"""The programs behind `_accelerated`: passes over blocks of clients, compiled by JAX.

Arrays of clients have shape (n_blocks, block), of states and clients (n_states, n_blocks, block).
Call these with 64-bit numbers enabled. Importing this module imports JAX.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_TINY = 1e-300
"""Turns 0/0, of a client of probability one at large t, into 0."""


def _compiled(program: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = jax.jit(program)
    return compiled


def over_blocks(add: Any, start: Any, *arrays: Any) -> Any:
    """Sum over blocks, with the rounding error carried along (Neumaier)."""

    def step(carry: Any, block: Any) -> Any:
        total, lost = carry
        new = jax.tree.map(jnp.add, total, (part := add(*block)))
        larger = jax.tree.map(lambda t, p: jnp.abs(t) >= jnp.abs(p), total, part)
        slip = jax.tree.map(
            lambda big, t, p, n: jnp.where(big, (t - n) + p, (p - n) + t),
            larger,
            total,
            part,
            new,
        )
        return (new, jax.tree.map(jnp.add, lost, slip)), None

    (total, lost), _ = jax.lax.scan(step, (start, start), arrays)
    return jax.tree.map(jnp.add, total, lost)


@_compiled
def exponents(chances: Any) -> Any:
    add = functools.partial(over_blocks, lambda block: -jnp.log1p(-block).sum(), 0.0)
    return jax.lax.map(add, chances)


@_compiled
def extremes(importance: Any, chances: Any, size: Any) -> Any:
    """Return the least p, and the least and the largest probability, padding left out."""
    rows = jnp.arange(importance.shape[0])[:, None] * importance.shape[1]
    real = rows + jnp.arange(importance.shape[1]) < size
    least = jnp.where(real, chances, jnp.inf).min()
    return jnp.where(real, importance, jnp.inf).min(), least, chances.max()


@_compiled
def bounds(importance: Any, chances: Any, potentials: Any) -> Any:
    real = importance > 0
    low = jnp.where(real, potentials, jnp.inf).min()
    high = jnp.where(real, potentials, -jnp.inf).max()
    total = jax.lax.map(
        lambda state: over_blocks(
            lambda chance, x: (chance * jnp.exp(x - high)).sum(), 0.0, state, potentials
        ),
        chances,
    )
    return low, high, total.max()


def log_normaliser(state: Any, potentials: Any, times: Any) -> Any:
    def add(chance: Any, x: Any) -> Any:
        scaled = -times[:, None] * jnp.exp(x)
        return jnp.log1p(chance * jnp.expm1(scaled)).sum(axis=1)

    return over_blocks(add, jnp.zeros_like(times), state, potentials)


def tilted(chance: Any, scale: Any, times: Any) -> Any:
    """Return e^{−tu} over the tilted normaliser of each client, shape (n_times, block)."""
    absent = jnp.exp(-times[:, None] * scale)
    return absent / ((1.0 - chance) + chance * absent + _TINY)


@_compiled
def marginal(chances: Any, shares: Any, potentials: Any, times: Any, steps: Any) -> Any:
    """Return the expected weights, which sum to about one, and the tilted normalisers."""

    def of_state(total: Any, state: Any) -> Any:
        chance, share = state
        masses = share * steps * jnp.exp(log_normaliser(chance, potentials, times))
        factors = (masses * times)[:, None]

        def weigh(_: Any, block: Any) -> Any:
            own, x = block
            scale = jnp.exp(x)
            return None, own * scale * (factors * tilted(own, scale, times)).sum(axis=0)

        return total + jax.lax.scan(weigh, None, (chance, potentials))[1], masses

    return jax.lax.scan(of_state, jnp.zeros_like(potentials), (chances, shares))


@_compiled
def squares(chances: Any, shares: Any, potentials: Any, times: Any, steps: Any) -> Any:
    def of_state(total: Any, state: Any) -> Any:
        chance, share = state
        masses = share * steps * jnp.exp(log_normaliser(chance, potentials, times))
        factors = (masses * times**2)[:, None]

        def add(own: Any, x: Any) -> Any:
            scale = jnp.exp(x)
            return (own * scale**2 * (factors * tilted(own, scale, times)).sum(axis=0)).sum()

        return total + over_blocks(add, 0.0, chance, potentials), None

    return jax.lax.scan(of_state, 0.0, (chances, shares))[0]


@_compiled
def error(importance: Any, marginal: Any, factor: Any) -> Any:
    def add(wanted: Any, got: Any) -> Any:
        return jnp.abs(wanted - factor * got).sum()

    return over_blocks(add, 0.0, importance, marginal)


@_compiled
def total(values: Any) -> Any:
    return over_blocks(jnp.sum, 0.0, values)


def columns(chance: Any, x: Any, times: Any, roots: Any) -> Any:
    """Return √Ω a for every state and node, shape (n_states · n_times, block)."""
    scale = jnp.exp(x)

    def of_state(own: Any, root: Any) -> Any:
        return (root * times)[:, None] * (own * scale) * tilted(own, scale, times)

    return jax.vmap(of_state)(chance, roots).reshape(-1, x.size)


def by_block(chances: Any) -> Any:
    return jnp.moveaxis(chances, 1, 0)


@_compiled
def column_sums(chances: Any, potentials: Any, times: Any, roots: Any) -> Any:
    def add(chance: Any, x: Any) -> Any:
        return columns(chance, x, times, roots).sum(axis=1)

    return over_blocks(add, jnp.zeros(roots.size), by_block(chances), potentials)


def parts(held: Any, chance: Any, wanted: Any, x: Any, got: Any) -> Any:
    """Return columns, diagonal and gradient of a block; padding has gradient zero."""
    times, roots, sums, factor = held
    found = columns(chance, x, times, roots)
    weight = factor * got
    gradient = wanted - weight
    far = gradient > weight
    # As in `direction`: a weight far below its target grows exponentially, not linearly.
    longer = gradient / jnp.log1p(gradient / jnp.where(far, weight, 1.0)) - weight
    diagonal = sums @ found + jnp.where(far, longer, 0.0) + 1e-12 * wanted
    diagonal = jnp.maximum(diagonal, 1e-8 * wanted)
    return found, jnp.where(wanted > 0, diagonal, 1.0), gradient


@_compiled
def reduced(held: Any, chances: Any, importance: Any, potentials: Any, got: Any) -> Any:
    """Return Fᵀ D⁻¹ F and Fᵀ D⁻¹ g."""

    def add(*block: Any) -> Any:
        found, diagonal, gradient = parts(held, *block)
        scaled = found / diagonal
        return scaled @ found.T, scaled @ gradient

    size = held[1].size
    start = (jnp.zeros((size, size)), jnp.zeros(size))
    return over_blocks(add, start, by_block(chances), importance, potentials, got)


@_compiled
def moved(held: Any, inner: Any, chances: Any, importance: Any, potentials: Any, got: Any) -> Any:
    """Return the potentials after a Newton step, and the step's largest component."""

    def step(longest: Any, block: Any) -> Any:
        found, diagonal, gradient = parts(held, *block)
        change = jnp.where(block[1] > 0, (gradient + inner @ found) / diagonal, 0.0)
        return jnp.maximum(longest, jnp.abs(change).max()), block[2] + change

    blocks = (by_block(chances), importance, potentials, got)
    longest, new = jax.lax.scan(step, 0.0, blocks)
    return new, longest


@_compiled
def histogram(importance: Any, chances: Any, low: Any, width: Any, digits: Any) -> Any:
    """Return Σ p, Σ a and the number of clients by bucket of log p/a, shape (3, n_buckets).

    A bucket's number has two digits, of which ``digits`` lists the values: with one row of zeros
    and ones for each value of each digit, the sums are a matrix product.
    """

    def add(wanted: Any, chance: Any) -> Any:
        exponent = -jnp.log1p(-chance)
        real = wanted > 0
        ratio = jnp.log(jnp.where(real, wanted, 1.0) / jnp.where(real, exponent, 1.0))
        # The largest ratio of all is in the last bucket, not beyond it.
        slot = jnp.minimum(jnp.floor((ratio - low) / width), digits.size**2 - 1.0)
        high = jnp.floor(slot / digits.size)
        rows = jnp.where(real & (digits[:, None] == high), 1.0, 0.0)
        columns = jnp.where(digits[:, None] == slot - digits.size * high, 1.0, 0.0)
        values = jnp.stack((wanted, exponent, jnp.ones_like(wanted)))
        spread = (values[:, None, :] * rows).reshape(-1, wanted.size)
        return (spread @ columns.T).reshape(3, -1)

    start = jnp.zeros((3, digits.size**2))
    return over_blocks(add, start, importance, chances[0])


@_compiled
def ratios(importance: Any, chances: Any) -> Any:
    """Return the least and the largest log p/a."""
    real = importance > 0
    ratio = jnp.log(jnp.where(real, importance, 1.0)) - jnp.log(
        jnp.where(real, -jnp.log1p(-chances[0]), 1.0)
    )
    return jnp.where(real, ratio, jnp.inf).min(), jnp.where(real, ratio, -jnp.inf).max()


@_compiled
def interpolated(importance: Any, chances: Any, low: Any, width: Any, values: Any) -> Any:
    """Return values at log p/a, linear between buckets' middles."""
    real = importance > 0
    exponent = jnp.where(real, -jnp.log1p(-chances[0]), 1.0)
    ratio = jnp.log(jnp.where(real, importance, 1.0) / exponent)
    spot = jnp.clip((ratio - low) / width - 0.5, 0.0, values.size - 1.0)
    left = jnp.minimum(spot.astype(jnp.int32), values.size - 2)
    part = spot - left
    return jnp.where(real, (1.0 - part) * values[left] + part * values[left + 1], 0.0)


@_compiled
def centred(importance: Any, potentials: Any) -> Any:
    mean = over_blocks(lambda p, x: (p * x).sum(), 0.0, importance, potentials)
    return jnp.where(importance > 0, potentials - mean, 0.0)
