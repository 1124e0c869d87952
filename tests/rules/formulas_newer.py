"""The rivals of recent years as formulas: FedStale, amplified rules, FOCUS, AREA, CA²FL, CA-Fed."""

import itertools

import numpy as np
from formulas import FedAWE
from literal import Literal


class FedStale(Literal):
    """θ ← θ + Σ_S (p_i/π_i) (Δ_i − β h_i) + β Σ p_i h_i, h_i = η times the last Δ_i/η."""

    def __init__(self, p, inclusion, trust):
        self.p, self.inclusion, self.trust, self.last = p, inclusion, trust, None

    def aggregate(self, model, turn):
        if self.last is None:
            self.last = np.zeros_like(turn.ended)
        if not turn.cohort:
            return model
        updates, stale = turn.ended - turn.started, self.trust * turn.step * self.last
        moved = model + self.p @ stale
        for i in turn.cohort:
            moved = moved + self.p[i] / self.inclusion[i] * (updates[i] - stale[i])
            self.last[i] = updates[i] / turn.step
        return moved


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
        updates = turn.ended - turn.started
        factor = len(self.p) / max(len(turn.cohort), 1)
        return model + sum(factor * self.p[i] * updates[i] for i in turn.cohort)

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


class Focus(Literal):
    """Local steps along ∇f_i − g_i; θ ← θ − H η Σ p_i g_i, with the latest g_i."""

    def __init__(self, p, n_parameters):
        self.p, self.last = p, np.zeros((len(p), n_parameters))

    def correction(self, client):
        return -self.last[client]

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        span = turn.local_steps * turn.step
        for i in turn.cohort:
            self.last[i] = self.last[i] + (turn.started[i] - turn.ended[i]) / span
        return model - span * self.p @ self.last


class Area(Literal):
    """θ ← Σ p_i y_i, y_i the model in which client i's local steps last ended."""

    def __init__(self, p, start):
        self.p, self.ended = p, np.tile(start, (len(p), 1))

    def aggregate(self, model, turn):
        if not turn.cohort:
            return model
        self.ended[turn.cohort] = turn.ended[turn.cohort]
        return self.p @ self.ended


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
