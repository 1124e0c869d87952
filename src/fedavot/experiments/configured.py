"""The setting that a checked configuration describes.

Everything is built before anything runs: data (by `configured_task`), importance, law, alignments,
rules. What a constructor refuses becomes a `ConfigError` that names the key.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, refuse_if_too_large, shown
from fedavot._clients import Clients
from fedavot.errors import OptionError
from fedavot.experiments.config import Config
from fedavot.experiments.configured_task import task_of
from fedavot.experiments.inputs import read_importance, read_rounds
from fedavot.experiments.keys import SEEDS
from fedavot.experiments.study import Instance, Setting
from fedavot.importance import by_examples
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.successive import SuccessiveDraws
from fedavot.laws.uniform import UniformCohorts
from fedavot.rules import Known, Rule, build
from fedavot.training import (
    Ball,
    Box,
    Problem,
    Projection,
    Task,
    Training,
    constant,
    cosine,
    decaying,
    inverse_root,
)
from fedavot.training.tasks.linear import least_squares_optimum, mean_square
from fedavot.training.tasks.nonsmooth import (
    hinge_optimum,
    lad_optimum,
    mean_deviation,
    mean_hinge,
)

_SCHEDULES = {"constant": constant, "inverse-root": inverse_root, "cosine": cosine}
_OPTIMA: dict[Any, Any] = {
    mean_square: least_squares_optimum,
    mean_deviation: lad_optimum,
    mean_hinge: hinge_optimum,
}
"""The minimum of the objective, by the task's loss."""
_LARGEST_PROGRAM = 100_000
"""Entries of the features up to which a linear program takes seconds."""
_BYTES_A_ROUND, _BYTES_A_MEMBER = 100, 20
"""Memory of a round: an array, and each member's index and weight."""


def setting_of(config: Config, *, seeds: int | Sequence[int] | None = None) -> Setting:
    """Build the one setting of a configured study.

    Parameters
    ----------
    config : Config
        From `read_config`.
    seeds : int or sequence of int, optional
        Used instead of the file's seeds: a count, or the seeds themselves.
    """
    chosen = as_seeds(config.training["seeds"] if seeds is None else seeds)
    training = training_of(config, chosen)
    task = task_of(config)
    _refuse_large_batches(config, task)
    importance = importance_of(config, task)
    law = law_of(config, Clients(task.n_clients, task.clients))
    _refuse_long_runs(config, law, len(chosen))
    with config.at("task"):
        optimum = optimum_of(task, importance, training.projection)
    instance = Instance(Problem(task, importance, law.sample), chosen, optimum)
    return Setting(
        config.name,
        (instance,),
        rules_of(config, importance, law),
        training,
        tail=config.training["tail"] or max(training.rounds // 4, 1),
        inclusion=law.inclusion(),
        target=config.training["target"],
    )


def as_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds given as a count or a list.

    Parameters
    ----------
    seeds : int or sequence of int
        A count n stands for 0..n−1.
    """
    given = seeds if isinstance(seeds, int) else list(seeds)
    if not SEEDS.accepts(given):
        raise OptionError(f"seeds is {shown(given)}; it must be {SEEDS.words}")
    return tuple(range(given)) if isinstance(given, int) else tuple(given)


def importance_of(config: Config, task: Task) -> Floats:
    """Return the importance of the task's clients, shape (n_clients,)."""
    with config.at("importance"):
        return by_examples(_unnormalised(config, task))


def _unnormalised(config: Config, task: Task) -> Floats | Integers:
    """Return numbers that the importance is proportional to, shape (n_clients,)."""
    options, n_clients = config.importance, task.n_clients
    rank = np.arange(n_clients)
    match options["kind"]:
        case "by-examples" if task.counts is not None:
            return task.counts
        case "linear" | "power":
            return np.asarray((1.0 - rank / n_clients) ** options.get("exponent", 1.0))
        case "exponential":
            with np.errstate(over="ignore"):  # the shares of the last clients are then 0
                return np.asarray(np.exp(-rank / options["scale"]))
        case "file":
            with config.at("importance.file"):
                return read_importance(config.file("importance"), Clients(n_clients, task.clients))
        case "values":
            return _one_each(config, "importance.values", n_clients)
    return np.ones(n_clients)


def law_of(config: Config, clients: Clients) -> Law:
    """Return the availability law of the clients."""
    options, n_clients, names = config.availability, clients.count, clients.names
    match options["law"]:
        case "uniform-cohorts":
            with config.at("availability.cohort_size"):
                return UniformCohorts(n_clients, options["cohort_size"], clients=names)
        case "independent":
            with config.at("availability.probabilities"):
                chances = _one_each(config, "availability.probabilities", n_clients)
                return IndependentClients(chances, clients=names)
        case "successive-draws":
            with config.at("availability.rates"):
                rates = _one_each(config, "availability.rates", n_clients)
                return SuccessiveDraws(rates, options["cohort_size"], clients=names)
    with config.at("availability.file"):
        rounds = read_rounds(config.file("availability"), clients)
        return Cohorts(rounds, n_clients=n_clients, clients=names)


def _one_each(config: Config, where: str, n_clients: int) -> Floats:
    """Return one number per client: as listed, all equal, or linear from low to high."""
    section, _, key = where.partition(".")
    options = getattr(config, section)
    if options[key] == "linear":
        return np.linspace(options["low"], options["high"], n_clients)
    if not isinstance(options[key], list):
        return np.full(n_clients, float(options[key]))
    values = np.array(options[key], dtype=np.float64)
    if values.size != n_clients:
        raise config.error(
            where, f"has {values.size} entries, but the task has {n_clients} clients"
        )
    return values


def training_of(config: Config, seeds: tuple[int, ...]) -> Training:
    """Return the options of training."""
    options = config.training
    with config.at("training"):
        if options["schedule"] == "decaying":
            step = decaying(options["step"], options["halved_after"])
        else:
            step = _SCHEDULES[options["schedule"]](options["step"])
        projection: Projection | None = None
        if options["projection"] == "ball":
            projection = Ball(options["radius"])
        elif options["projection"] == "box":
            projection = Box(options["low"], options["high"])
        return Training(
            options["rounds"],
            step,
            local_steps=options["local_steps"],
            batch_size=options["batch_size"],
            projection=projection,
            seeds=seeds,
            record_every=options["record_every"],
        )


def _refuse_large_batches(config: Config, task: Task) -> None:
    size = config.training["batch_size"]
    counts = np.array([task.n_examples]) if task.counts is None else task.counts
    client = int(counts.argmin())
    if size is not None and size > counts[client]:
        raise config.error(
            "training.batch_size",
            f"is {size}, and client {task.label(client)} has {counts[client]} examples; it must "
            f"be at most {counts[client]}, or left out to use all of a client's",
        )


def _refuse_long_runs(config: Config, law: Law, n_seeds: int) -> None:
    size = float(law.inclusion().sum())
    with config.at("training.rounds"):
        refuse_if_too_large(
            config.training["rounds"] * n_seeds * (_BYTES_A_ROUND + _BYTES_A_MEMBER * size),
            what=f"{config.training['rounds']:,} rounds of {n_seeds} seeds",
            remedy="run fewer rounds or seeds",
        )


def rules_of(config: Config, importance: Floats, law: Law) -> tuple[Rule, ...]:
    """Return the rules, which know the law if the configuration says so."""
    told = config.availability["known"]
    known = Known(importance, law if told else None, allow_unconverged=config.allow_unconverged)
    rules = []
    for number, options in enumerate(config.rules):
        where = f"rules[{number}]"
        with config.at(where if told else f"{where}, with availability.known = false"):
            rules.append(build(**{**options, "known": known}))
    return tuple(rules)


def optimum_of(task: Task, importance: Floats, projection: Projection | None) -> float | None:
    """Return the least value of the objective over the models allowed, None if not known.

    Parameters
    ----------
    task : Task
        The optima of least squares, absolute deviations and the hinge loss can be computed; those
        of the last two only where the linear program is of moderate size.
    importance : array of shape (n_clients,)
        A distribution over the clients.
    projection : Projection or None
        The set that models are kept in. Where the global minimiser lies outside, the least value
        within is known only for absolute deviations and the hinge loss in a box around zero.
    """
    if task.loss not in _OPTIMA or _too_long(task):
        return None
    solve = _OPTIMA[task.loss]
    params, value = solve(task, importance)
    if _holds(projection, params):
        return float(value)
    if task.loss is not mean_square and isinstance(projection, Box):
        if projection.low != -projection.high:
            return None
        return float(solve(task, importance, radius=projection.high)[1])
    return None


def _too_long(task: Task) -> bool:
    """Return whether the optimum would take longer than the study."""
    return task.loss is not mean_square and np.size(task.data[0]) > _LARGEST_PROGRAM


def _holds(projection: Projection | None, params: Floats) -> bool:
    """Return whether a model is in the set."""
    if isinstance(projection, Ball):
        return bool(np.linalg.norm(params) <= projection.radius)
    if isinstance(projection, Box):
        return bool(((params >= projection.low) & (params <= projection.high)).all())
    return projection is None
