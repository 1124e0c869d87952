"""Every rule as its formula, with its own state, written without the library's rules.

An aggregate is formed from models θ_i wherever the formula is in models, though the engine only
ever sees updates.
"""

import numpy as np
from literal import Literal, project


class Weighted(Literal):
    """θ ← Σ_{i∈S} w_i θ_i, with weights of the cohort alone."""

    def __init__(self, weigh):
        self.weigh = weigh

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        weights = self.weigh(turn.cohort)
        return sum(w * turn.ended[i] for w, i in zip(weights, turn.cohort, strict=True))


class WeightedUpdates(Literal):
    """θ ← θ + Σ_{i∈S} w_i (θ_i − θ)."""

    def __init__(self, weigh):
        self.weigh = weigh

    def aggregate(self, model, turn):
        weights = self.weigh(turn.cohort) if turn.cohort else []
        updates = turn.ended - turn.started
        return model + sum(w * updates[i] for w, i in zip(weights, turn.cohort, strict=True))


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

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        weights = np.zeros(len(self.p))
        weights[turn.cohort] = np.exp(self.x[turn.cohort])
        weights /= weights.sum()
        self.x = self.x + self.step * (self.p - weights)
        return weights @ turn.ended


class Selected(Literal):
    """θ ← Σ w_i θ_i over whom a draw chose; ``draw`` gives members and weights, in turn."""

    def __init__(self, draw):
        self.draw = draw

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        members, weights = self.draw(turn.cohort)
        return sum(w * turn.ended[i] for w, i in zip(weights, members, strict=True))


class Memory(Literal):
    """θ ← θ + Σ_i p_i η y_i + Σ_{i∈A} w_i (Δ_i − η y_i), y_i the last Δ_i/η."""

    def __init__(self, p, weigh):
        self.p, self.weigh, self.y = p, weigh, None

    def aggregate(self, model, turn):
        if self.y is None:
            self.y = np.zeros_like(turn.ended)
        if not turn.cohort:
            return model
        updates = turn.ended - turn.started
        change = turn.step * self.p @ self.y
        for w, i in zip(self.weigh(turn.cohort), turn.cohort, strict=True):
            change = change + w * (updates[i] - turn.step * self.y[i])
        for i in turn.cohort:
            self.y[i] = updates[i] / turn.step
        return model + change


def fedvarp(p):
    return Memory(p, lambda cohort: [len(p) * p[i] / len(cohort) for i in cohort])


class Mifa(Literal):
    """θ ← θ − η Σ_i p_i G_i, G_i = (θ − θ_i)/η of the last round i took part in."""

    def __init__(self, p):
        self.p, self.gradients = p, None

    def aggregate(self, model, turn):
        if self.gradients is None:
            self.gradients = np.zeros_like(turn.ended)
        if not turn.cohort:
            return model
        for i in turn.cohort:
            self.gradients[i] = (turn.started[i] - turn.ended[i]) / turn.step
        return model - turn.step * sum(p * g for p, g in zip(self.p, self.gradients, strict=True))


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
        updates = turn.ended - turn.started
        for w, i in zip(self.weights(turn.cohort), turn.cohort, strict=True):
            model = model + w * updates[i]
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
        updates = turn.ended - turn.started
        for i in self.ask(turn.cohort):
            model = model + self.p[i] / self.rates[i] * updates[i]
        return model


class FedAWE(Literal):
    """Clients go on from the model they received last, and echo their updates t − τ_i times."""

    def __init__(self, n_clients, start, step=1.0, clip=np.inf):
        self.step, self.clip = step, clip
        self.own = [start for _ in range(n_clients)]
        self.active = [-1 for _ in range(n_clients)]
        self.round = 0

    def start(self, model, client):
        return self.own[client]

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        base = np.mean([self.own[i] for i in turn.cohort], axis=0)
        echoed = [
            (self.round - self.active[i]) * (turn.ended[i] - self.own[i]) for i in turn.cohort
        ]
        return base + self.step * project(np.mean(echoed, axis=0), self.clip)

    def broadcast(self, model, cohort):
        for i in cohort:
            self.own[i], self.active[i] = model, self.round
        self.round += 1


class FedProx(Weighted):
    def __init__(self, proximal, inner=None):
        super().__init__((inner or fedavg()).weigh)
        self.proximal = proximal


class Scaffold(Literal):
    """Local steps along ∇f_i − c_i + c; option II of the control variates."""

    def __init__(self, p, n_parameters):
        self.p = p
        self.own = np.zeros((len(p), n_parameters))
        self.common = np.zeros(n_parameters)

    def correction(self, client):
        return -self.own[client] + self.common

    def aggregate(self, model, turn):
        n_clients, common = len(self.p), self.common
        moved = model
        for i in turn.cohort:
            drop = turn.started[i] - turn.ended[i]
            moved = moved - n_clients * self.p[i] / len(turn.cohort) * drop
            fresh = self.own[i] - common + drop / (turn.local_steps * turn.step)
            self.common = self.common + self.p[i] * (fresh - self.own[i])
            self.own[i] = fresh
        return moved


class Qffl(Literal):
    """θ ← θ − Σ p_i Δ'_i / Σ p_i h_i."""

    def __init__(self, p, q):
        self.p, self.q = p, q

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
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

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
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
