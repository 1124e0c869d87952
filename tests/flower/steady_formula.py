"""The steady rule by formula on one vector, client by client, for rosters that may grow."""

import numpy as np


class Steady:
    """What is remembered of each client, and how well it predicted what came."""

    def __init__(self, damping=0.0):
        self.y, self.seen, self.round, self.longest = {}, {}, 0, 1
        self.evidence, self.damping = np.zeros(2), damping

    @property
    def trust(self):
        product, square = self.evidence
        return min(max(product / square, 0.0), 1.0) if square > 0 else 0.0

    def total(self, importance):
        return sum(importance[i] * y for i, y in self.y.items())

    def change(self, said, weights, importance):
        """Return the model's change in a round.

        ``said`` has the updates by client, ``weights`` Y_i in their order, and ``importance`` all.
        """
        if not said:
            return 0.0
        alpha, given = self.trust, dict(zip(said, weights, strict=True))
        back = [i for i in said if i in self.y]
        self.round += 1
        away = {i: self.round - seen for i, seen in self.seen.items()}
        self.longest = max([self.longest, *(away[i] for i in said if i in away)])
        self.y = {i: y for i, y in self.y.items() if away[i] <= 1.25 * self.longest}
        share = sum(importance[i] for i in self.y)
        change = sum(given[i] * u for i, u in said.items())
        for i in back:
            mean = sum(importance[j] / share * y for j, y in self.y.items())
            change = change + alpha * given[i] * (mean - self.y[i])
        if back:
            new = sum(given[i] * said[i] for i in back)
            old = sum(given[i] * self.y[i] for i in back)
            self.evidence = 0.97 * self.evidence + [new @ old, old @ old]
        for i, update in said.items():
            old = self.y[i] if i in back else 0.0
            gain = away[i] / (away[i] + self.damping) if i in back else 1.0
            self.y[i] = old + gain * (update - old)
            self.seen[i] = self.round
        return change
