"""Read outside data of every kind, most of it damaged, edited or made up.

    python -m attacks.fuzz --inputs 200000 --seed 0 [--entry log --entry reply ...]

Inputs are derived from valid ones: flipped bits, bytes cut off, moved or overwritten, values of
another type, huge numbers, NaN, deep nesting, wrong shapes, odd names.
Each must be refused by one of the library's own errors, or give what independent checks find
proper, without a warning, within 20 CPU seconds and 6 GB. Inputs are read in processes of their
own, so that one that ends the process, or does not come back, is found as well. What is found is
printed with its number, which reproduces it: `--entry log --only 17`. The exit status is then 1.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from attacks import configs, folders, logs, replies
from attacks.isolation import attack, verdict
from attacks.saved_files import MAKERS, saved

ENTRIES: dict[str, tuple[Callable[..., Any], int]] = {
    "log": (logs.logs, 4),
    "importance": (logs.tables, 4),
    "config": (configs.configs, 4),
    "examples": (configs.examples, 2),
    "digits": (configs.digits, 2),
    **{name: (functools.partial(saved, kind=name), 1) for name in MAKERS},
    "reply": (replies.replies, 4),
    "folder": (folders.folders, 2),
}
"""How the judge of every entry is made, and its share of the inputs, of all shares."""


def main(arguments=None):
    """Read so many inputs of the entries asked for, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m attacks.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=200_000, help="over all entries")
    parser.add_argument("--entry", action="append", choices=ENTRIES, help="repeatable; else all")
    parser.add_argument("--only", type=int, help="the number of one input to read")
    options = parser.parse_args(arguments)
    chosen = options.entry or list(ENTRIES)
    whole = sum(ENTRIES[name][1] for name in chosen)
    print(f"{'entry':<16} {'inputs':>8} {'found':>6} {'wall s':>7}  outcomes")
    all_found, total = [], 0
    for name in chosen:
        make, share = ENTRIES[name]
        numbers = range(-(-options.inputs * share // whole))
        numbers = numbers if options.only is None else [options.only]
        begin = time.monotonic()
        counts, found = attack(make, numbers, seed=options.seed)
        seconds = time.monotonic() - begin
        n_found = counts.pop("found", 0)
        others = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        print(f"{name:<16} {len(numbers):>8,} {n_found:>6,} {seconds:>7.0f}  {others}", flush=True)
        all_found += [f"{name}: {line}" for line in found]
        total += len(numbers)
    return verdict(all_found, f"{total:,} inputs")


if __name__ == "__main__":
    sys.exit(main())
