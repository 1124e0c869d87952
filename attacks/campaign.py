"""The command line of all campaigns, and the processes in which they judge their inputs.

A judge is made by a function of a module, from a folder for its files; it is then called with a
seed and the number of an input, from which the input follows. It returns a word for what is as it
should be, or a `Fault`, in words. It is made and called in a process of its own, so that an abort,
a hang or a need for memory is found as well: if the process ends or is silent, the input it was at
is at fault, and another process goes on with the next one.
"""

import argparse
import contextlib
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

SECONDS = 20.0
"""CPU time that one input may take."""
PATIENCE = 600.0
"""Time after which a process that says nothing is taken to hang, on a machine that is busy."""
MEMORY = 6 << 30
"""Bytes that a process may map: a file of a few hundred bytes must not need more."""
CHUNK = 2000
"""Inputs that one process reads."""
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where there is a file system in memory: files are written some hundred thousand times."""
MOST_SHOWN = 20
"""Faults that a campaign prints."""


class Fault(str):
    """What is wrong, in words; words that are not a fault name an outcome."""

    __slots__ = ()


def some(values, rng):
    """Return one of the values."""
    return values[int(rng.integers(len(values)))]


def settled(judge, *arguments):
    """Return what a judge says; an error other than the library's own, or a warning, is a fault."""
    from fedavot.errors import FedavotError, FedavotWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a stray warning is as raw as an error
            warnings.simplefilter("ignore", FedavotWarning)
            return judge(*arguments)
    except FedavotError as error:
        return "refused" if str(error).strip() else Fault("refused without a word")
    except Exception as error:
        return Fault(f"raw {type(error).__name__}: {str(error)[:100]}")


def never_refused(judge):
    """Return a judge of proper problems, for whom a refusal by the library is a fault."""
    from fedavot.errors import FedavotError

    def stricter(seed, number):
        try:
            return judge(seed, number)
        except FedavotError as error:
            return Fault(f"refused: {error}")

    return stricter


def attack(make, numbers, *, seed, seconds=SECONDS):
    """Judge the inputs of these numbers; return how often what happened, and what was found."""
    counts, found = Counter(), []
    for first in range(0, len(numbers), CHUNK):
        left = list(numbers[first : first + CHUNK])
        while left:
            with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
                arguments = (make, Path(folder), seed, list(left), seconds)
                ending = _child(arguments, left, counts, found)
            if ending:
                found.append(f"input {left[0]}: {ending}")
                counts["found"] += 1
                left = left[1:]
    return counts, found


def _child(arguments, left, counts, found):
    """Let a process judge what is left; return why it stopped before the end, "" at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_judge_all, args=(theirs, *arguments))
    child.start()
    theirs.close()
    try:
        return _listen(ours, left, counts, found)
    finally:
        child.kill()
        child.join()
        ours.close()


def _judge_all(pipe, make, folder, seed, numbers, limit):
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        judge = make(folder)
        # Only now: what is imported maps a great deal that it does not use.
        mapped = 1 << 40
        if sys.platform == "linux":
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))
        for number in numbers:
            begin = time.process_time()
            outcome = settled(judge, seed, number)
            seconds = time.process_time() - begin
            if seconds > limit:
                outcome = Fault(f"{seconds:.0f} s of CPU")
            pipe.send((number, isinstance(outcome, Fault), str(outcome)))
    pipe.send(None)


def _listen(pipe, left, counts, found):
    """Count what a process reports; return why it stopped before the end, "" at the end."""
    while pipe.poll(PATIENCE):
        try:
            report = pipe.recv()
        except EOFError:
            return "the process ended"
        if report is None:
            return ""
        number, faulty, outcome = report
        left.remove(number)
        counts["found" if faulty else outcome] += 1
        if faulty:
            found.append(f"input {number}: {outcome}")
    return f"no answer in {PATIENCE:.0f} s"


def parser(name, description):
    """Return the parser of a campaign's command line, which prints the module's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m attacks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def main(name, description, entries, arguments=None):
    """Run a campaign from the command line; return 1 if it found anything.

    Parameters
    ----------
    name, description : str
        The module, and its docstring.
    entries : mapping from str to (function, int)
        How the judge of every entry is made, and how many inputs it gets by default.
    arguments : list of str, optional
        Those of the command line by default.
    """
    options = parser(name, description)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--inputs", type=int, help="for each entry; else as many as it deserves")
    options.add_argument("--entry", action="append", choices=entries, help="repeatable; else all")
    options.add_argument("--only", type=int, help="the number of one input")
    options = options.parse_args(arguments)
    print(f"{'entry':<16} {'inputs':>8} {'found':>6} {'wall s':>7}  outcomes")
    every, total = [], 0
    for entry in options.entry or entries:
        make, count = entries[entry]
        count = count if options.inputs is None else options.inputs
        numbers = range(count) if options.only is None else [options.only]
        begin = time.monotonic()
        counts, found = attack(make, numbers, seed=options.seed)
        seconds = time.monotonic() - begin
        n_found = counts.pop("found", 0)
        others = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        print(f"{entry:<16} {len(numbers):>8,} {n_found:>6,} {seconds:>7.0f}  {others}", flush=True)
        every += [f"{entry}: {line}" for line in found]
        total += len(numbers)
    return verdict(every, f"{total:,} inputs")


def verdict(found, summary):
    """Print the first faults and a summary; return the exit status of the campaign."""
    for line in found[:MOST_SHOWN]:
        print(line)
    print(f"{summary}, {len(found):,} found")
    return 1 if found else 0
