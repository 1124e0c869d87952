"""Logs, and files of importance and groups, as inputs of `fuzz`.

Files of every form are made, most of them spoilt, and read with options that may not fit; a share
of the logs goes through the whole command line. Every input must be refused by one of the library's
own errors, or give a log and an importance that are proper by independent checks.
"""

import numpy as np

import fedavot as fa
from attacks import log_forms
from attacks.isolation import Fault
from attacks.log_forms import some

PARQUET, COMMAND = 0.004, 0.001
"""Shares of the inputs that are Parquet, whose reader is a process, or go through everything."""
SUM_SLACK = 1e-9


def logs(folder):
    """Return the judge of logs, most of them by themselves."""
    return lambda seed, number: read(folder, *made(seed, number))


def tables(folder):
    """Return the judge of files with importance and groups, beside a log that is proper."""

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        files, options = {}, {}
        for name, make in log_forms.TABLES.items():
            if name == "importance" or rng.random() < 0.5:
                data, named = make(rng)
                files[name] = log_forms.spoilt(data, rng) if rng.random() < 0.8 else data
                options |= named
        clients = [name for name in log_forms.NAMES if rng.random() < 0.8] or ["a"]
        if rng.random() < 0.3:
            return _mapped(folder, files["importance"], clients)
        head, rows = ("round", "client"), [(1, name) for name in clients]
        return read(folder, log_forms.table(head, rows, rng), files, options, False)

    return judge


def _mapped(folder, data, clients):
    """Read a file of importance with the core alone."""
    path = folder / ("importance.json" if data.lstrip()[:1] == b"{" else "importance.csv")
    path.write_bytes(data)
    shares = fa.importance.from_mapping(fa.importance.read_mapping(path), clients)
    return "read" if _is_distribution(shares) else Fault("the importance is no distribution")


def made(seed, number):
    """Return an input by its number: the files' bytes, the options, and whether all is run."""
    rng = np.random.default_rng([seed, number])
    parquet = rng.random() < PARQUET
    form = log_forms.parquet if parquet else some(log_forms.LOGS, rng)
    log, options = form(rng)
    options = {**options, **log_forms.options(rng)}
    if rng.random() < 0.6:
        log = log_forms.mutations.flipped(log, rng) if parquet else log_forms.spoilt(log, rng)
    tables = {}
    for name, make in log_forms.TABLES.items():
        if rng.random() < 0.2:
            data, named = make(rng)
            tables[name] = log_forms.spoilt(data, rng) if rng.random() < 0.5 else data
            options["columns"] = {**options.get("columns", {}), **named.get("columns", {})}
    return log, tables, options, rng.random() < COMMAND


def read(folder, log, files, options, everything):
    """Read one input; return "read" or "audited", or a fault."""
    from fedavot.audit import federation_of, read_log

    path = folder / "log"
    path.write_bytes(log)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    paths = {name: folder / name for name in files}
    if everything:
        return _commanded(path, paths, options)
    found = read_log(path, **options)
    if wrong := _wrong_log(found):
        return Fault(wrong)
    federation = federation_of(found, **paths, columns=options.get("columns"))
    if not _is_distribution(federation.importance):
        return Fault("the importance is no distribution")
    wrong = _wrong_log(federation.participation)
    return Fault(wrong) if wrong else "read"


def _is_distribution(shares):
    return abs(shares.sum() - 1) <= SUM_SLACK and bool(np.all(shares >= 0))


def _commanded(path, paths, options):
    """Audit on the command line, and return what is wrong with how it ended."""
    from click.testing import CliRunner

    from fedavot.cli import main

    flags = {"columns": "--column", "where": "--where", "statuses": "--status"}
    arguments = ["audit", str(path), "--out", str(path.with_name("audit"))]
    arguments += [word for name, file in paths.items() for word in (f"--{name}", str(file))]
    for name, value in options.items():
        flag = flags.get(name, f"--{name.replace('_', '-')}")
        if not isinstance(value, dict):
            arguments += [flag, str(value)]
            continue
        for key, held in value.items():
            for one in held if isinstance(held, list) else [held]:
                arguments += [flag, f"{key}={one}"]
    done = CliRunner().invoke(main, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in (0, 2):
        return Fault(f"exit status {done.exit_code}")
    return "audited" if done.exit_code == 0 else "refused"


def _wrong_log(log):
    """Return what is wrong with a log, "" if it is proper."""
    offsets, times = log.offsets, log.times
    amounts = [held for held in (log.applied, log.examples) if held is not None]
    proper = {
        "clients are not distinct names": len(set(log.clients)) == log.n_clients
        and all(log.clients),
        "rounds do not fit together": offsets[0] == 0 and offsets[-1] == log.members.size,
        "a cohort is not in order": all(map(_ascends, (log.cohorts, log.available, log.unknown))),
        "times are not finite": times is None
        or (times.size == log.n_rounds and bool(np.isfinite(times).all())),
        "weights do not belong to the entries": all(
            held.size == log.n_entries and np.all(held >= 0) for held in amounts
        ),
    }
    return next((words for words, right in proper.items() if not right), "")


def _ascends(sets):
    """Return whether every cohort is ascending, and of clients that there are."""
    if sets is None:
        return True
    rows = [sets.row(t) for t in range(sets.n_cohorts)]
    inside = [
        np.all(np.diff(row) > 0) and np.all((row >= 0) & (row < sets.n_clients)) for row in rows
    ]
    return all(inside) and np.all(np.diff(sets.offsets) >= 0)
