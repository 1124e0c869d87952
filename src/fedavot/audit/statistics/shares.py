"""Who counts how much: wanted, owed, got and attainable, by client and by group."""

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import total_by
from fedavot.audit.federation import Federation
from fedavot.audit.findings import Shares
from fedavot.audit.statistics.shortfall import touched
from fedavot.audit.statistics.window import Window


def shares_of(window: Window, delivered: Floats) -> Shares:
    """Return every client's part over a window.

    Parameters
    ----------
    window : Window
        The rounds.
    delivered : float array, shape (n_clients,)
        Mean weights under the weights nearest to the importance, whatever is unknown.
    """
    importance, owed = window.importance, window.owed
    # What is owed is less where a client is not always observed, and so is what it can be given.
    observed = np.where(importance > 0, owed / np.where(importance > 0, importance, 1.0), 1.0)
    attained = delivered * observed
    return Shares(
        importance=importance,
        owed=owed,
        implied=window.mean_weights(window.plain()),
        attained=attained / attained.sum(),
        inclusion=_inclusion(window),
    )


def _inclusion(window: Window) -> Floats:
    """Return the share of the rounds each is known in that it took part in; NaN for none."""
    taken, known = window.counts()
    shares = np.full(window.n_clients, np.nan)
    np.divide(taken, known, out=shares, where=known > 0)
    return shares


def grouped(federation: Federation, window: Window, shares: Shares) -> Shares | None:
    """Return every group's part, from its clients'; None without groups."""
    group_of, groups = federation.group_of, federation.groups
    if group_of is None:
        return None

    def summed(values: Floats) -> Floats:
        return total_by(group_of, values, len(groups))

    reached = [
        float(touched(window.incidence, np.flatnonzero(group_of == group)).mean())
        for group in range(len(groups))
    ]
    return Shares(
        importance=summed(shares.importance),
        owed=summed(shares.owed),
        implied=summed(shares.implied),
        attained=summed(shares.attained),
        inclusion=np.array(reached),
    )
