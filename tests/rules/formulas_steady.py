"""FedAVOT's steady rule in the loop of `literal`, with a correction."""

from literal import Literal

import steady_formula


class Steady(Literal):
    """The formula on updates per unit of step; clients add κ (y_i − ŷ) to their gradients."""

    def __init__(self, p, weigh, *, kappa=0.0, c=0.0, trust=None):
        self.p, self.weigh, self.kappa = p, weigh, kappa
        self.rule = steady_formula.Steady(c, trust)

    def trust(self):
        return self.rule.trust

    def correction(self, client):
        y = self.rule.y
        return self.kappa * (y[client] - self.rule.mean(self.p)) if client in y else 0.0

    def aggregate(self, model, turn):
        span = turn.local_steps * turn.step
        u = {i: (turn.ended[i] - turn.started[i]) / span + self.correction(i) for i in turn.cohort}
        weights = self.weigh(turn.cohort) if turn.cohort else []
        return model + span * self.rule.change(u, weights, self.p)
