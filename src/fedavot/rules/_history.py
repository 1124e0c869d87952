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

Given that, everything a round does is linear in a few vectors: new updates, memories, their two
sums and m. So `decide` returns its coefficients, and all that is left to `_memory` (JAX), `_server`
(NumPy) and the audit's replay is linear algebra on models. These are pure functions of small
arrays, in any array library with the interface that NumPy and JAX share.
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
LEARNT = float("nan")
"""The trust of a rule that learns it, and its tilt."""


class Constants(NamedTuple):
    """Constants of a rule with memory: numbers, or arrays where one compiled program serves all."""

    trust: Any = LEARNT
    """α; if it is given, the tilt is 1."""
    correction: Any = 0.0
    """κ."""
    damping: Any = 0.0
    """c."""
    expires: Any = True
    """Whether memories expire; if not, the memories of clients never seen are zero."""


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
    """a, Σ 1/|S| over the rounds of each client: its weight so far if all means were even."""
    evidence: Any
    """Σ ⟨ū, ȳ⟩, Σ ‖ȳ‖², Σ ‖ū‖², Σ (W⟨d, m⟩ − ⟨e, d − m⟩) and Σ ‖d‖², shape (5,)."""


class Turn(NamedTuple):
    """What a round decides. Arrays by member have the order of the cohort."""

    weights: Any
    """w_i = s Y_i + (1 − s)/|S|, shape (n_members,)."""
    returning: Any
    """Which members have a memory, shape (n_members,)."""
    expired: Any
    """Which memories expire and do not count any more, shape (n_clients,)."""
    gains: Any
    """γ_i = A_i/(A_i + c), which part of u_i − y_i a memory takes; 1 for new clients."""
    matrix: Any
    """The coefficients C of everything else, shape (8, 2 n_members + 3).

    With the rows Z = (u_1, …, u_n, y_1, …, y_n, T, U, m) of the round, y_i = 0 for members without
    a memory, and T = Σ p_i y_i and U = Σ a_i y_i over all clients with a memory that counts,

        C Z = (change of the model per unit of step, T', U', m', ū, ȳ, e, d).

    T', U' and m' are of the next round. If evidence has more axes, they are after the first."""


def nothing(xp: Any, n_clients: int, *others: int, dtype: Any = float) -> History:
    """Return the history before any round, in an array library; `others` are axes of evidence."""
    zero, seen = xp.zeros((), dtype=int), xp.zeros(n_clients, dtype=int)
    return History(
        zero, seen, zero + 1, xp.zeros(n_clients, dtype=dtype), xp.zeros((5, *others), dtype=dtype)
    )


def decide(
    history: History, importance: Any, members: Any, weights: Any, constants: Constants
) -> tuple[Turn, History]:
    """Decide a round; `learn` ends it.

    Parameters
    ----------
    history : History
        After the round before.
    importance : float array of shape (n_clients,)
        p.
    members : int array of shape (n_members,)
        Who takes part. A place with n_clients is empty; if all are, nothing changes.
    weights : float array of shape (n_members,)
        Y, 0 at empty places.
    constants : Constants
        Of the rule.
    """
    xp, n_clients = members.__array_namespace__(), importance.shape[0]
    there, place = members < n_clients, xp.minimum(members, n_clients - 1)
    present, count = xp.isin(xp.arange(n_clients), members), xp.maximum(there.sum(), 1)
    now = history.rounds + there.any()
    away = xp.where(history.seen != 0, now - abs(history.seen), 0)
    longest = xp.maximum(history.longest, xp.where(present, away, 0).max())
    expired = (history.seen > 0) & (away > PATIENCE * longest) & constants.expires
    seen = xp.where(present, now, xp.where(expired, -history.seen, history.seen))
    attended = history.attended + (present / count).astype(history.attended.dtype)
    after = History(now, seen, longest, attended, history.evidence)

    remembered = (history.seen > 0) & ~expired
    returning = there & remembered[place]
    absence = xp.where(returning, away[place], 0)
    damped = absence / xp.where(returning, absence + constants.damping, 1)
    gains = xp.where(returning, damped, 1).astype(weights.dtype)

    known = (importance * (remembered | present)).sum()
    share = (importance * present).sum() / xp.where(known > 0, known, 1.0)
    alpha = trust(history, constants.trust)[..., None]
    s = tilt(history, share, constants.trust)[..., None]
    even = there / count.astype(weights.dtype)
    used, uneven = s * weights + (1.0 - s) * even, weights - even
    # ŷ_p and ŷ_q are these multiples of T and U.
    wanted = mean_factor(importance, remembered, constants.expires)
    usual = mean_factor(history.attended, remembered)
    some = xp.where(constants.expires, (used * returning).sum(axis=-1, keepdims=True), 1.0)
    part = there.any() * alpha * some
    newest = there.any() / xp.clip(now, 1, WINDOW).astype(weights.dtype)
    p, a = importance[place] * there * gains, history.attended[place] * there
    back, none, flat = used * returning, 0.0 * used, 0.0 * alpha
    d = (uneven, -alpha * uneven, alpha**2 * wanted, -(alpha**2) * usual)
    table = [  # u, y, T, U, m
        (used, -alpha * used, part * s * wanted, part * (1.0 - s) * usual, 0.0),
        (p, -p, 1.0, 0.0, 0.0),
        ((a + even) * gains, (a + even) * (1.0 - gains) - a, 0.0, 1.0, 0.0),
        (*(newest * each for each in d), 1.0 - newest),
        (back, none, 0.0, 0.0, 0.0),
        (none, back, 0.0, 0.0, 0.0),
        (even, -alpha * even, 0.0, alpha * (even * returning).sum() * usual, 0.0),
        (*d, 0.0),
    ]
    columns = [xp.stack([it + flat for it in column]) for column in zip(*table, strict=True)]
    return Turn(used, returning, expired, gains, xp.concatenate(columns, axis=-1)), after


PAIRS = ((4, 5), (5, 5), (4, 4), (7, 8), (6, 8), (6, 7), (7, 7))
"""The rows of C Z, and m after them as the ninth, whose inner products are a round's evidence."""


def learn(history: History, products: Any, turn: Turn) -> History:
    """End a round: add its evidence, from the products of `PAIRS`, if a memory was there."""
    xp = products.__array_namespace__()
    *trusted, dm, em, ed, dd = products
    new = xp.stack([*trusted, WINDOW * dm + em - ed, dd])
    more = FORGETTING * history.evidence + new
    return history._replace(evidence=xp.where(turn.returning.any(), more, history.evidence))


def trust(history: History, given: Any = LEARNT) -> Any:
    """Return α for the next round."""
    xp, (product, square) = history.evidence.__array_namespace__(), history.evidence[:2]
    ratio = xp.where(square > 0, product / xp.where(square > 0, square, 1.0), 0.0)
    return xp.where(xp.isnan(given), xp.clip(ratio, 0.0, 1.0), given)


def tilt(history: History, share: Any = 0.0, given: Any = LEARNT) -> Any:
    """Return s for a cohort with this share of the importance of all known, 1 without evidence."""
    xp, (product, square) = history.evidence.__array_namespace__(), history.evidence[3:]
    ratio = xp.where(square > 0, product / xp.where(square > 0, square, 1.0), 1.0)
    s = xp.where(xp.isnan(given), xp.clip(ratio, 0.0, 1.0), 1.0)
    return 1.0 - (1.0 - s) * (1.0 - xp.clip(share, 0.0, 1.0))


def mean_factor(amounts: Any, remembered: Any, expires: Any = True) -> Any:
    """Return what makes a sum of memories by these amounts their mean; 1 if there are none."""
    xp, share = amounts.__array_namespace__(), (amounts * remembered).sum()
    return xp.where(expires & (share > 0), 1.0 / xp.where(share > 0, share, 1.0), 1.0)
