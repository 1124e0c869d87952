"""What the server does with another rule's change of the model, as formulas."""

import numpy as np
from literal import Literal


class OnServer(Literal):
    """Another literal rule, whose θ⁺ − θ goes through ``optimise`` unless nobody reported."""

    def __init__(self, inner):
        self.inner, self.proximal = inner, inner.proximal
        self.start, self.correction = inner.start, inner.correction

    def aggregate(self, model, turn):
        change = self.inner.aggregate(model, turn) - model
        return self.optimise(model, change) if turn.cohort else model

    def optimise(self, model, change):
        raise NotImplementedError


class Momentum(OnServer):
    """v ← m v + (1 − m) Δ, θ ← θ + s v."""

    def __init__(self, inner, step, momentum):
        super().__init__(inner)
        self.step, self.momentum, self.velocity = step, momentum, 0.0

    def optimise(self, model, change):
        self.velocity = self.momentum * self.velocity + (1 - self.momentum) * change
        return model + self.step * self.velocity


class Adam(OnServer):
    """Algorithm 2 of Reddi et al., with ε for its τ, and v = τ² at first."""

    def __init__(self, inner, step, betas, epsilon):
        super().__init__(inner)
        self.step, self.betas, self.epsilon = step, betas, epsilon
        self.mean, self.square = 0.0, epsilon**2

    def optimise(self, model, change):
        first, second = self.betas
        self.mean = first * self.mean + (1 - first) * change
        self.square = second * self.square + (1 - second) * change**2
        return model + self.step * self.mean / (np.sqrt(self.square) + self.epsilon)
