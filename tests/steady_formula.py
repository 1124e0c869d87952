"""FedAVOT's steady rule by formula, client by client, for rosters that may grow."""

import numpy as np


class Steady:
    """What is remembered of each client, and how well it predicted what came.

    Memories are in a dictionary: a client without one, or whose memory expired, is not in it.
    """

    def __init__(self, damping=0.0, trust=None):
        self.y, self.seen, self.expired, self.attended = {}, {}, set(), {}
        self.round, self.longest = 0, 1
        self.fit, self.shown, self.m = np.zeros(2), np.zeros(2), 0.0
        self.damping, self.given = damping, trust
        self.weights = {}

    @property
    def trust(self):
        if self.given is not None:
            return self.given
        product, square = self.fit
        return min(max(product / square, 0.0), 1.0) if square > 0 else 0.0

    def tilt(self, covered):
        if self.given is not None:
            return 1.0
        product, square = self.shown
        s = min(max(product / square, 0.0), 1.0) if square > 0 else 1.0
        return 1 - (1 - s) * (1 - covered)

    def mean(self, amounts):
        """Return ŷ: the mean of the memories by these amounts."""
        share = sum(amounts[i] for i in self.y)
        return sum(amounts[i] / share * y for i, y in self.y.items())

    def change(self, said, weights, importance):
        """Return the model's change in a round.

        ``said`` has the updates by client, ``weights`` Y_i in their order, and ``importance`` all.
        """
        if not said:
            return 0.0
        transport, even = dict(zip(said, weights, strict=True)), 1 / len(said)
        self.expire(said)
        known = sum(importance[i] for i in {*self.y, *said})
        alpha, s = self.trust, self.tilt(sum(importance[i] for i in said) / known)
        self.weights = {i: s * transport[i] + (1 - s) * even for i in said}

        wanted, usual = self.mean(importance), self.mean(self.attended)
        mean = s * wanted + (1 - s) * usual
        back = [i for i in said if i in self.y]
        change, d, e = 0.0, alpha**2 * (wanted - usual), 0.0
        for i, u in said.items():
            # A client without a memory counts as one that has the mean memory.
            change = change + self.weights[i] * (u + alpha * (mean - self.y.get(i, mean)))
            d = d + (transport[i] - even) * (u - alpha * self.y.get(i, 0.0))
            e = e + even * (u + alpha * (usual - self.y[i] if i in self.y else 0.0))
        if back:
            new = sum(self.weights[i] * said[i] for i in back)
            old = sum(self.weights[i] * self.y[i] for i in back)
            self.fit = 0.97 * self.fit + [np.vdot(new, old), np.vdot(old, old)]
            evidence = 10 * np.vdot(d, self.m) - np.vdot(e, d - self.m)
            self.shown = 0.97 * self.shown + [evidence, np.vdot(d, d)]
        self.m = self.m + (d - self.m) / min(self.round, 10)
        for i, u in said.items():
            away = self.round - self.seen.get(i, 0)
            before = self.y.get(i, u)
            self.y[i] = before + away / (away + self.damping) * (u - before)
            self.seen[i] = self.round
            self.attended[i] = self.attended.get(i, 0.0) + even
        return change

    def expire(self, said):
        """Begin a round: forget those away a quarter longer than anybody who came back was."""
        self.round += 1
        away = {i: self.round - seen for i, seen in self.seen.items()}
        self.longest = max([self.longest, *(away[i] for i in said if i in away)])
        gone = {i for i in self.y if away[i] > 1.25 * self.longest}
        self.y = {i: y for i, y in self.y.items() if i not in gone}
        self.expired |= gone
