"""The steady rule by formula on one vector, client by client, for rosters that may grow."""

import numpy as np


class Steady:
    """What is remembered of each client, and what returning clients have taught."""

    def __init__(self, share=0.5):
        self.y, self.seen, self.round, self.share = {}, {}, 0, share
        self.absences, self.trusted, self.squares = [], [0.0, 0.0], [0.0, 0.0]

    @property
    def trust(self):
        product, square = self.trusted
        return min(max(product / square, 0.0), 1.0) if square > 0 else 0.0

    def change(self, said, shares, importance):
        """Return the model's change in a round.

        ``said`` has the updates by client, ``shares`` a_i in their order, and ``importance`` all.
        """
        self.round += 1
        if not said:
            return 0.0
        alpha, given = self.trust, dict(zip(said, shares, strict=True))
        news = sum(given[i] * (said[i] - alpha * self.y.get(i, 0.0)) for i in said)
        change = 0.0
        for i, weight in enumerate(importance):
            if i in said:
                change = change + weight * said[i]
            elif i in self.y:
                change = change + weight * (
                    alpha * self.y[i] + (1 - alpha * (1 - self.share)) * news
                )
            else:
                change = change + weight * news
        returned = any(i in self.y for i in said)
        self._learn(said, importance)
        for i, one in said.items():
            gain = self._gain(i) if i in self.y else 1.0
            self.y[i] = self.y.get(i, 0.0) + gain * (one - self.y.get(i, 0.0))
            self.seen[i] = self.round
        self._fade(returned)
        return change

    def _fade(self, returned):
        """Shrink what is remembered at the rate at which updates have become smaller."""
        new, old = self.squares
        if returned and 0 < new < old:
            rate = np.log(old / new) / max(np.mean(self.absences), 1)
            for i in self.y:
                self.y[i] = self.y[i] * np.exp(-min(rate, 0.7))

    def _gain(self, client):
        away = self.round - self.seen[client]
        return away / (away + 2 * np.mean(self.absences))

    def _learn(self, said, importance):
        back = [i for i in said if i in self.y]
        if back:
            self.trusted = [0.97 * value for value in self.trusted]
            self.squares = [0.97 * value for value in self.squares]
        self.absences += [self.round - self.seen[i] for i in back]
        for i in back:
            weight = importance[i] * self._gain(i)
            self.trusted[0] += weight * (said[i] @ self.y[i])
            self.trusted[1] += weight * (self.y[i] @ self.y[i])
            self.squares[0] += said[i] @ said[i]
            self.squares[1] += self.y[i] @ self.y[i]
