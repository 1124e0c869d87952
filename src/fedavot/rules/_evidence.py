"""What a rule with memories learns from returning clients: its trust, and how fast memories fade.

Absences are in rounds. A client that is present for the first time gives no evidence.
"""

from typing import Any, NamedTuple

FORGETTING = 0.97
"""Factor on earlier evidence per round in which a client returns: a window of about thirty such
rounds."""
RETURNS = 2.0
"""Learnt damping, in units of the mean return time."""
FASTEST = 0.7
"""Largest rate at which memories fade: a round halves them."""


class Evidence(NamedTuple):
    """Evidence from returning clients, and when each client was last present."""

    rounds: Any
    """Number of rounds so far."""
    seen: Any
    """The round in which each client was last present, counted from 1; 0 before the first."""
    heard: Any
    """Importance of the clients that have been seen."""
    absences: Any
    """Sum and number of the returning clients' absences, in rounds."""
    trust: Any
    """Σ p_i γ_i ⟨u_i, y_i⟩ and Σ p_i γ_i ‖y_i‖²."""
    likeness: Any
    """Σ ⟨u_i, y_i⟩, Σ ‖u_i‖² and Σ ‖y_i‖²."""
    faded: Any
    """Sum of the fading rates so far: a memory from the beginning is scaled by e^−faded."""
    written: Any
    """That sum when each client was last present, shape (n_clients,)."""


def no_evidence(n_clients: int, dtype: Any) -> Evidence:
    """Return the evidence before the first round."""
    import jax.numpy as jnp

    counts = jnp.zeros((), "int32"), jnp.zeros(n_clients, "int32")
    return Evidence(*counts, *(jnp.zeros(size, dtype) for size in ((), 2, 2, 3, (), n_clients)))


def learn(
    evidence: Evidence, members: Any, shares: Any, absence: Any, gain: Any, products: Any
) -> Evidence:
    """Return the evidence updated with that of a round.

    Parameters
    ----------
    evidence : Evidence
        With this round's absences, as `with_absences` returns it.
    members, shares, absence, gain
        The clients present, with importance, absence (0 for the first time) and gain.
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
    """Return the evidence updated with the absences of the returning clients."""
    import jax.numpy as jnp

    more = jnp.stack([absence.sum(), (absence > 0).sum()])
    return evidence._replace(absences=evidence.absences + more.astype(evidence.absences.dtype))


def learnt_trust(evidence: Evidence) -> Any:
    """Return the coefficient of the regression of updates on memories, between 0 and 1.

    A client has the weight p_i γ_i: its importance, increasing with the length of its absence, but
    bounded so that no single return outweighs all others. Without evidence there is no trust.
    """
    import jax.numpy as jnp

    return jnp.clip(ratio(*evidence.trust), 0.0, 1.0)


def learnt_correction(evidence: Evidence) -> Any:
    """Return the squared correlation of updates with memories.

    This is the part of an update that persists; the rest is noise of its batches, which must not
    enter the correction.
    """
    import jax.numpy as jnp

    product, new, old = evidence.likeness
    # Two separate ratios: a product of squares would exceed the range of single precision.
    return jnp.clip(ratio(product, new) * jnp.maximum(ratio(product, old), 0.0), 0.0, 1.0)


def learnt_damping(evidence: Evidence) -> Any:
    """Return twice the mean return time."""
    return RETURNS * ratio(*evidence.absences)


def fading(evidence: Evidence) -> Any:
    """Return the rate per round at which memories fade.

    It compares the squared norms of current updates and of memories, over the mean return time s:
    log(Σ‖y_i‖²/Σ‖u_i‖²)/s; 0 if updates have not become smaller.
    """
    import jax.numpy as jnp

    _, new, old = evidence.likeness
    shrunk = jnp.where(old > 0, ratio(new, old), 1.0)
    time = jnp.maximum(ratio(*evidence.absences), 1.0)
    return jnp.clip(-jnp.log(shrunk) / time, 0.0, FASTEST)


def share_left(evidence: Evidence, clients: Any) -> Any:
    """Return the share of the clients' memories that has not faded."""
    import jax.numpy as jnp

    written = evidence.written.at[clients].get(mode="fill", fill_value=0)
    return jnp.exp(written - evidence.faded)


def ratio(over: Any, under: Any) -> Any:
    """Return a quotient, 0 where there is nothing to divide by."""
    import jax.numpy as jnp

    return jnp.where(under > 0, over / jnp.where(under > 0, under, 1.0), 0.0)
