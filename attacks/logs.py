"""Attack the reading of logs and of importance, groups and shares.

    python -m attacks.logs --seed 0 --inputs 50000

Files of every form are made, most of them spoilt, and read with options that may not fit; a share
of them goes through the whole command line. Every input must be refused by one of the library's own
errors, or give a log that is proper by independent checks, within 20 seconds. Inputs are read in a
process of their own, so that one that ends the process, or does not come back, is found as well.
Anything else is printed with its number, which reproduces it: `--only 17`.
"""

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from attacks import log_forms
from attacks.log_forms import some

SECONDS = 20.0
"""CPU time that one input may take."""
PATIENCE = 180.0
"""Time after which a process that says nothing is taken to hang, on a machine that is busy."""
PARQUET, COMMAND = 0.004, 0.001
"""Shares of the inputs that are Parquet, whose reader is a process, or go through everything."""
CHUNK = 2000
"""Inputs that one process reads."""
MOST_SHOWN = 20
SUM_SLACK = 1e-9
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


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


def judged(folder, seed, number):
    """Read one input and return "read", "refused", or what is wrong in words."""
    from fedavot.audit import federation_of, read_log
    from fedavot.errors import FedavotError

    log, tables, options, everything = made(seed, number)
    path = Path(folder) / "log"
    path.write_bytes(log)
    for name, data in tables.items():
        (Path(folder) / name).write_bytes(data)
    paths = {name: Path(folder) / name for name in tables}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if everything:
                return _commanded(path, paths, options)
            found = read_log(path, **options)
            if wrong := _wrong_log(found):
                return wrong
            federation = federation_of(found, **paths, columns=options.get("columns"))
    except FedavotError as error:
        return "refused" if str(error).strip() else "refused without a word"
    except Exception as error:
        return f"raw {type(error).__name__}: {str(error)[:100]}"
    total = federation.importance.sum()
    if not abs(total - 1) <= SUM_SLACK or np.any(federation.importance < 0):
        return "the importance is no distribution"
    return _wrong_log(federation.participation) or "read"


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
        return f"raw {type(done.exception).__name__} in the command: {str(done.exception)[:100]}"
    if done.exit_code not in (0, 2):
        return f"exit status {done.exit_code}"
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


def _read_all(pipe, folder, seed, numbers):
    """Read inputs in a process of its own, and say what came of each."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        for number in numbers:
            begin = time.process_time()
            outcome = judged(folder, seed, number)
            seconds = time.process_time() - begin
            pipe.send((number, f"{seconds:.0f} s of CPU" if seconds > SECONDS else outcome))
    pipe.send(None)


def attack(numbers, *, seed):
    """Read the inputs of these numbers; return how often what happened, and what was found."""
    context = multiprocessing.get_context("spawn")
    counts, found, left = Counter(), [], list(numbers)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        while left:
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_read_all, args=(theirs, folder, seed, left))
            child.start()
            theirs.close()
            outcome = _listen(ours, left, counts, found)
            if outcome:
                found.append(f"input {left[0]}: {outcome}")
                counts["found"] += 1
                left = left[1:]
            child.kill()
            child.join()
            ours.close()
    return counts, found


def _listen(pipe, left, counts, found):
    """Count what a process reports; return why it stopped before the end, "" at the end."""
    while pipe.poll(PATIENCE):
        try:
            said = pipe.recv()
        except EOFError:
            return "the process ended"
        if said is None:
            return ""
        number, outcome = said
        left.remove(number)
        fine = outcome in ("read", "refused", "audited")
        counts[outcome if fine else "found"] += 1
        if not fine:
            found.append(f"input {number}: {outcome}")
    return f"no answer in {PATIENCE:.0f} s"


def main(arguments=None):
    """Attack with so many inputs, and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m attacks.logs", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=50_000)
    parser.add_argument("--only", type=int, help="the number of one input to read")
    options = parser.parse_args(arguments)
    numbers = range(options.inputs) if options.only is None else [options.only]
    begin = time.monotonic()
    counts, found = Counter(), list[str]()
    for first in range(0, len(numbers), CHUNK):
        more, wrong = attack(numbers[first : first + CHUNK], seed=options.seed)
        counts, found = counts + more, found + wrong
        print(f"{counts.total():,} inputs, {counts['found']:,} found", file=sys.stderr, flush=True)
    if options.only is not None:
        print(made(options.seed, options.only))
    for line in found[:MOST_SHOWN]:
        print(line)
    parts = ", ".join(
        f"{counts[name]:,} {name}" for name in ("refused", "read", "audited", "found")
    )
    print(f"{len(numbers):,} inputs in {time.monotonic() - begin:.0f} s: {parts}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
