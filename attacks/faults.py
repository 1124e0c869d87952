"""Fail at each file operation of every program that writes files, and then run it again.

    python -m attacks.faults [--every 1] [--scenario study ...]

Each program is run once to count its file operations, and then once for every operation and way to
fail (`disk`): no space left, the process killed, the power lost. Right after a failure, what was
there before must be there still, or what was to come, whole. Run again without failures, resuming
where there is something to resume, it must end with the result of a run that was never interrupted,
and leave the same files. The exit status is 1 if anything else happens.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest import mock

from attacks.disk import KINDS, Disk, Killed
from attacks.fault_scenarios import SCENARIOS
from attacks.isolation import IN_MEMORY, verdict
from fedavot.errors import FedavotError


def campaign(scenario, folder, *, every=1):
    """Fail at every operation of a program; return how often it survived, and what was found."""
    scenario.prepare(_empty(folder))
    with Disk(folder) as disk:
        returned = scenario.act(folder)
    wanted, operations = scenario.result(folder, returned), disk.operations
    survived, found = Counter(), []
    for number, operation in enumerate(operations):
        for at, kind in enumerate(KINDS):
            if (number * len(KINDS) + at) % every:
                continue
            wrong = _failed(scenario, _empty(folder), wanted, (number, kind))
            survived[kind] += not wrong
            if wrong:
                found.append(f"{kind} at operation {number} ({operation}): {wrong}")
    return survived, found


def _failed(scenario, folder, wanted, where):
    """Fail once and run again; return what is wrong, "" if nothing is."""
    point, kind = where
    scenario.prepare(folder)
    try:
        with Disk(folder, point=point, kind=kind) as disk:
            scenario.act(folder)
    except (Killed, OSError, FedavotError, SystemExit):
        pass
    else:
        if kind != "full" or not disk.failed:
            return "the failure went unnoticed"
    if not scenario.sound(folder, kind):
        return "what is there is neither the old nor the new"
    try:
        with mock.patch.multiple("fedavot._files", STALE_SECONDS=-1.0):  # an hour later
            returned = scenario.act(folder)
    except (Exception, SystemExit) as error:
        return f"cannot be run again: {type(error).__name__}: {str(error)[:150]}"
    found = scenario.result(folder, returned)
    if found == wanted:
        return ""
    names = sorted(set(found[0]) ^ set(wanted[0]))
    changed = [name for name in wanted[0] if found[0].get(name) != wanted[0][name]]
    return f"another result: {names or changed or 'what was returned'}"


def _empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def main(arguments=None):
    """Run the campaign for the scenarios asked for, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m attacks.faults", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="else all")
    parser.add_argument("--every", type=int, default=1, help="only every n-th point")
    options = parser.parse_args(arguments)
    print(f"{'scenario':<16}", *(f"{word:>8}" for word in (*KINDS, "found", "wall s")))
    all_found, total = [], 0
    for name in options.scenario or SCENARIOS:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as place:
            survived, found = campaign(
                SCENARIOS[name](), Path(place).resolve() / "work", every=options.every
            )
        cells = (*(survived[kind] for kind in KINDS), len(found), time.monotonic() - begin)
        print(f"{name:<16}", *(f"{cell:>8.0f}" for cell in cells), flush=True)
        all_found += [f"{name}: {line}" for line in found]
        total += survived.total() + len(found)
    return verdict(all_found, f"{total:,} points")


if __name__ == "__main__":
    sys.exit(main())
