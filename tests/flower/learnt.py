"""The weights that the strategy learns by default, written out: w ∝ p exp(x) over the cohort."""

import numpy as np


class Learner:
    """One price on the spread of x, one step; after each round x ← x + η (p − w − ρ p (x − p·x)).

    The step along the price is implicit: x on the right of it is the new one.
    """

    def __init__(self, importance, *, softness=2.0, step=1.0):
        self.p = np.asarray(importance, dtype=float)
        self.softness = softness
        self.step = step
        self.x = np.zeros(self.p.size)

    @property
    def effective_potentials(self):
        """What weights are the softmax of."""
        return np.log(self.p) + self.x

    def weights(self, cohort) -> np.ndarray:
        raw = self.p[cohort] * np.exp(self.x[cohort])
        return np.asarray(raw / raw.sum())

    def observe(self, cohort, given=None) -> np.ndarray:
        cohort = list(cohort)
        shares = self.weights(cohort) if given is None else np.asarray(given)
        ahead = self.x + self.step * self.p
        ahead[cohort] -= self.step * shares
        # Linear in the new x: (1 + η ρ p_i) x_i − η ρ p_i Σ p_j x_j = ahead_i.
        price = self.step * self.softness * self.p
        system = np.diag(1 + price) - np.outer(price, self.p)
        self.x = np.linalg.solve(system, ahead)
        return shares
