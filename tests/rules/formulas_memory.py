"""Rules that remember something of absent clients, or of whole periods, as their formulas."""

import numpy as np
from literal import Literal, project

import steady_formula


class Memory(Literal):
    """θ ← θ + β Σ_i p_i η y_i + Σ_{i∈S} w_i (Δ_i − β η y_i), y_i the last Δ_i/η."""

    def __init__(self, p, weigh, trust=1.0):
        self.p, self.weigh, self.trust, self.y = p, weigh, trust, [0.0 for _ in p]

    def move(self, model, turn):
        scale = self.trust * turn.step
        change = scale * sum(p * y for p, y in zip(self.p, self.y, strict=True))
        for w, i in zip(self.weigh(turn.cohort), turn.cohort, strict=True):
            change = change + w * (turn.updates[i] - scale * self.y[i])
        for i in turn.cohort:
            self.y[i] = turn.updates[i] / turn.step
        return model + change


def fedvarp(p):
    return Memory(p, lambda cohort: [len(p) * p[i] / len(cohort) for i in cohort])


def fedstale(p, inclusion, trust):
    return Memory(p, lambda cohort: [p[i] / inclusion[i] for i in cohort], trust)


class Mifa(Literal):
    """θ ← θ − η Σ_i p_i G_i, G_i = (θ − θ_i)/η of the last round i took part in."""

    def __init__(self, p):
        self.p, self.gradients = p, [0.0 for _ in p]

    def move(self, model, turn):
        for i in turn.cohort:
            self.gradients[i] = (turn.started[i] - turn.ended[i]) / turn.step
        return model - turn.step * sum(p * g for p, g in zip(self.p, self.gradients, strict=True))


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


class CachedCalibration(Literal):
    """CA²FL with a buffer that a cohort fills: v = h + (1/M) Σ (Δ_i − h_i), θ ← θ + s v.

    Client by client as published, for equal importance; h_i is kept per unit of step size.
    """

    def __init__(self, n_clients, n_parameters, step):
        self.step, self.cached = step, np.zeros((n_clients, n_parameters))
        self.mean = np.zeros(n_parameters)

    def aggregate(self, model, turn):
        calibration, buffer, renewed = turn.step * self.mean, 0.0, 0
        for i in turn.cohort:
            update = turn.ended[i] - turn.started[i]
            buffer = buffer + update - turn.step * self.cached[i]
            self.mean = self.mean + (update / turn.step - self.cached[i]) / len(self.cached)
            self.cached[i] = update / turn.step
            renewed += 1
        return model + self.step * (calibration + buffer / renewed) if renewed else model


class Focus(Literal):
    """Local steps along ∇f_i − g_i; θ ← θ − H η Σ p_i g_i, with the latest g_i."""

    def __init__(self, p, n_parameters):
        self.p, self.last = p, np.zeros((len(p), n_parameters))

    def correction(self, client):
        return -self.last[client]

    def move(self, model, turn):
        span = turn.local_steps * turn.step
        for i in turn.cohort:
            self.last[i] = self.last[i] + (turn.started[i] - turn.ended[i]) / span
        return model - span * self.p @ self.last


class Area(Literal):
    """θ ← Σ p_i y_i, y_i the model in which client i's local steps last ended."""

    def __init__(self, p, start):
        self.p, self.ended = p, np.tile(start, (len(p), 1))

    def move(self, model, turn):
        self.ended[turn.cohort] = turn.ended[turn.cohort]
        return self.p @ self.ended


class FedAWE(Literal):
    """Clients go on from the model they received last, and echo their updates t − τ_i times."""

    def __init__(self, n_clients, start, step=1.0, clip=np.inf):
        self.step, self.clip = step, clip
        self.own = [start for _ in range(n_clients)]
        self.active = [-1 for _ in range(n_clients)]
        self.round = 0

    def start(self, model, client):
        return self.own[client]

    def move(self, model, turn):
        base = np.mean([self.own[i] for i in turn.cohort], axis=0)
        echoed = [
            (self.round - self.active[i]) * (turn.ended[i] - self.own[i]) for i in turn.cohort
        ]
        return base + self.step * project(np.mean(echoed, axis=0), self.clip)

    def broadcast(self, model, cohort):
        for i in cohort:
            self.own[i], self.active[i] = model, self.round
        self.round += 1


class MeanFedAWE(FedAWE):
    """As its authors' program: members receive the aggregate, and all models' mean counts."""

    def aggregate(self, model, turn):
        moved = super().aggregate(model, turn)
        for i in turn.cohort:
            self.own[i], self.active[i] = moved, self.round
        self.round += 1
        return np.mean(self.own, axis=0)

    def broadcast(self, model, cohort):
        pass


class Amplified(Literal):
    """Another literal rule, whose changes of P rounds count a times at their end."""

    def __init__(self, inner, period, amplification):
        self.inner, self.period, self.amplification = inner, period, amplification
        self.correction = inner.correction
        self.changes = []

    def aggregate(self, model, turn):
        moved = self.inner.aggregate(model, turn)
        self.changes.append(moved - model)
        if len(self.changes) < self.period:
            return moved
        moved = moved + (self.amplification - 1) * sum(self.changes)
        self.changes = []
        self.inner.end_period()
        return moved


class ScaledAverage(Literal):
    """θ ← θ + (1/|S|) Σ_S N p_i Δ_i."""

    def __init__(self, p):
        self.p = p

    def aggregate(self, model, turn):
        factor = len(self.p) / max(len(turn.cohort), 1)
        return model + sum(factor * self.p[i] * turn.updates[i] for i in turn.cohort)

    def end_period(self):
        pass


class PeriodScaffold(ScaledAverage):
    """The same with control variates, each the mean of a client's gradients in a period."""

    def __init__(self, p, n_parameters):
        super().__init__(p)
        self.own = np.zeros((len(p), n_parameters))
        self.seen = [[] for _ in p]

    def correction(self, client):
        return self.p @ self.own - self.own[client]

    def aggregate(self, model, turn):
        for i in turn.cohort:
            descent = (turn.started[i] - turn.ended[i]) / (turn.local_steps * turn.step)
            self.seen[i].append(descent - self.correction(i))
        return super().aggregate(model, turn)

    def end_period(self):
        for i, seen in enumerate(self.seen):
            self.own[i] = np.mean(seen, axis=0) if seen else self.own[i]
        self.seen = [[] for _ in self.p]


class Steady(Literal):
    """The formula on updates per unit of step; clients add κ (y_i − ŷ) to their gradients."""

    def __init__(self, p, weigh, *, kappa=0.0, c=0.0, trust=None):
        self.p, self.weigh, self.kappa = p, weigh, kappa
        self.rule = steady_formula.Steady(c, trust)

    def correction(self, client):
        y = self.rule.y
        return self.kappa * (y[client] - self.rule.mean(self.p)) if client in y else 0.0

    def aggregate(self, model, turn):
        span = turn.local_steps * turn.step
        u = {i: (turn.ended[i] - turn.started[i]) / span + self.correction(i) for i in turn.cohort}
        weights = self.weigh(turn.cohort) if turn.cohort else []
        return model + span * self.rule.change(u, weights, self.p)
