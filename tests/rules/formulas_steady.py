"""FedAVOT's steady rule as formulas, client by client."""

import numpy as np
from literal import Literal


class Steady(Literal):
    """Memories in dictionaries, so that clients never seen have none."""

    def __init__(self, p, shares, *, beta=0.5, damping=None, correction=None, trust=None):
        self.p, self.shares, self.beta = p, shares, beta
        self.damping, self.given_correction, self.given_trust = damping, correction, trust
        self.y, self.seen, self.round = {}, {}, 0
        self.absences, self.trusted, self.alike = [], [0.0, 0.0], [0.0, 0.0, 0.0]

    def mean(self):
        heard = sum(self.p[i] for i in self.y)
        return sum(self.p[i] * self.y[i] for i in self.y) / heard if heard > 0 else 0.0

    def trust(self):
        if self.given_trust is not None:
            return self.given_trust
        product, square = self.trusted
        return min(max(product / square, 0.0), 1.0) if square > 0 else 0.0

    def strength(self):
        if self.given_correction is not None:
            return self.given_correction
        product, new, old = self.alike
        return max(product, 0.0) ** 2 / (new * old) if new * old > 0 else 0.0

    def correction(self, client):
        return self.strength() * (self.y[client] - self.mean()) if client in self.y else 0.0

    def aggregate(self, model, turn):
        self.round += 1
        if not turn.cohort:
            return model
        alpha, mean, span = self.trust(), self.mean(), turn.local_steps * turn.step
        said = {
            i: (turn.ended[i] - turn.started[i]) / span + self.correction(i) for i in turn.cohort
        }
        shares = dict(zip(turn.cohort, self.shares(turn.cohort), strict=True))
        # What everybody is taken to say, one by one.
        guessed = {i: self.y.get(i, mean if self.given_trust is not None else 0.0) for i in said}
        news = sum(shares[i] * (said[i] - alpha * guessed[i]) for i in said)
        change = 0.0
        for i, importance in enumerate(self.p):
            if i in said:
                change = change + importance * said[i]
            elif i in self.y or self.given_trust is not None:
                known = self.y.get(i, mean)
                change = change + importance * (
                    alpha * known + (1 - alpha * (1 - self.beta)) * news
                )
            else:
                change = change + importance * news
        self.learn(turn.cohort, said)
        for i in turn.cohort:
            if i not in self.y:
                self.y[i] = said[i]
            else:
                self.y[i] = self.y[i] + self.gain(i) * (said[i] - self.y[i])
            self.seen[i] = self.round
        self.fade()
        return model + span * change

    def fade(self):
        """Let memories become smaller at the rate at which updates do, if somebody returned."""
        _, new, old = self.alike
        if self.returned and self.given_trust is None and new < old:
            rate = min(np.log(old / new) / np.mean(self.absences), 0.7)
            self.y = {i: np.exp(-rate) * y for i, y in self.y.items()}

    def gain(self, client):
        away = self.round - self.seen[client]
        c = 2 * np.mean(self.absences) if self.damping is None else self.damping
        return away / (away + c)

    def learn(self, cohort, said):
        back = self.returned = [i for i in cohort if i in self.y]
        if back:
            self.trusted = [0.97 * value for value in self.trusted]
            self.alike = [0.97 * value for value in self.alike]
        self.absences += [self.round - self.seen[i] for i in back]
        for i in back:
            weight = self.p[i] * self.gain(i)
            self.trusted[0] += weight * (said[i] @ self.y[i])
            self.trusted[1] += weight * (self.y[i] @ self.y[i])
            self.alike[0] += said[i] @ self.y[i]
            self.alike[1] += said[i] @ said[i]
            self.alike[2] += self.y[i] @ self.y[i]
