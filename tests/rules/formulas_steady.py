"""FedAVOT's steady rule as formulas, client by client."""

from literal import Literal


class Steady(Literal):
    """Memories in dictionaries: a client without one, or whose memory expired, is not in them."""

    def __init__(self, p, weigh, *, kappa=0.0, c=0.0, trust=None):
        self.p, self.weigh, self.kappa, self.c, self.given = p, weigh, kappa, c, trust
        self.y, self.seen, self.expired = {}, {}, set()
        self.round, self.longest = 0, 1
        self.product, self.square = 0.0, 0.0

    def mean(self):
        share = sum(self.p[i] for i in self.y)
        return sum(self.p[i] / share * y for i, y in self.y.items())

    def trust(self):
        if self.given is not None:
            return self.given
        return min(max(self.product / self.square, 0.0), 1.0) if self.square > 0 else 0.0

    def correction(self, client):
        return self.kappa * (self.y[client] - self.mean()) if client in self.y else 0.0

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        self.round += 1
        span = turn.local_steps * turn.step
        u = {i: (turn.ended[i] - turn.started[i]) / span + self.correction(i) for i in turn.cohort}
        self.expire(turn.cohort)
        alpha, weights = self.trust(), dict(zip(turn.cohort, self.weigh(turn.cohort), strict=True))
        # A client without a memory counts as one that has the mean memory.
        change = alpha * self.mean()
        for i in turn.cohort:
            change = change + weights[i] * (u[i] - alpha * self.y.get(i, self.mean()))
        back = [i for i in turn.cohort if i in self.y]
        if back:
            new = sum(weights[i] * u[i] for i in back)
            old = sum(weights[i] * self.y[i] for i in back)
            self.product = 0.97 * self.product + new @ old
            self.square = 0.97 * self.square + old @ old
        for i in turn.cohort:
            away = self.round - self.seen[i] if i in self.y else 0
            gain = away / (away + self.c) if i in self.y else 1.0
            before = self.y.get(i, 0.0)
            self.y[i], self.seen[i] = before + gain * (u[i] - before), self.round
        return model + span * change

    def expire(self, cohort):
        """Forget those who are away for a quarter longer than anybody who came back."""
        for i in cohort:
            self.longest = max(self.longest, self.round - self.seen.get(i, self.round))
        gone = {i for i in self.y if self.round - self.seen[i] > 1.25 * self.longest}
        self.y = {i: y for i, y in self.y.items() if i not in gone}
        self.expired |= gone
