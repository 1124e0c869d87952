"""A small regression, and every rule on it twice: from the library, and literally."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import formulas as f
import formulas_memory as memory
import jax
import jax.numpy as jnp
import literal
import numpy as np

import fedavot as fa
from fedavot import rules, training
from fedavot.rules._history import Constants
from fedavot.rules._memory import remembering
from fedavot.rules._weights import by_cohort
from fedavot.training.local import batch_key, batch_positions

N_CLIENTS, N_EXAMPLES, N_FEATURES = 7, 6, 3
ROUNDS, LOCAL_STEPS, BATCH = 30, 3, 4
EMPTY_ROUNDS = (0, 4, 17)
"""Rounds in which nobody reports, the first among them."""
SEEDS = (3, 11)
RADIUS = 0.8
"""Of the ball, in which the unprojected models do not stay."""

STEP = training.decaying(0.08, 10.0)
COHORTS = [[0, 1], [2, 3, 4], [5, 6, 0], [1, 3, 5, 6], [2, 6], [4, 1], [3, 0, 2, 4, 5], [6]]
LAW = fa.Cohorts(COHORTS, [0.2, 0.15, 0.1, 0.1, 0.15, 0.1, 0.1, 0.1])
P = LAW.expected_weights(np.array([0.9, -0.3, 0.2, 1.1, -0.6, 0.0, 0.4]))
"""The marginal of a plan, so that alignment is possible."""


def availability(rng, rounds):
    """Draw cohorts from the law, with nobody in some rounds."""
    drawn = [np.asarray(cohort) for cohort in LAW.sample(rng, rounds)]
    return [
        np.zeros(0, dtype=np.int64) if number in EMPTY_ROUNDS else cohort
        for number, cohort in enumerate(drawn)
    ]


def heterogeneous_data(rng):
    """Draw features and targets of clients who disagree about the slope."""
    features = rng.normal(size=(N_CLIENTS, N_EXAMPLES, N_FEATURES))
    slopes = rng.normal(size=(N_CLIENTS, N_FEATURES)) + np.arange(N_CLIENTS)[:, None] / 3
    targets = np.einsum("ijk,ik->ij", features, slopes) + rng.normal(size=(N_CLIENTS, N_EXAMPLES))
    return features, targets


FEATURES, TARGETS = heterogeneous_data(np.random.default_rng(7))
START = {"level": np.array(0.3), "slope": np.array([0.1, -0.2, 0.05])}


def square_loss(params, batch):
    features, targets = batch
    return jnp.mean((features @ params["slope"] + params["level"] - targets) ** 2)


TASK = training.Task("regression", (FEATURES, TARGETS), square_loss, lambda key: START)
PROBLEM = training.Problem(TASK, P, availability)
SINGLE = training.Problem(
    dataclasses.replace(TASK, data=(FEATURES.astype(np.float32), TARGETS.astype(np.float32))),
    P,
    availability,
)
"""The same in single precision."""


def flat(params):
    """Return a model, or one a seed, as the literal loop holds it: the level, then the slope."""
    level, slope = np.asarray(params["level"]), np.asarray(params["slope"])
    return np.concatenate([level[..., None], slope], axis=-1)


class Options(NamedTuple):
    """How the loop is varied."""

    batch_size: int | None = BATCH
    radius: float = np.inf


OPTIONS = {
    "mini-batches in a ball": Options(radius=RADIUS),
    "full batches": Options(batch_size=None),
}


def train(rule, options, problem=PROBLEM):
    """Run the engine, all seeds at once."""
    ball = None if np.isinf(options.radius) else training.Ball(options.radius)
    local = {"local_steps": LOCAL_STEPS, "batch_size": options.batch_size, "projection": ball}
    plan = training.Training(ROUNDS, STEP, **local, seeds=SEEDS, record_every=ROUNDS)
    return training.train(problem, rule, plan)


def play(rule, options, seed, cohorts=None):
    """Run the literal loop on the same batches, and the same cohorts unless others are given."""
    ones = np.ones((N_CLIENTS, N_EXAMPLES, 1))
    setting = literal.Setting(
        features=np.concatenate([ones, FEATURES], axis=-1),
        targets=TARGETS,
        start=flat(START),
        steps=STEP(ROUNDS, LOCAL_STEPS),
        batches=batches(seed, options.batch_size),
        radius=options.radius,
    )
    return literal.play(rule, setting, cohorts_of(seed) if cohorts is None else cohorts)


def cohorts_of(seed):
    return availability(np.random.default_rng([seed, 0]), ROUNDS)


@functools.cache
def batches(seed, size):
    """Return the positions of every batch, shape (rounds, clients, local steps, size)."""
    shape = (ROUNDS, N_CLIENTS, LOCAL_STEPS)
    if size is None:
        return np.broadcast_to(np.arange(N_EXAMPLES), (*shape, N_EXAMPLES))

    def one(number, client, step):
        key = batch_key(jax.random.key(seed), number, client, step)
        return batch_positions(key, N_EXAMPLES, N_EXAMPLES, size)

    numbers, clients, steps = (grid.ravel() for grid in np.indices(shape))
    positions = jax.jit(jax.vmap(one))(numbers + 1, clients, steps)
    return np.asarray(positions).reshape(*shape, size)


ENTROPY = fa.align(P, LAW)
VARIANCE = fa.align(P, LAW, objective="variance")
SOFT = fa.align(P, LAW, softness=0.3)
INCLUSION = LAW.inclusion()
ASKED = 2
"""How many of the available the selecting rules ask."""


def drawn(seed):
    """Return the selection's draws, in turn, from the generator the schedule gives the rule."""
    rng = np.random.default_rng([seed, 1])

    def draw(cohort):
        places, weights = fa.select(ENTROPY.weights(cohort), ASKED, rng)
        return [cohort[place] for place in places], weights

    return draw


class Case(NamedTuple):
    """A rule of the library, and the literal one of a seed."""

    rule: rules.Rule
    literal: Callable[[int], Any]
    """A function of the seed."""


def softly(**options):
    """Return the weights that the steady rule learns, from a fresh aligner."""
    return fa.OnlineAligner(P, **{"softness": 2.0, "step": 1.0} | options).observe


def steady(weigh=None, **constants):
    return memory.Steady(P, weigh or softly(), **constants)


def average():
    return f.importance_average(P)


N_PARAMETERS = N_FEATURES + 1
EVEN = np.full(N_CLIENTS, 1 / N_CLIENTS)
BETAS = (0.8, 0.9)
CASES = [
    Case(rules.full(P), lambda seed: f.Full(P)),
    Case(rules.fedavg_k(P), lambda seed: f.fedavg_k(P)),
    Case(rules.fedavg(), lambda seed: f.fedavg()),
    Case(rules.importance_average(P), lambda seed: average()),
    Case(rules.horvitz_thompson(P, INCLUSION), lambda seed: f.horvitz_thompson(P, INCLUSION)),
    Case(rules.self_normalised_ipw(P, INCLUSION), lambda seed: f.self_normalised_ipw(P, INCLUSION)),
    Case(rules.steady(P), lambda seed: steady()),
    Case(rules.fedavot(ENTROPY), lambda seed: f.fedavot(ENTROPY)),
    Case(rules.fedavot(VARIANCE), lambda seed: f.fedavot(VARIANCE)),
    Case(rules.fedavot(SOFT), lambda seed: f.fedavot(SOFT)),
    Case(rules.fedavot_online(P, step=0.7, bound=None), lambda seed: f.Online(P, step=0.7)),
    Case(rules.fedavot_select(ENTROPY, ASKED), lambda seed: f.Selected(drawn(seed))),
    Case(
        rules.fedavgm(P, server_step=1.3, server_momentum=0.7),
        lambda seed: f.Momentum(average(), step=1.3, momentum=0.7),
    ),
    Case(
        rules.fedadam(P, server_step=0.1, betas=BETAS, epsilon=0.02),
        lambda seed: f.Adam(average(), step=0.1, betas=BETAS, epsilon=0.02),
    ),
    Case(rules.fedau(P, cutoff=6), lambda seed: f.FedAU(P, cutoff=6)),
    Case(
        rules.f3ast(P, cohort_size=ASKED, smoothing=0.1),
        lambda seed: f.F3ast(P, size=ASKED, smoothing=0.1),
    ),
    Case(rules.mifa(P), lambda seed: memory.Mifa(P)),
    Case(rules.fedvarp(P), lambda seed: memory.fedvarp(P)),
    Case(
        rules.fedstale(P, INCLUSION, trust=0.6),
        lambda seed: memory.fedstale(P, INCLUSION, trust=0.6),
    ),
    Case(rules.focus(P), lambda seed: memory.Focus(P, N_PARAMETERS)),
    Case(rules.fedawe(), lambda seed: memory.FedAWE(N_CLIENTS, flat(START))),
    Case(rules.area(P), lambda seed: memory.Area(P, flat(START))),
    Case(rules.fedprox(proximal=0.8), lambda seed: f.FedProx(0.8)),
    Case(rules.scaffold(P), lambda seed: memory.Scaffold(P, N_PARAMETERS)),
    Case(
        rules.amplified_fedavg(P, period=4, amplification=1.5),
        lambda seed: memory.Amplified(memory.ScaledAverage(P), 4, 1.5),
    ),
    Case(
        rules.amplified_scaffold(P, period=5, amplification=1.3),
        lambda seed: memory.Amplified(memory.PeriodScaffold(P, N_PARAMETERS), 5, 1.3),
    ),
    Case(rules.ca_fed(P, bias=4.0), lambda seed: f.CaFed(P, bias=4.0)),
    Case(rules.qffl(P, q=1.7), lambda seed: f.Qffl(P, q=1.7)),
    Case(rules.afl(step=0.004), lambda seed: f.Afl(N_CLIENTS, step=0.004)),
]
NAMES = [case.rule.name for case in CASES]
BY_NAME = dict(zip(NAMES, CASES, strict=True))


def published(weigh, importance=P, **constants):
    """Return a member of the family with memory, with weights of its own."""
    known = Constants(trust=1.0, expires=False)._replace(**constants)
    return remembering("mifa", "", by_cohort(weigh), importance, known)


def with_aligner(softness):
    aligner = fa.OnlineAligner(P, softness=softness, step=0.7)
    weigh = functools.partial(softly, softness=softness, step=0.7)
    return Case(rules.steady(P, alignment=aligner), lambda seed: steady(weigh()))


VARIANTS = {
    "momentum after Horvitz–Thompson": Case(
        rules.with_server(rules.horvitz_thompson(P, INCLUSION), step=0.6, momentum=0.5),
        lambda seed: f.Momentum(f.horvitz_thompson(P, INCLUSION), step=0.6, momentum=0.5),
    ),
    "a server step after SCAFFOLD": Case(
        rules.with_server(rules.scaffold(P), step=0.7),
        lambda seed: f.Momentum(memory.Scaffold(P, N_PARAMETERS), step=0.7, momentum=0.0),
    ),
    "Adam after MIFA": Case(
        rules.with_adam(rules.mifa(P), step=0.05, betas=(0.0, 0.5), epsilon=0.1),
        lambda seed: f.Adam(memory.Mifa(P), step=0.05, betas=(0.0, 0.5), epsilon=0.1),
    ),
    "the steady rule with an alignment": Case(
        rules.steady(P, alignment=ENTROPY), lambda seed: steady(ENTROPY.weights)
    ),
    "the steady rule with an aligner": with_aligner(softness=0),
    "the steady rule with a soft aligner": with_aligner(softness=0.5),
    "the steady rule with a correction": Case(
        rules.steady(P, correction=0.5), lambda seed: steady(kappa=0.5, c=10.0)
    ),
    "the steady rule with constants": Case(
        rules.steady(P, damping=4.0, correction=0.6, trust=0.8),
        lambda seed: steady(kappa=0.6, c=4.0, trust=0.8),
    ),
    "a server step after the steady rule": Case(
        rules.with_server(rules.steady(P), step=0.7),
        lambda seed: f.Momentum(steady(), step=0.7, momentum=0.0),
    ),
    "memory with FedAVOT's weights": Case(
        published(ENTROPY.weights), lambda seed: memory.Memory(P, ENTROPY.weights)
    ),
    "SCAFFOLD as a member of the family": Case(
        published(lambda cohort: np.full(len(cohort), 1 / len(cohort)), EVEN, correction=1.0),
        lambda seed: memory.Scaffold(EVEN, N_PARAMETERS),
    ),
    "FedAWE as its authors run it": Case(
        rules.fedawe(clip=0.2, mean=True, server_step=0.9),
        lambda seed: memory.MeanFedAWE(N_CLIENTS, flat(START), step=0.9, clip=0.2),
    ),
    "FedAWE with a server step": Case(
        rules.fedawe(server_step=0.8),
        lambda seed: memory.FedAWE(N_CLIENTS, flat(START), step=0.8),
    ),
    "FedProx by importance": Case(
        rules.fedprox(P, proximal=0.8), lambda seed: f.FedProx(0.8, average())
    ),
    "CA²FL, whose buffer is the cohort": Case(
        rules.with_server(rules.fedvarp(EVEN), step=0.7),
        lambda seed: memory.CachedCalibration(N_CLIENTS, N_PARAMETERS, step=0.7),
    ),
    "a server step after FedProx": Case(
        rules.with_server(rules.fedprox(proximal=0.8), step=1.2),
        lambda seed: f.Momentum(f.FedProx(0.8), step=1.2, momentum=0.0),
    ),
}
"""Further ways to run the rules."""
