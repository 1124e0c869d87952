"""The setting that a checked configuration describes.

Everything is built before anything runs: data (by `configured_task`), importance and availability
(by `configured_clients`), alignments and rules. What a constructor refuses becomes a `ConfigError`
that names the key.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats, as_size, refuse_if_too_large
from fedavot._clients import Clients
from fedavot.errors import ConfigError
from fedavot.experiments.config import Config, at, in_file
from fedavot.experiments.configured_clients import (
    availability_of,
    importance_of,
    named,
    read_log_of,
    roster_of,
)
from fedavot.experiments.configured_task import tasks_of
from fedavot.experiments.study import Instance, Setting
from fedavot.laws._law import Law
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
from fedavot.training.engine import check_batches, precision
from fedavot.training.tasks.linear import mean_deviation, mean_hinge, mean_square, optimum

_SCHEDULES: dict[str, Any] = {
    "constant": constant,
    "inverse-root": inverse_root,
    "decaying": decaying,
    "cosine": cosine,
}
MOST_SEEDS = 1000
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
    given = None if seeds is None else as_seeds(seeds)
    with in_file(config.path):
        return _setting(config, given)


def _setting(config: Config, given: tuple[int, ...] | None) -> Setting:
    with at("training"):
        listed = as_seeds(config.training["seeds"]) if given is None else given
        training = training_of(config, listed)
        seeds, tail = tuple(training.seeds), config.training["tail"]
        if tail is not None:
            as_size(tail, what="tail", low=1, high=training.rounds)
    log = read_log_of(config)
    roster = () if log is None else roster_of(config, log)
    task, test = tasks_of(config, len(roster))
    task = named(task, roster)
    with at("training.batch_size"):
        check_batches(task, training.batch_size)
    importance = importance_of(config, task)
    rounds = availability_of(config, Clients(task.n_clients, task.clients), log)
    _refuse_long_runs(training, rounds.law)
    with at("task"):
        least = least_of(task, importance.shares, training.projection)
    problem = Problem(task, importance.shares, rounds.sample)
    return Setting(
        config.name,
        (Instance(problem, seeds, least, test),),
        rules_of(config, importance.shares, rounds.law),
        training,
        tail=tail or max(training.rounds // 4, 1),
        inclusion=rounds.law.inclusion(),
        target=config.training["target"],
        groups=importance.by_group(),
        notes=rounds.notes,
    )


def as_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return seeds given as a list, or as a count n for 0..n−1."""
    if not isinstance(seeds, int):
        return tuple(seeds)
    return tuple(range(as_size(seeds, what="seeds", low=1, high=MOST_SEEDS)))


def training_of(config: Config, seeds: tuple[int, ...]) -> Training:
    """Return the options of training."""
    options = config.training
    halved = [options["halved_after"]] if options["schedule"] == "decaying" else []
    projection: Projection | None = None
    if options["projection"] == "ball":
        projection = Ball(options["radius"])
    elif options["projection"] == "box":
        projection = Box(options["low"], options["high"])
    return Training(
        options["rounds"],
        _SCHEDULES[options["schedule"]](options["step"], *halved),
        projection=projection,
        seeds=seeds,
        **{name: options[name] for name in ("local_steps", "batch_size", "record_every")},
    )


def _refuse_long_runs(training: Training, law: Law) -> None:
    size, n_seeds = float(law.inclusion().sum()), len(training.seeds)
    with at("training.rounds"):
        refuse_if_too_large(
            training.rounds * n_seeds * (_BYTES_A_ROUND + _BYTES_A_MEMBER * size),
            what=f"{training.rounds:,} rounds of {n_seeds} seeds",
            remedy="run fewer rounds or seeds",
        )


def rules_of(config: Config, importance: Floats, law: Law) -> tuple[Rule, ...]:
    """Return the rules, which know the law if the configuration says so."""
    told = config.availability["known"]
    known = Known(importance, law if told else None, allow_unconverged=config.allow_unconverged)
    rules = []
    for number, options in enumerate(config.rules):
        where = f"rules[{number}]"
        if "known" in options:
            raise ConfigError(f"{where}.known is unknown (it belongs in [availability])")
        with at(where if told else f"{where}, with availability.known = false"):
            rules.append(build(known=known, **options))
    return tuple(rules)


def least_of(task: Task, importance: Floats, projection: Projection | None) -> float | None:
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
        within is known only for a box around zero.
    """
    if task.loss not in (mean_square, mean_deviation, mean_hinge):
        return None
    if task.loss is not mean_square and np.size(task.data[0]) > _LARGEST_PROGRAM:
        return None
    params, least = optimum(task, importance)
    with precision(task):  # a model is in the set if its projection is where it was
        if projection is None or np.allclose(projection(params), params):
            return least
    if isinstance(projection, Box) and projection.low == -projection.high:
        return optimum(task, importance, radius=projection.high)[1]
    return None
