"""What a round of a rule with memory decides, from a few numbers per client.

*Trust* α is the coefficient of the regression of the cohorts' mean updates on their mean memories,

    α = clip( Σ ⟨ū, ȳ⟩ / Σ ‖ȳ‖², 0, 1 ),   ū = Σ_{i∈S} w_i u_i,   ȳ = Σ_{i∈S} w_i y_i,

over the members of each round's cohort S that are remembered; each round with such members forgets
a little of the earlier ones. Without evidence there is no trust. It is regressed on means, as they
move the model: memories predict what is peculiar to a client well, and the direction that all
clients share badly.

*Tilt* s says how far a round leans from the even step of its cohort, 0, to the importance, 1. With
the even step e and what the importance changes in it, d,

    e = Σ_{i∈S} (u_i − α y_i)/|S| + α |S∩R|/|S| ŷ_q,
    d = Σ_{i∈S} (Y_i − 1/|S|) (u_i − α y_i) + α² (ŷ_p − ŷ_q),

d is partly a direction, which every round shows again, and partly noise, of who came and of stale
memories; those count as evidence as far as they are trusted. With m the mean of the last W earlier
d, ⟨d, m⟩ estimates the square of the direction, and ⟨e, d − m⟩ the covariance of e and the noise.
Over W rounds the direction grows to W²⟨d, m⟩, and tilting adds s²W‖d‖² + 2sW⟨e, d − m⟩ of noise:

    s = clip( Σ (W⟨d, m⟩ − ⟨e, d − m⟩) / Σ ‖d‖², 0, 1 ).

So uneven weights are used where they change the model's course, and where they average noise out,
as where large clients have less of it; where one model fits all clients, they are not. A cohort
with the share P of the importance of all clients known uses 1 − (1 − s)(1 − P): if all of them take
part, weights are the importance.

A memory *expires* once its client has been away for more than `PATIENCE` times the longest absence
from which a client has returned: nothing shows that memories of that age are still right, and that
of a client that never returns would push for ever. Its client then counts as new. Absences are
counted in rounds in which some client took part.

These are pure functions of a few numbers per client, in any array library with the interface that
NumPy and JAX share. The linear algebra on models is in `_memory` (JAX) and `_server` (NumPy).
"""

from typing import Any, NamedTuple

FORGETTING = 0.97
"""Factor on earlier evidence per round: a window of about thirty rounds."""
WINDOW = 10
"""W, the number of rounds in the running mean m."""
PATIENCE = 1.25
"""Where clients come at random, an absence exceeds the longest of n others with chance about 1/n,
and exceeds it by a quarter with about n^−1.25: late in training hardly any memory expires by
chance. With more patience, memories of the first rounds push for longer."""


class History(NamedTuple):
    """Who was present when, and how well memories predicted updates."""

    rounds: Any
    """Number of rounds so far."""
    seen: Any
    """The round in which each client was last present, counted from 1; negative if its memory has
    expired since, and 0 for clients never seen."""
    longest: Any
    """The longest absence, in rounds, from which a client has returned; at least 1."""
    attended: Any
    """Σ 1/|S| over the rounds of each client: its weight so far if all means were even."""
    evidence: Any
    """Σ ⟨ū, ȳ⟩, Σ ‖ȳ‖², Σ ‖ū‖², Σ (W⟨d, m⟩ − ⟨e, d − m⟩) and Σ ‖d‖², shape (5,)."""


def nothing(xp: Any, n_clients: int, *others: int, dtype: Any = float) -> History:
    """Return the history before any round, in an array library; `others` are axes of evidence."""
    zero, seen = xp.zeros((), dtype=int), xp.zeros(n_clients, dtype=int)
    return History(
        zero, seen, zero + 1, xp.zeros(n_clients, dtype=dtype), xp.zeros((5, *others), dtype=dtype)
    )


class Turn(NamedTuple):
    """What a round decides, by client."""

    remembered: Any
    """Who has a memory that counts in this round."""
    returning: Any
    """Who of them is present."""
    absence: Any
    """The number of rounds since they were last present; 0 for all others."""
    expired: Any
    """Whose memory expires, and does not count any more."""


def begin(history: History, present: Any, *, expires: Any = True) -> tuple[Turn, History]:
    """Begin a round: decide who returns, and whose memory expires.

    Parameters
    ----------
    history : History
        After the round before.
    present : bool array of shape (n_clients,)
        Who takes part. If nobody does, there is no round, and nothing changes.
    expires : bool
        Whether memories expire.
    """
    xp = present.__array_namespace__()
    now = history.rounds + present.any()
    remembered = history.seen > 0
    returning = remembered & present
    away = xp.where(history.seen != 0, now - abs(history.seen), 0)
    longest = xp.maximum(history.longest, xp.where(present, away, 0).max())
    expired = remembered & (away > PATIENCE * longest) & expires
    seen = xp.where(present, now, xp.where(expired, -history.seen, history.seen))
    turn = Turn(remembered & ~expired, returning, xp.where(returning, away, 0), expired)
    even = (present / xp.maximum(present.sum(), 1)).astype(history.attended.dtype)
    return turn, History(now, seen, longest, history.attended + even, history.evidence)


def learn(history: History, products: Any, turn: Turn) -> History:
    """End a round: add its evidence, in the order of `History`, if a remembered client returned."""
    xp = products.__array_namespace__()
    more = FORGETTING * history.evidence + products
    return history._replace(evidence=xp.where(turn.returning.any(), more, history.evidence))


def trust(history: History) -> Any:
    """Return α for the next round."""
    xp, (product, old) = history.evidence.__array_namespace__(), history.evidence[:2]
    return xp.clip(xp.where(old > 0, product / xp.where(old > 0, old, 1.0), 0.0), 0.0, 1.0)


def tilt(history: History, share: Any = 0.0) -> Any:
    """Return s for a cohort with this share of the importance of all known; 1 without evidence."""
    xp, (product, square) = history.evidence.__array_namespace__(), history.evidence[3:]
    ratio = xp.where(square > 0, product / xp.where(square > 0, square, 1.0), 1.0)
    return 1.0 - (1.0 - xp.clip(ratio, 0.0, 1.0)) * (1.0 - xp.clip(share, 0.0, 1.0))


def known_share(importance: Any, present: Any, turn: Turn) -> Any:
    """Return which share of the importance of all clients known is that of those present."""
    xp = present.__array_namespace__()
    known = (importance * (turn.remembered | present)).sum()
    return (importance * present).sum() / xp.where(known > 0, known, 1.0)


def tilt_evidence(even: Any, shift: Any, mean: Any, dot: Any) -> list[Any]:
    """Return the evidence for the tilt, from e, d, m and an inner product."""
    both = dot(even, mean) - dot(even, shift)
    return [WINDOW * dot(shift, mean) + both, dot(shift, shift)]


def newest_weight(history: History) -> Any:
    """Return the weight of the newest d in m, after a round has begun."""
    xp = history.seen.__array_namespace__()
    return 1.0 / xp.clip(history.rounds, 1, WINDOW)


def gains(absence: Any, damping: Any) -> Any:
    """Return γ_i = A_i/(A_i + c), which part of an innovation a memory takes; 1 for new clients."""
    xp = absence.__array_namespace__()
    return xp.where(absence > 0, absence / xp.where(absence > 0, absence + damping, 1.0), 1.0)
