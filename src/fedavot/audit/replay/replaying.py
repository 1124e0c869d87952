"""The replay: every rule is trained on the log, and its losses are compared.

A rule's loss in a problem is the mean of the excess loss over some rounds, at the step size that is
best for it in that variant: as with a step size that a user tunes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.decision.rules import FEDAVG, FULL
from fedavot.audit.findings import Estimate, LawName, Replay, Trained
from fedavot.audit.replay.problems import SEEDS, problems
from fedavot.audit.replay.scene import Scene
from fedavot.audit.replay.training import train, train_all
from fedavot.audit.replay.ways import Way, ways_of

STEPS = np.array([0.04, 0.16, 0.64])
"""Local step sizes; the largest curvature is 1."""
RECORDS = 60
"""Largest number of points of a curve."""
MOST = 1e6
"""Losses beyond this, relative to the first model's, have diverged."""
LEAST_GAIN = 0.03
"""A rule is better if it removes at least this share of the loss in every variant, and ..."""
SPREADS = 3.18
"""... if its mean gain is this many standard errors over the seeds: the 97.5 % quantile of
Student's t for four seeds."""


@dataclass(frozen=True, eq=False)
class _Losses:
    """A rule's losses, each of shape (n_variants, n_seeds), at its best steps."""

    way: Way
    steps: Floats
    """Best step size in each variant."""
    over_all: Floats
    held_out: Floats
    curve: Floats
    """Loss at the recorded rounds relative to the first, shape (n_variants, n_records)."""


def replay(
    scene: Scene, *, law: LawName, softness: float, in_use: str, local_steps: int, seed: int
) -> Replay:
    """Train with every rule and compare.

    Parameters
    ----------
    scene : Scene
        The rounds.
    law : LawName
        Which law FedAVOT is fitted by.
    softness : float
        Softness of the soft alignment.
    in_use : str
        The rule in use today.
    local_steps : int
        Number of local steps of a client in a round.
    seed : int
        Seed for drawing problems and noise.
    """
    rng = np.random.default_rng(seed)
    importance, n_rounds = scene.window.importance, scene.window.n_rounds
    ways = ways_of(scene, law=law, softness=softness, rng=rng)
    of = problems(importance, scene.group_of, steps=STEPS, local_steps=local_steps, rng=rng)
    losses = {FULL: train_all(of, importance, n_rounds, rng)}
    for together in _by_cohorts(ways):
        losses |= train(of, together, importance, rng)
    first = of.excess(np.zeros((len(of.best), of.n_problems)))
    recorded = np.unique(np.linspace(1, n_rounds, min(RECORDS, n_rounds)).round().astype(int))
    everyone = Way(FULL, scene.window.incidence, np.zeros(0))
    found = {
        way.rule: _summary(way, losses[way.rule] / first, scene.fitted_rounds, recorded)
        for way in (*ways, everyone)
    }
    return Replay(
        trained=tuple(_trained(one, found, in_use) for one in found.values()),
        recorded=recorded,
        fitted_rounds=scene.fitted_rounds,
        held_out_rounds=n_rounds - scene.fitted_rounds,
        variants=of.n_problems // SEEDS,
        seeds=SEEDS,
        local_steps=local_steps,
        clients=scene.clients.size,
    )


def _by_cohorts(ways: Sequence[Way]) -> list[list[Way]]:
    """Return the ways by the cohorts that train, as lists."""
    lists: dict[int, list[Way]] = {}
    for way in ways:
        lists.setdefault(id(way.cohorts), []).append(way)
    return list(lists.values())


def _summary(way: Way, losses: Floats, fitted: int, recorded: Integers) -> _Losses:
    """Reduce losses of shape (n_rounds, n_steps, n_problems) to those at the best steps."""
    finite = np.clip(np.nan_to_num(losses, nan=MOST, posinf=MOST), 1.0 / MOST, MOST)
    by_variant = finite.reshape(*finite.shape[:2], -1, SEEDS)
    held_out = by_variant[min(fitted, len(losses) - 1) :].mean(axis=0)
    best, variants = held_out.mean(axis=2).argmin(axis=0), np.arange(by_variant.shape[2])
    return _Losses(
        way,
        STEPS[best],
        np.exp(np.log(by_variant).mean(axis=0))[best, variants],
        held_out[best, variants],
        by_variant[recorded - 1][:, best, variants].mean(axis=2).T,
    )


def _trained(one: _Losses, found: dict[str, _Losses], in_use: str) -> Trained:
    plain, full = found[FEDAVG], found[FULL]
    to_use = _ratio(one.held_out, found[in_use].held_out)
    return Trained(
        rule=one.way.rule,
        needs=one.way.needs,
        step=float(np.exp(np.log(one.steps / plain.steps).mean())),
        to_plain=_ratio(one.over_all, plain.over_all),
        to_full=_ratio(one.over_all, full.over_all),
        held_out_to_plain=_ratio(one.held_out, plain.held_out),
        held_out_to_full=_ratio(one.held_out, full.held_out),
        to_use=to_use,
        low=one.curve.min(axis=0),
        middle=np.median(one.curve, axis=0),
        high=one.curve.max(axis=0),
        better=to_use.high < 1.0 - LEAST_GAIN and _surely(one.held_out, found[in_use].held_out),
        softness=one.way.softness,
    )


def _ratio(losses: Floats, reference: Floats) -> Estimate:
    """Return the geometric mean of quotients, and its smallest and largest of the variants."""
    by_variant = np.log(losses / reference).mean(axis=1)
    value, low, high = np.exp([by_variant.mean(), by_variant.min(), by_variant.max()]).tolist()
    return Estimate(value, low, high)


def _surely(losses: Floats, reference: Floats) -> bool:
    """Return whether the mean over seeds is less by more than chance."""
    by_seed = np.log(losses / reference).mean(axis=0)
    error = float(by_seed.std(ddof=1)) / np.sqrt(by_seed.size)
    return bool(by_seed.mean() + SPREADS * error < 0.0)
