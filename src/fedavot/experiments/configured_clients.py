"""The clients of a configured study: how much each counts, its group, and when it is available.

Files with importance, groups and participation are those of an audit, and read by `fedavot.audit`.
They name the clients; those of a task without names are called by their numbers from 0, or as in
the log, where that has other names.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers, as_amount, as_floats, as_seed
from fedavot._clients import Clients
from fedavot.errors import ConfigError, OptionError
from fedavot.experiments.config import Config, Table, at
from fedavot.importance import from_mapping
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture
from fedavot.laws.successive import SuccessiveDraws
from fedavot.laws.uniform import UniformCohorts
from fedavot.training import Task
from fedavot.training.task import Availability

READ_LOG = (
    *("columns", "where", "statuses", "dates"),
    *("period", "cohort_size", "state", "observed", "seed"),
)
"""Keys of a log that are options of `fedavot.audit.read_log`."""


class Importance(NamedTuple):
    """How much each client counts, the groups' names, and each client's group by position."""

    shares: Floats
    groups: tuple[str, ...] = ()
    group_of: Integers = np.zeros(0, np.int64)

    def by_group(self) -> dict[str, Floats]:
        """Return the importance within each group; equal in a group that has none."""
        found = {}
        for number, group in enumerate(self.groups):
            inside = self.group_of == number
            own = np.where(inside, self.shares if self.shares[inside].any() else 1.0, 0.0)
            found[group] = own / own.sum()
        return found


class Rounds(NamedTuple):
    """Who takes part: the law that rules may know, how rounds follow one another, and notes."""

    law: Law
    sample: Availability
    notes: tuple[str, ...] = ()


def read_log_of(config: Config) -> Any:
    """Return the participation log that the configuration names, None if it names none."""
    options = config.availability
    if options["law"] != "log":
        return None
    from fedavot.audit import read_log

    given = {name: options[name] for name in READ_LOG if options[name] is not None}
    if "observed" in given:
        given["observed"] = config.file("availability.observed", given["observed"])
    with at("availability"):
        as_seed(options["seed"])
    with at("availability.file"):
        return read_log(config.file("availability.file", options["file"]), **given)


def roster_of(config: Config, log: Any) -> tuple[str, ...]:
    """Return the clients that a log and the files of importance name, in order."""
    files = _files(config)
    return tuple(_federation(config, files, log).participation.clients if files else log.clients)


def named(task: Task, roster: Sequence[str]) -> Task:
    """Return the task with the roster's names for its clients, where it has none of its own."""
    if task.clients is not None or set(roster) <= set(_names(task)):
        return task
    if len(roster) != task.n_clients:
        raise ConfigError(
            f"availability.file and the importance have {len(roster):,} clients, such as "
            f"{roster[0]!r}, and the task {task.n_clients:,}; set task.n_clients = {len(roster)}, "
            "or name the clients of the examples"
        )
    return dataclasses.replace(task, clients=roster)


def importance_of(config: Config, task: Task) -> Importance:
    """Return the importance of the task's clients, and their groups if a file gives them."""
    shares: Floats | None = None
    if config.importance["kind"] not in ("file", "groups"):
        with at("importance"):
            numbers = _unnormalised(config.importance, task)
            shares = from_mapping(dict(zip(_names(task), numbers, strict=True)), _names(task))
    files = _files(config)
    if shares is not None and not files:
        return Importance(shares)
    from fedavot.audit import Participation

    clients = Clients(task.n_clients, _names(task))
    nobody = Participation(_names(task), np.zeros(1, np.int64), np.zeros(0, np.int32))
    found = _federation(config, files, nobody)
    extra = [name for name in found.participation.clients if name not in clients.by_name]
    if extra:
        raise ConfigError(
            f"importance has a client without examples, {clients.nearest(extra[0])}; remove it, or "
            "give it examples"
        )
    return Importance(found.importance if shares is None else shares, found.groups, found.group_of)


def _files(config: Config) -> dict[str, Path]:
    return {
        key: config.file(f"importance.{key}", config.importance[key])
        for key in ("file", "groups", "targets")
        if isinstance(config.importance.get(key), str)
    }


def _federation(config: Config, files: dict[str, Path], log: Any) -> Any:
    """Return a log with the importance and the groups that files give its clients."""
    from fedavot.audit import federation_of

    options = config.importance
    given: dict[str, Any] = {"groups": files.get("groups")}
    if options["kind"] == "file":
        given |= {"importance": files["file"], "unlisted": options["unlisted"]}
    elif options["kind"] == "groups":
        targets = files.get("targets", options["targets"])
        given |= {"targets": targets, "unlisted": options["unlisted"]}
    with at("importance"):
        return federation_of(log, **given)


def _names(task: Task) -> tuple[str, ...]:
    return tuple(task.clients or map(str, range(task.n_clients)))


def _unnormalised(options: Table, task: Task) -> Floats | Integers:
    """Return numbers that the importance is proportional to, shape (n_clients,)."""
    n_clients = task.n_clients
    rank = np.arange(n_clients)
    match options["kind"]:
        case "by-examples" if task.counts is not None:
            return task.counts
        case "linear" | "power":
            power = as_amount(options.get("exponent", 1.0), what="exponent")
            return np.asarray((1.0 - rank / n_clients) ** power)
        case "exponential":
            with np.errstate(over="ignore"):  # the shares of the last clients are then 0
                scale = as_amount(options["scale"], what="scale", positive=True)
                return np.asarray(np.exp(-rank / scale))
        case "values":
            return _one_each(options, "values", n_clients)
    return np.ones(n_clients)


def availability_of(config: Config, clients: Clients, log: Any) -> Rounds:
    """Return who takes part: by a law, or as a log says, in its order or shuffled."""
    options = config.availability
    if log is None:
        law = _law(options, "availability", clients)
        return Rounds(law, law.sample)
    with at("availability.file"):
        known = Clients(clients.count, clients.names or tuple(map(str, range(clients.count))))
        members = known.indices(log.clients, what="the log")[log.members]
        rounds = np.split(members, log.offsets[1:-1])
        present = [cohort.tolist() for cohort in rounds if cohort.size]
        law = Cohorts(present, n_clients=clients.count, clients=clients.names)
    notes = [*log.notes]
    if options["order"] == "shuffled":
        return Rounds(law, law.sample, _sentences(notes))
    if (asked := config.training["rounds"]) > len(rounds):
        again = (asked - 1) // len(rounds)
        notes.append(
            f"the log has {len(rounds):,} rounds: after the last of them, training starts again "
            f"with the first, {again:,} time{'s' * (again > 1)} in {asked:,} rounds"
        )

    def replayed(rng: np.random.Generator, count: int) -> list[Integers]:
        return [rounds[number % len(rounds)] for number in range(count)]

    return Rounds(law, replayed, _sentences(notes))


def _sentences(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{note[:1].upper()}{note[1:]}." for note in notes)


def _law(options: Table, where: str, clients: Clients) -> Law:
    count, names = clients.count, clients.names
    match options["law"]:
        case "uniform-cohorts":
            with at(f"{where}.cohort_size"):
                return UniformCohorts(count, options["cohort_size"], clients=names)
        case "independent":
            with at(f"{where}.probabilities"):
                return IndependentClients(_one_each(options, "probabilities", count), clients=names)
        case "successive-draws":
            with at(f"{where}.rates"):
                rates = _one_each(options, "rates", count)
                return SuccessiveDraws(rates, options["cohort_size"], clients=names)
    places = [f"{where}.states[{number}]" for number in range(len(options["states"]))]
    states = list(zip(options["states"], places, strict=True))
    laws = [_law(state, place, clients) for state, place in states]
    with at(f"{where}.states"):
        return Mixture(laws, [state["probability"] for state, _ in states], clients=names)


def _one_each(options: Table, key: str, count: int) -> Floats:
    """Return one number per client: as listed, all equal, or linear from low to high."""
    given = options[key]
    if given == "linear":
        return np.linspace(float(options["low"]), float(options["high"]), count)
    if not isinstance(given, list):
        return np.full(count, float(given))
    if len(given) != count:
        raise OptionError(f"{key} has {len(given)} entries, but the task has {count} clients")
    return as_floats(given, what=key, error=OptionError, item="client")
