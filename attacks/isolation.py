"""Judge inputs in processes of their own, so that aborts, hangs and memory are found as well.

A judge is made in the child by a function of a module, from a folder for its files; it is then
called with a seed and the number of an input. It returns a word for what is as it should be, or a
`Fault`, in words. A child reads many inputs; if it ends, or is silent, the input it was at is at
fault, and another child goes on with the next one.
"""

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
PATIENCE = 180.0
"""Time after which a process that says nothing is taken to hang, on a machine that is busy."""
MEMORY = 6 << 30
"""Bytes that a child may map: a file of a few hundred bytes must not need more."""
CHUNK = 2000
"""Inputs that one process reads."""
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where there is a file system in memory: files are written some hundred thousand times."""


MOST_SHOWN = 20
"""Faults that a campaign prints."""


class Fault(str):
    """What is wrong, in words; words that are not a fault name an outcome."""

    __slots__ = ()


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


def attack(make, numbers, *, seed):
    """Judge the inputs of these numbers.

    Parameters
    ----------
    make : function of a folder
        Returns a judge, a function of a seed and a number.
    numbers : sequence of int
        Which inputs to judge.
    seed : int
        What the inputs follow from, together with their numbers.

    Returns
    -------
    tuple of (Counter, list of str)
        How often what happened, and what was found.
    """
    counts, found = Counter(), []
    for first in range(0, len(numbers), CHUNK):
        left = list(numbers[first : first + CHUNK])
        while left:
            with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
                ending = _child(make, Path(folder), seed, left, (counts, found))
            if ending:
                found.append(f"input {left[0]}: {ending}")
                counts["found"] += 1
                left = left[1:]
    return counts, found


def _child(make, folder, seed, left, results):
    """Let a process judge what is left; return why it stopped before the end, "" at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_judge_all, args=(theirs, make, folder, seed, list(left)))
    child.start()
    theirs.close()
    try:
        return _listen(ours, left, *results)
    finally:
        child.kill()
        child.join()
        ours.close()


def _judge_all(pipe, make, folder, seed, numbers):
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        judge = make(folder)
        # Only now: what is imported maps a great deal that it does not use.
        used = _mapped()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        for number in numbers:
            begin = time.process_time()
            outcome = settled(judge, seed, number)
            seconds = time.process_time() - begin
            if seconds > SECONDS:
                outcome = Fault(f"{seconds:.0f} s of CPU")
            pipe.send((number, isinstance(outcome, Fault), str(outcome)))
    pipe.send(None)


def _mapped():
    """Return the bytes that this process maps."""
    if sys.platform != "linux":
        return 1 << 40
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _listen(pipe, left, counts, found):
    """Count what a process reports; return why it stopped before the end, "" at the end."""
    while pipe.poll(PATIENCE):
        try:
            said = pipe.recv()
        except EOFError:
            return "the process ended"
        if said is None:
            return ""
        number, faulty, outcome = said
        left.remove(number)
        counts["found" if faulty else outcome] += 1
        if faulty:
            found.append(f"input {number}: {outcome}")
    return f"no answer in {PATIENCE:.0f} s"


def verdict(found, summary):
    """Print the first faults and a summary; return the exit status of the campaign."""
    for line in found[:MOST_SHOWN]:
        print(line)
    print(f"{summary}, {len(found):,} found")
    return 1 if found else 0
