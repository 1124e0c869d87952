"""The gap of mean weights, with an interval that is valid for short logs too.

The total variation distance of a noisy mean is too large on average, since it adds up noise of
either sign. For any signs s ∈ {−1, 1}^N,  ½ Σ_i s_i (a_i − p_i) ≤ TV(a, p),  with equality at the
true signs. So two figures bracket the long-run distance:

* from above, the plug-in: the signs of the same rounds that are then averaged;
* from below, cross-fitting: the signs for a block of rounds come from the blocks of other parity.

Each is the mean of one number per round, so its spread comes from a bootstrap of blocks of
consecutive rounds. The interval runs from the low end of the second to the high end of the first.

With x_it ∈ {0, 1} for whether client i takes part in round t, π_i for the share of its known rounds
in which it does, and k_ib for the number of rounds of block b in which its state is known,

    rounds per observation = Σ_ib (Σ_{t∈b, i known} (x_it − π_i))²
                             /  Σ_i π_i (1 − π_i) (k_i − Σ_b k_ib² / k_i),     k_i = Σ_b k_ib,

which is 1 on average if rounds are independent. Without unknown states and with B blocks of equal
length, the bracket is (1 − 1/B) times the length of the log: the usual correction for an estimated
mean.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.participation import slabs
from fedavot.audit.recommending import Estimate
from fedavot.audit.statistics.window import Window

DRAWS = 1000
"""Number of bootstrap samples: 25 beyond either end of an interval."""
TAIL = 0.025
"""Probability beyond either end of an interval."""
LEAST_BLOCKS = 6
"""Smallest number of blocks for an estimate of spread."""
ROUNDING = 1e-9
"""Deviation of sums or shares that counts as rounding error."""
SLAB = 1 << 21
"""Approximate number of entries processed at a time, to save memory."""
DAY = 86_400.0
LEAST_DAYS = 10
"""Number of days from which blocks are whole days, so that each contains a full daily cycle."""
NORMAL = 1.959964
"""Quantile of the normal distribution at 1 − `TAIL`."""
LENT = float(np.sqrt(1 + 2 / np.pi))
"""The blocks of each parity take their signs from the other. If all signs are noise, this gives the
two figures a correlation of 2/π, which a bootstrap with fixed signs does not capture."""


@dataclass(frozen=True, eq=False)
class Resampling:
    """Blocks of consecutive rounds, and how often each is drawn in every bootstrap sample.

    Attributes
    ----------
    block : int array, shape (n_rounds,)
        The block of each round, ascending from 0.
    sizes : float array, shape (n_blocks,)
        Number of rounds in each block.
    draws : float array, shape (n_draws, n_blocks)
        How often each block is drawn.
    lasting : bool
        Whether presence outlasts the blocks, so that they underestimate the spread.
    """

    block: Integers
    sizes: Floats
    draws: Floats
    lasting: bool = False

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return self.sizes.size

    @property
    def tells(self) -> bool:
        """Whether there are enough blocks, and long enough ones, to estimate spread."""
        return self.n_blocks >= LEAST_BLOCKS and not self.lasting

    def deviations(self, series: Floats) -> Floats:
        """Return the deviation of a series' mean in every bootstrap sample, shape (n_draws,)."""
        sums = total_by(self.block, series, self.n_blocks)
        means = (self.draws @ sums) / (self.draws @ self.sizes)
        return np.asarray((means - means.mean()) * self.widening)

    @property
    def widening(self) -> float:
        """Factor that corrects deviations for the small number of blocks."""
        from scipy.special import stdtrit

        free = self.n_blocks - 1
        return float(np.sqrt(self.n_blocks / free) * stdtrit(free, 1 - TAIL) / NORMAL)


def blocks_of(times: Floats | None, n_rounds: int, *, length: int = 1) -> Integers:
    """Cut rounds into blocks: days if there are enough of them, otherwise consecutive rounds.

    Parameters
    ----------
    times : float array, shape (n_rounds,), or None
        Times of the rounds in seconds.
    n_rounds : int
    length : int
        Smallest number of rounds per block; at least √n_rounds is used.

    Returns
    -------
    int array, shape (n_rounds,)
        The block of each round, ascending from 0.
    """
    rounds = max(length, ceil(n_rounds / max(1, isqrt(n_rounds))))
    if times is not None:
        day = np.maximum.accumulate((times - times[0]) // DAY)
        block = np.unique(day, return_inverse=True)[1]
        if block[-1] + 1 >= LEAST_DAYS and n_rounds >= rounds * (block[-1] + 1):
            return block
    return np.arange(n_rounds) // rounds


def resampling(block: Integers, rng: np.random.Generator) -> Resampling:
    """Draw blocks with replacement, as many as there are."""
    sizes = np.bincount(block).astype(np.float64)
    draws = rng.multinomial(sizes.size, np.full(sizes.size, 1.0 / sizes.size), size=DRAWS)
    return Resampling(block, sizes, draws.astype(np.float64))


def rounds_per_observation(window: Window, block: Integers) -> float:
    """Return the number of rounds per effectively independent observation of a client.

    Parameters
    ----------
    window : Window
    block : int array, shape (n_rounds,)
        The block of each round, ascending from 0.

    Returns
    -------
    float
        At least 1; also 1 if it cannot be estimated, as from a single block.
    """
    lengths = np.bincount(block).astype(np.float64)
    if lengths.size < 2:
        return 1.0
    present, unknown = window.incidence, window.unknown
    taken, known = window.counts()
    share = taken / np.maximum(known, 1.0)
    squared = share @ share * (lengths @ lengths)
    known_squared = np.full(window.n_clients, lengths @ lengths)
    starts = np.searchsorted(block, np.arange(lengths.size + 1))
    entries = present.offsets[starts]
    if unknown is not None:
        entries = entries + unknown.offsets[starts]
    for first, last in slabs(entries, SLAB):
        edges, length = starts[first : last + 1], lengths[first:last]
        counts = _count_by_block(present, edges)
        if unknown is not None:
            hidden = _count_by_block(unknown, edges)
            known_squared += hidden.power(2).sum(axis=0) - 2 * (hidden.T @ length)
            # A round in which a client is not known counts as π_i: neither above nor below.
            counts = counts + hidden * share
        # Σ (count − length π)² without the cells in which the count is 0, which are most.
        squared += counts.data @ counts.data - 2 * (counts.T @ length) @ share
    free = known - known_squared / np.maximum(known, 1.0)
    expected = float(share * (1 - share) @ free)
    return max(1.0, float(squared) / expected) if expected > 0 else 1.0


def _count_by_block(sets: Incidence, edges: Integers) -> Any:
    """Count the rounds between two edges that have each client, as a sparse matrix.

    Parameters
    ----------
    sets : Incidence
    edges : int array, shape (n_blocks + 1,)
        The first round of each block, and the one after the last.
    """
    starts = sets.offsets[edges]
    members = sets.members[starts[0] : starts[-1]]
    blocks = np.repeat(np.arange(edges.size - 1, dtype=np.int32), np.diff(starts))
    # Converting triples to columns adds up entries at the same place.
    return sparse.coo_array(
        (np.ones(members.size), (blocks, members)), shape=(edges.size - 1, sets.n_clients)
    ).tocsc()


@dataclass(frozen=True, eq=False)
class Weighted:
    """Rounds with a weight for every entry, and how they are resampled."""

    window: Window
    weights: Floats
    resampling: Resampling

    def excess(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return mean weight minus mean ``owed`` in some rounds, shape (n_clients,)."""
        given = self.window.total_in(self.weights, chosen)
        return (given - self.window.owed_in(chosen)) / max(int(chosen.sum()), 1)

    def series(self, signs: Floats, lacking: float) -> Floats:
        """Return ½ Σ_i s_i (weight − owed) of every round, shape (n_rounds,).

        The amount by which the weights of a round sum to less than one counts with the sign
        ``lacking``.
        """
        window = self.window
        given = window.signed_by_round(signs, self.weights) - window.owed_by_round(signs)
        if lacking:
            total = window.sum_by_round(self.weights) - window.owed_by_round(np.ones_like(signs))
            given -= lacking * total
        return np.asarray(given / 2)


def chance(weighted: Weighted) -> float:
    """Return the mean gap that these weights would show by chance if they had no long-run gap.

    Over T rounds in B blocks, client i's mean excess has the variance Σ_b (e_ib − T_b ē_i)² B/(B−1)
    / T², with e_ib for its total excess in block b of T_b rounds and ē_i for its mean. The mean of
    half the sum of absolute values is ½ √(2/π) Σ_i σ_i if it is normal around zero.

    Returns
    -------
    float
        NaN if there are too few blocks to estimate spread.
    """
    window, blocks = weighted.window, weighted.resampling
    if not blocks.tells:
        return float("nan")
    mean = weighted.excess(np.ones(window.n_rounds, dtype=bool))
    squares = np.zeros(window.n_clients)
    edges = np.concatenate([[0], np.cumsum(blocks.sizes)]).astype(np.int64)
    for first, last in itertools.pairwise(edges.tolist()):
        entries = slice(*window.incidence.offsets[[first, last]].tolist())
        part = Weighted(window.part(np.arange(first, last)), weighted.weights[entries], blocks)
        excess = part.excess(np.ones(last - first, dtype=bool))
        squares += np.square((excess - mean) * (last - first))
    spread = np.sqrt(squares * blocks.n_blocks / (blocks.n_blocks - 1)) / window.n_rounds
    return float(spread.sum() / np.sqrt(2 * np.pi))


def distance(weighted: Weighted, other: Weighted | None = None) -> Estimate:
    """Estimate the total variation between mean weights and the shares in ``owed``.

    With ``other``, it is that between the mean weights of two stretches of a log. ``owed`` is
    subtracted from both, so that a client observed more often does not count as a difference.
    """
    parts = [weighted] if other is None else [weighted, other]
    everything = [np.ones(part.window.n_rounds, dtype=bool) for part in parts]
    excess = _contrast(parts, everything)
    # If weights do not sum to one, the missing or surplus mass is part of the gap.
    surplus = float(excess.sum()) if abs(excess.sum()) > ROUNDING else 0.0
    value = float(np.abs(excess).sum() + abs(surplus)) / 2
    most = max(1.0, value) if not surplus else np.inf
    if excess.size == 1 and not surplus:
        return Estimate(0.0, 0.0, 0.0)
    if not all(part.resampling.tells for part in parts):
        return Estimate(value, 0.0, most)
    odd = [part.resampling.block % 2 == 1 for part in parts]
    signs = {
        parity: np.sign(_contrast(parts, [mask if parity else ~mask for mask in odd]))
        for parity in (True, False)
    }
    lacking = float(-np.sign(surplus))
    # Shares that happen to be exact have no sign, and get a random one.
    either = np.random.default_rng(excess.size).choice([-1.0, 1.0], excess.size)
    own = np.where(np.abs(excess) <= ROUNDING / excess.size, either, np.sign(excess))
    centre, below, above = 0.0, np.zeros(DRAWS), np.zeros(DRAWS)
    for mask, part, side in zip(odd, parts, (1.0, -1.0), strict=False):
        # A block's signs come from the blocks of the other parity.
        lent = (part.series(signs[other], lacking) for other in (False, True))
        crossed = np.where(mask, *lent)
        centre += side * float(crossed.mean())
        below += side * part.resampling.deviations(crossed)
        above += side * part.resampling.deviations(part.series(own, lacking))
    low = max(0.0, centre + LENT * float(np.quantile(below, TAIL)))
    high = min(most, value + float(np.quantile(above, 1 - TAIL)))
    return Estimate(value, min(low, value), max(high, value))


def _contrast(parts: Sequence[Weighted], chosen: Sequence[NDArray[np.bool_]]) -> Floats:
    excess = parts[0].excess(chosen[0])
    return excess if len(parts) == 1 else excess - parts[1].excess(chosen[1])
