"""Attack every kind of saved file with mutations and flipped bits.

    python -m attacks.files --seed 0 --mutations 50000 --flips 20000 [KIND ...]

Every file is mutated so often and has so many single bits flipped. Reading it must raise one of the
library's own errors or give an equal object, to the bit. Where a mutation was sealed again, or the
file claims to be from before there were checksums, it may also give another object that is a proper
one by independent checks (`saved_files`). Anything else is found: it is printed, with the number
that reproduces it, and the exit status is 1.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections import Counter

import numpy as np

from attacks import mutations
from attacks.saved_files import MAKERS, kinds, plain
from fedavot.errors import FedavotError, FedavotWarning

MANGLED = 0.2
"""Share of the mutations that are of bytes, not of structure."""
MOST_SHOWN = 10
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where there is a file system in memory: files are written some hundred thousand times."""


def attack(kind, *, seed, n_mutations, n_flips):
    """Attack one kind of file; return how often what happened, and what was found."""
    good = plain(kind.read(kind.data))
    counts, found = Counter(), []
    for number in range(n_mutations + n_flips):
        rng = np.random.default_rng([seed, number])
        way, (data, seal) = "mutation", (b"", "kept")
        if number >= n_mutations:
            way, data = "flip", mutations.flipped(kind.data, rng)
        elif rng.random() < MANGLED:
            data = mutations.mangled(kind.data, rng)
        else:
            data, seal = kind.mutate(kind.data, rng)
        outcome = judged(kind, data, good, careful=seal != "kept")
        counts[way, outcome] += 1
        if outcome not in ("refused", "equal", "proper"):
            counts[way, "found"] += 1
            found.append(f"{kind.name}: {way} {number} ({seal}): {outcome}")
    return counts, found


def judged(kind, data, good, *, careful):
    """Read bytes and return "refused", "equal", "proper", or what is wrong in words."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a stray warning is as raw as an error
            warnings.simplefilter("ignore", FedavotWarning)
            read = kind.read(data)
    except FedavotError:
        return "refused"
    except Exception as error:
        return f"raw {type(error).__name__}: {str(error)[:100]}"
    if plain(read) == good:
        return "equal"
    if not careful:
        return "another object"
    try:
        return "proper" if kind.sound(read) else "no proper object"
    except Exception as error:
        return f"no proper object, {type(error).__name__}: {str(error)[:100]}"


def main(arguments=None):
    """Attack the kinds asked for, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m attacks.files", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(MAKERS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=50_000, help="for each kind")
    parser.add_argument("--flips", type=int, default=20_000, help="for each kind")
    options = parser.parse_args(arguments)
    unknown = set(options.kinds) - set(MAKERS)
    if unknown:
        parser.error(f"there is no kind {min(unknown)!r}")
    columns = ("kind", "bytes", "mutations", "refused", "equal", "proper", "flips", "refused")
    print(
        f"{columns[0]:<16}", *(f"{name:>9}" for name in (*columns[1:], "equal", "found", "CPU s"))
    )
    all_found = []
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        for kind in kinds(folder, options.kinds):
            begin = time.process_time()
            counts, found = attack(
                kind, seed=options.seed, n_mutations=options.mutations, n_flips=options.flips
            )
            print(_row(kind, options, counts, time.process_time() - begin), flush=True)
            all_found += found
    for line in all_found[:MOST_SHOWN]:
        print(line)
    print(f"{len(all_found)} found")
    return 1 if all_found else 0


def _row(kind, options, counts, seconds):
    cells = (
        len(kind.data),
        *(options.mutations, counts["mutation", "refused"], counts["mutation", "equal"]),
        counts["mutation", "proper"],
        *(options.flips, counts["flip", "refused"], counts["flip", "equal"]),
        counts["mutation", "found"] + counts["flip", "found"],
    )
    return " ".join([f"{kind.name:<16}", *(f"{cell:>9}" for cell in cells), f"{seconds:>9.1f}"])


if __name__ == "__main__":
    sys.exit(main())
