"""What clients that return teach a rule with memories: how far to trust them, how fast they fade.

Absences are in rounds. A client that is there for the first time teaches nothing.
"""

from typing import Any, NamedTuple

FORGETTING = 0.97
"""What a round in which somebody returns leaves of earlier evidence: about thirty rounds of it."""
RETURNS = 2.0
"""Learnt damping, in mean times to return."""
FASTEST = 0.7
"""Largest rate at which memories fade: a round leaves half of them."""


class Evidence(NamedTuple):
    """What returning clients have taught, and when each was last there."""

    rounds: Any
    """Number of rounds so far."""
    seen: Any
    """The round in which each client was last there, counted from 1; 0 before the first."""
    heard: Any
    """Importance of the clients that have been seen."""
    absences: Any
    """Sum and number of the returning clients' absences, in rounds."""
    trust: Any
    """Σ p_i γ_i ⟨u_i, y_i⟩ and Σ p_i γ_i ‖y_i‖²."""
    likeness: Any
    """Σ ⟨u_i, y_i⟩, Σ ‖u_i‖² and Σ ‖y_i‖²."""
    faded: Any
    """Sum of the rates at which memories have faded: one of the beginning is e^−faded of itself."""
    written: Any
    """That sum when each client was last there, shape (n_clients,)."""


def no_evidence(n_clients: int, dtype: Any) -> Evidence:
    """Return the evidence before the first round."""
    import jax.numpy as jnp

    counts = jnp.zeros((), "int32"), jnp.zeros(n_clients, "int32")
    return Evidence(*counts, *(jnp.zeros(size, dtype) for size in ((), 2, 2, 3, (), n_clients)))


def learn(
    evidence: Evidence, members: Any, shares: Any, absence: Any, gain: Any, products: Any
) -> Evidence:
    """Return the evidence with that of a round.

    Parameters
    ----------
    evidence : Evidence
        With this round's absences, as `with_absences` returns it.
    members, shares, absence, gain
        Who is there, with importance, absence (0 for the first time) and gain.
    products : array of shape (3, length)
        ⟨u_i, y_i⟩, ‖u_i‖² and ‖y_i‖².
    """
    import jax.numpy as jnp

    returns = absence > 0
    products = jnp.where(returns, products, 0.0)
    kept = jnp.where(returns.any(), FORGETTING, 1.0)
    now = evidence.rounds + 1
    return evidence._replace(
        rounds=now,
        seen=evidence.seen.at[members].set(now, mode="drop"),
        heard=evidence.heard + jnp.where(returns, 0.0, shares).sum(),
        trust=kept * evidence.trust + (products * shares * gain).sum(axis=1)[jnp.array([0, 2])],
        likeness=kept * evidence.likeness + products.sum(axis=1),
        written=evidence.written.at[members].set(evidence.faded, mode="drop"),
    )


def with_absences(evidence: Evidence, absence: Any) -> Evidence:
    """Return the evidence with the absences of those who are back."""
    import jax.numpy as jnp

    more = jnp.stack([absence.sum(), (absence > 0).sum()])
    return evidence._replace(absences=evidence.absences + more.astype(evidence.absences.dtype))


def learnt_trust(evidence: Evidence) -> Any:
    """Return the regression of what clients say on their memories, between 0 and 1.

    A client weighs p_i γ_i: as much as it counts, and the more the longer it was absent, but no
    single return outweighs all others. Without evidence there is no trust.
    """
    import jax.numpy as jnp

    return jnp.clip(ratio(*evidence.trust), 0.0, 1.0)


def learnt_correction(evidence: Evidence) -> Any:
    """Return the squared correlation of what clients say with their memories.

    This is the part of an update that persists; the rest is noise of its batches, along which a
    client must not be held.
    """
    import jax.numpy as jnp

    product, new, old = evidence.likeness
    # One ratio after the other: a product of squares would leave the range of single precision.
    return jnp.clip(ratio(product, new) * jnp.maximum(ratio(product, old), 0.0), 0.0, 1.0)


def learnt_damping(evidence: Evidence) -> Any:
    """Return twice the mean time to return."""
    return RETURNS * ratio(*evidence.absences)


def fading(evidence: Evidence) -> Any:
    """Return the rate per round at which memories fade.

    What clients say now, in squares, over what is remembered of them, by the mean time in which
    they return: log(Σ‖y_i‖²/Σ‖u_i‖²)/s; 0 if it has not become smaller.
    """
    import jax.numpy as jnp

    _, new, old = evidence.likeness
    shrunk = jnp.where(old > 0, ratio(new, old), 1.0)
    time = jnp.maximum(ratio(*evidence.absences), 1.0)
    return jnp.clip(-jnp.log(shrunk) / time, 0.0, FASTEST)


def share_left(evidence: Evidence, clients: Any) -> Any:
    """Return what is left of the clients' memories."""
    import jax.numpy as jnp

    written = evidence.written.at[clients].get(mode="fill", fill_value=0)
    return jnp.exp(written - evidence.faded)


def ratio(over: Any, under: Any) -> Any:
    """Return a quotient, 0 where there is nothing to divide by."""
    import jax.numpy as jnp

    return jnp.where(under > 0, over / jnp.where(under > 0, under, 1.0), 0.0)
