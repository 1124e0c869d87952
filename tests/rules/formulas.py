"""Rules that remember no updates as their formulas, written without the library's rules.

Averages, importance weights, FedAVOT's weights, fairness, and what the server does with another
rule's change. An aggregate is formed from models θ_i wherever the formula is in models, though the
engine only ever sees updates.
"""

import itertools

import numpy as np
from literal import Literal


class Weighted(Literal):
    """θ ← Σ_{i∈S} w_i θ_i, with weights of the cohort alone."""

    def __init__(self, weigh):
        self.weigh = weigh

    def move(self, model, turn):
        weights = self.weigh(turn.cohort)
        return sum(w * turn.ended[i] for w, i in zip(weights, turn.cohort, strict=True))


class WeightedUpdates(Weighted):
    """θ ← θ + Σ_{i∈S} w_i (θ_i − θ)."""

    def move(self, model, turn):
        weights = self.weigh(turn.cohort)
        return model + sum(w * turn.updates[i] for w, i in zip(weights, turn.cohort, strict=True))


class Full(Literal):
    def __init__(self, p):
        self.p = p

    def aggregate(self, model, turn):
        return sum(p * theta for p, theta in zip(self.p, turn.ended, strict=True))


def fedavg_k(p):
    return Weighted(lambda cohort: [len(p) / len(cohort) * p[i] for i in cohort])


def fedavg():
    return Weighted(lambda cohort: [1 / len(cohort) for _ in cohort])


def importance_average(p):
    return Weighted(lambda cohort: [p[i] / sum(p[k] for k in cohort) for i in cohort])


def horvitz_thompson(p, inclusion):
    return WeightedUpdates(lambda cohort: [p[i] / inclusion[i] for i in cohort])


def self_normalised_ipw(p, inclusion):
    def weigh(cohort):
        ratios = {i: p[i] / inclusion[i] for i in cohort}
        return [ratios[i] / sum(ratios.values()) for i in cohort]

    return Weighted(weigh)


def fedavot(alignment):
    return Weighted(alignment.weights)


class Online(Literal):
    """Softmax weights of potentials that move by η (p − Y), with no bound on absences."""

    def __init__(self, p, step):
        self.p, self.step, self.x = p, step, np.zeros(len(p))

    def move(self, model, turn):
        weights = np.zeros(len(self.p))
        weights[turn.cohort] = np.exp(self.x[turn.cohort])
        weights /= weights.sum()
        self.x = self.x + self.step * (self.p - weights)
        return weights @ turn.ended


class Selected(Literal):
    """θ ← Σ w_i θ_i over whom a draw chose; ``draw`` gives members and weights, in turn."""

    def __init__(self, draw):
        self.draw = draw

    def move(self, model, turn):
        members, weights = self.draw(turn.cohort)
        return sum(w * turn.ended[i] for w, i in zip(weights, members, strict=True))


class FedAU(Literal):
    """θ ← θ + Σ_{i∈S} p_i ω_i Δ_i, ω_i the mean of a list of intervals."""

    def __init__(self, p, cutoff):
        self.p, self.cutoff = p, cutoff
        self.intervals = [[] for _ in p]
        self.absences = [0 for _ in p]

    def weights(self, cohort):
        means = [np.mean(self.intervals[i]) if self.intervals[i] else 1.0 for i in cohort]
        return [self.p[i] * mean for i, mean in zip(cohort, means, strict=True)]

    def observe(self, cohort):
        for i in range(len(self.p)):
            if i in cohort:
                self.intervals[i].append(self.absences[i] + 1)
                self.absences[i] = 0
                continue
            self.absences[i] += 1
            if self.absences[i] == self.cutoff:
                self.intervals[i].append(self.cutoff)
                self.absences[i] = 0

    def aggregate(self, model, turn):
        for w, i in zip(self.weights(turn.cohort), turn.cohort, strict=True):
            model = model + w * turn.updates[i]
        self.observe(turn.cohort)
        return model


class F3ast(Literal):
    """Ask the K with the largest p²/r², r ← (1−β) r + β 1_S, θ ← θ + Σ_S (p_i/r_i) Δ_i."""

    def __init__(self, p, size, smoothing):
        self.p, self.size, self.smoothing, self.rates = p, size, smoothing, None

    def ask(self, cohort):
        n_clients = len(self.p)
        if self.rates is None and cohort:
            self.rates = [min(self.size, len(cohort)) / n_clients for _ in self.p]
        utility = {i: self.p[i] ** 2 / self.rates[i] ** 2 for i in cohort}
        chosen = sorted(cohort, key=lambda i: -utility[i])[: self.size]
        if self.rates is not None:
            self.rates = [
                (1 - self.smoothing) * rate + self.smoothing * (i in chosen)
                for i, rate in enumerate(self.rates)
            ]
        return chosen

    def aggregate(self, model, turn):
        for i in self.ask(turn.cohort):
            model = model + self.p[i] / self.rates[i] * turn.updates[i]
        return model


class FedProx(Weighted):
    def __init__(self, proximal, inner=None):
        super().__init__((inner or fedavg()).weigh)
        self.proximal = proximal


class Qffl(Literal):
    """θ ← θ − Σ p_i Δ'_i / Σ p_i h_i."""

    def __init__(self, p, q):
        self.p, self.q = p, q

    def move(self, model, turn):
        lipschitz, q = 1 / turn.step, self.q
        numerator, denominator = 0.0, 0.0
        for i in turn.cohort:
            f = turn.losses[i]
            descent = lipschitz * (turn.started[i] - turn.ended[i])
            numerator = numerator + self.p[i] * f**q * descent
            bound = q * f ** (q - 1) * np.sum(descent**2) + lipschitz * f**q
            denominator = denominator + self.p[i] * bound
        return model - numerator / denominator


class Afl(Literal):
    """Aggregate by λ over the cohort; λ ascends along the losses reported."""

    def __init__(self, n_clients, step):
        self.mixture, self.step = np.full(n_clients, 1 / n_clients), step

    def move(self, model, turn):
        present = self.mixture[turn.cohort].sum()
        moved = model
        for i in turn.cohort:
            moved = moved + self.mixture[i] / present * (turn.ended[i] - turn.started[i])
        raised = self.mixture.copy()
        raised[turn.cohort] += self.step * turn.losses[turn.cohort]
        self.mixture = onto_simplex(raised)
        return moved


def onto_simplex(values):
    """Find by bisection the τ for which Σ max(v_i − τ, 0) is one."""
    low, high = values.min() - 1.0, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        over = np.maximum(values - middle, 0).sum() > 1
        low, high = (middle, high) if over else (low, middle)
    return np.maximum(values - (low + high) / 2, 0)


class CaFed(Literal):
    """Remove clients in order of correlation, then of availability, unless the error grows."""

    def __init__(self, p, bias):
        self.p, self.bias = p, bias
        self.history, self.losses = [], None

    def estimates(self, i):
        """Return how available the client is, and how correlated from round to round."""
        states = [False, *(i in cohort for cohort in self.history)]
        pairs = list(itertools.pairwise(states))
        here, away = ([after for before, after in pairs if before is was] for was in (True, False))
        stays = (sum(here) + 1) / (len(here) + 2)
        stays_away = (len(away) - sum(away) + 1) / (len(away) + 2)
        return (sum(states) + 1) / (len(self.history) + 2), abs(stays + stays_away - 1)

    def error(self, kept):
        mass = sum(self.p[i] for i in kept)
        mean = sum(self.p[i] * self.losses[i] for i in kept) / mass
        return mean + self.bias * max(self.losses) * (1 - mass) ** 2

    def kept(self):
        found = {i: self.estimates(i) for i in range(len(self.p))}
        kept = set(found)
        for order in (
            sorted(found, key=lambda i: -found[i][1]),
            sorted(found, key=lambda i: found[i][0]),
        ):
            for i in order:
                fewer = kept - {i}
                if fewer and self.error(fewer) <= self.error(kept):
                    kept = fewer
        return kept, found

    def aggregate(self, model, turn):
        self.history.append(turn.cohort)
        if not turn.cohort:
            return model
        if self.losses is None:
            self.losses = [np.mean([turn.losses[i] for i in turn.cohort])] * len(self.p)
        for i in turn.cohort:
            self.losses[i] = turn.losses[i]
        kept, found = self.kept()
        for i in kept & set(turn.cohort):
            model = model + self.p[i] / found[i][0] * (turn.ended[i] - turn.started[i])
        return model


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
