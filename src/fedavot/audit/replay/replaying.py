"""The replay: every rule is trained on the log, and its losses are compared.

A rule's loss in a problem is the mean of the excess loss over some rounds, at the step size that is
best for it in that variant, as if a user had tuned it. Where it is not known how clients differ,
the loss is the mean over the ways in which they may.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.audit.findings import LawName
from fedavot.audit.recommending import Estimate, Replay, Trained
from fedavot.audit.replay.problems import SEEDS, problems
from fedavot.audit.replay.scene import Scene, Way, ways_of
from fedavot.audit.replay.training import train, train_all
from fedavot.audit.statistics.rules import FEDAVG, FULL

if TYPE_CHECKING:
    from fedavot.training.task import Task

STEPS = np.array([0.04, 0.16, 0.64])
"""Local step sizes; the largest curvature is 1."""
TASK_STEPS = np.array([0.01, 0.05, 0.25, 1.25])
"""Local step sizes for a user's task, about which nothing is known."""
RECORDS = 60
"""Largest number of points of a curve."""
MOST = 1e6
"""Losses beyond this, relative to the first model's, have diverged."""
LEAST_GAIN = 0.03
"""A rule is better than another if it removes at least this share of its loss in every variant, and
..."""
SPREADS = 3.18
"""... if its mean gain is this many standard errors over the seeds: the 97.5 % quantile of
Student's t for four seeds."""


@dataclass(frozen=True, eq=False)
class _Losses:
    """A rule's losses, each of shape (n_variants, n_seeds), at its best step sizes."""

    way: Way
    steps: Floats
    """Best step sizes."""
    over_all: Floats
    held_out: Floats
    curve: Floats
    """Loss at the recorded rounds relative to the first, shape (n_variants, n_records)."""


class Options(NamedTuple):
    """The options of a replay.

    ``law`` is the law that FedAVOT is fitted with, ``softness`` the softness of the soft alignment,
    ``in_use`` the rule in use today, ``local_steps`` the number of local steps of a client in a
    round, and ``seed`` the seed for the problems and the noise.
    """

    law: LawName
    softness: float
    in_use: str
    local_steps: int
    seed: int


def replay(scene: Scene, options: Options, task: "Task | None" = None) -> Replay:
    """Train with every rule and compare.

    Parameters
    ----------
    scene : Scene
        The rounds.
    options : Options
        How the log is replayed.
    task : Task, optional
        A user's own task, instead of the problems. Its loss is not an excess loss, since its
        minimum is not known.
    """
    rng = np.random.default_rng(options.seed)
    importance, n_rounds = scene.window.importance, scene.window.n_rounds
    ways = ways_of(scene, law=options.law, softness=options.softness, rng=rng)
    if task is None:
        steps, rounds = STEPS, np.arange(1, n_rounds + 1)
        of = problems(
            importance, scene.groupings(), steps=steps, local_steps=options.local_steps, rng=rng
        )
        losses = {FULL: train_all(of, importance, n_rounds, rng)}
        for together in _by_cohorts(ways):
            losses |= train(of, together, importance, rng)
        start = of.excess(np.zeros((len(of.best), of.n_problems)))
        losses = {rule: found / start for rule, found in losses.items()}
    else:
        from fedavot.audit.replay.own_task import train_task

        steps = TASK_STEPS
        rounds, losses = train_task(task, scene.window, ways, steps, options.local_steps)
    groupings = len(scene.groupings()) if task is None else 1
    recorded = np.unique(np.linspace(0, rounds.size - 1, min(RECORDS, rounds.size)).round())
    shown = recorded.astype(np.int64)
    shape = (rounds.size, steps.size, groupings, -1, SEEDS)
    everyone = Way(FULL, scene.window.incidence, np.zeros(0))
    held_out = rounds > min(scene.fitted_rounds, n_rounds - 1)
    found = {
        way.rule: _summary(way, steps, losses[way.rule].reshape(*shape), held_out, shown)
        for way in (*ways, everyone)
    }
    return Replay(
        trained=tuple(_trained(one, found, options.in_use) for one in found.values()),
        recorded=rounds[shown],
        fitted_rounds=scene.fitted_rounds,
        held_out_rounds=n_rounds - scene.fitted_rounds,
        variants=found[FULL].held_out.shape[0],
        seeds=SEEDS,
        local_steps=options.local_steps,
        n_clients=scene.clients.size,
        task=None if task is None else task.name,
    )


def _by_cohorts(ways: Sequence[Way]) -> list[list[Way]]:
    """Group the ways by the cohorts that train, as lists."""
    lists: dict[int, list[Way]] = {}
    for way in ways:
        lists.setdefault(id(way.cohorts), []).append(way)
    return list(lists.values())


def _summary(
    way: Way, steps: Floats, losses: Floats, held_out: NDArray[np.bool_], shown: Integers
) -> _Losses:
    """Reduce losses to those at the best steps, and to their means over groupings.

    ``losses`` has the shape (n_records, n_steps, n_groupings, n_variants, SEEDS).
    """
    finite = np.clip(np.nan_to_num(losses, nan=MOST, posinf=MOST), 1.0 / MOST, MOST)
    late = finite[held_out].mean(axis=0)
    best = late.mean(axis=3).argmin(axis=0)
    at_best = (best, *np.ogrid[: best.shape[0], : best.shape[1]])
    return _Losses(
        way,
        steps[best],
        np.exp(np.log(finite).mean(axis=0))[at_best].mean(axis=0),
        late[at_best].mean(axis=0),
        finite[shown][:, *at_best].mean(axis=(1, 3)).T,
    )


def _trained(one: _Losses, found: dict[str, _Losses], in_use: str) -> Trained:
    plain, full = found[FEDAVG], found[FULL]
    to_use = _ratio(one.held_out, found[in_use].held_out)
    return Trained(
        rule=one.way.rule,
        need=one.way.need,
        step=float(np.exp(np.log(one.steps / plain.steps).mean())),
        to_plain=_ratio(one.over_all, plain.over_all),
        to_full=_ratio(one.over_all, full.over_all),
        held_out_to_plain=_ratio(one.held_out, plain.held_out),
        held_out_to_full=_ratio(one.held_out, full.held_out),
        to_use=to_use,
        low=one.curve.min(axis=0),
        middle=np.median(one.curve, axis=0),
        high=one.curve.max(axis=0),
        # Whatever rule is in use, a better rule must also beat the plain average.
        better=one.way.rule != in_use
        and all(
            _is_better(one.held_out, found[other].held_out)
            for other in {in_use, FEDAVG} - {one.way.rule}
        ),
        softness=one.way.softness,
    )


def _ratio(losses: Floats, reference: Floats) -> Estimate:
    """Return the geometric mean of quotients, and its smallest and largest over the variants."""
    by_variant = np.log(losses / reference).mean(axis=1)
    value, low, high = np.exp([by_variant.mean(), by_variant.min(), by_variant.max()]).tolist()
    return Estimate(value, low, high)


def _is_better(losses: Floats, reference: Floats) -> bool:
    """Return whether losses are lower in every variant, and on average by more than chance."""
    by_seed = np.log(losses / reference).mean(axis=0)
    error = float(by_seed.std(ddof=1)) / np.sqrt(by_seed.size)
    surely = bool(by_seed.mean() + SPREADS * error < 0.0)
    return surely and _ratio(losses, reference).high < 1.0 - LEAST_GAIN
