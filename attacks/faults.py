"""Fail at each file operation of every program that writes files, and then run it again.

    python -m attacks.faults [--every 1] [--scenario study ...]

Each program is run once to count its file operations, and then once for every operation and way to
fail (`disk`): no space left, the process killed, the power lost. Right after a failure, what was
there before must be there still, or what was to come, whole. Run again without failures, resuming
where there is something to resume, it must end with the result of a run that was never interrupted,
and leave the same files. Pictures are not rendered, only written. The exit status is 1 if anything
else happens.
"""

import contextlib
import json
import logging
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fedavot as fa
from attacks.campaign import IN_MEMORY, parser, verdict
from attacks.disk import KINDS, Disk, Killed
from attacks.saved_files import IMPORTANCE, LAW, NAMES
from fedavot.errors import FedavotError

PICTURE = 3 * [4096 * b"."]
"""What is written in place of every picture, piece by piece."""
_TOKEN = re.compile("[0-9a-f]{16}")
"""What is drawn in the name of a file."""


@dataclass(frozen=True)
class Scenario:
    """A program that writes files.

    Attributes
    ----------
    act : function of a folder
        Does the work, or goes on with it; returns what else is compared.
    prepare : function of a folder
        Makes what was there before.
    sound : function of a folder and how it failed
        Whether what a failure left may be there.
    plain : function of (name, bytes)
        The part of a file that must be equal.
    """

    act: Callable[[Path], Any]
    prepare: Callable[[Path], Any] = lambda folder: None
    sound: Callable[[Path, str], bool] = lambda folder, kind: True
    plain: Callable[[str, bytes], Any] = lambda name, data: data

    def result(self, folder, returned):
        """Return all that must be equal after a failure and another run."""
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                # Several files may differ only in what is drawn.
                name = _TOKEN.sub("*", path.relative_to(folder).as_posix())
                files.setdefault(name, []).append(self.plain(path.name, path.read_bytes()))
        return files, returned


def saving(old, new, load):
    """Return the scenario of one object saved over another."""
    values = [json.dumps(one) for one in (load(old), load(new))]

    def prepare(folder):
        old.save(folder / "saved.json")

    def act(folder):
        new.save(folder / "saved.json")

    def sound(folder, kind):
        try:
            read = type(new).load(folder / "saved.json")
        except FedavotError:
            return False
        return json.dumps(load(read)) in values

    return Scenario(act, prepare, sound)


def alignment():
    """Save an alignment over another one."""
    first, second = fa.align(IMPORTANCE, LAW), fa.align(IMPORTANCE, LAW, softness=0.1)
    return saving(first, second, lambda one: one.potentials.tolist())


def aligner():
    """Save an online aligner over an earlier state of it."""
    first = fa.OnlineAligner(IMPORTANCE, softness=0, step=0.3)
    second = fa.OnlineAligner(IMPORTANCE, softness=0, step=0.3)
    second.observe([0, 1])
    return saving(first, second, lambda one: one.state_dict())


def sample():
    """Write a sample log."""
    from fedavot.audit.sample import NAMES as FILES
    from fedavot.audit.sample import write_sample

    def act(folder):
        for name in FILES:  # as its error message tells a user to
            (folder / "sample" / name).unlink(missing_ok=True)
        write_sample(folder / "sample", days=1, n_clients=20)

    return Scenario(act)


def _findings(n_rounds):
    from fedavot import audit

    rng = np.random.default_rng(0)
    rows = [(t, name) for t in range(n_rounds) for name in NAMES if rng.random() < 0.6]
    members = [np.array([NAMES.index(n) for r, n in rows if r == t]) for t in range(n_rounds)]
    offsets = np.cumsum([0, *map(len, members)])
    log = audit.Participation(tuple(NAMES), offsets, np.concatenate(members).astype(np.int32))
    return audit.audit(audit.federation_of(log))


def _auditing(*, over):
    from fedavot.audit.report import drawing, figures, outputs, page

    old, new = _findings(30), _findings(40)
    folders = {}

    def write(findings, folder):
        with contextlib.ExitStack() as patches:
            for module, name, function in replaced:
                patches.enter_context(mock.patch.object(module, name, function))
            outputs.write_audit(findings, folder)

    replaced = (
        (figures, "draw", _once_each(figures.draw)),
        (page, "page", _once_each(page.page)),
        (drawing, "write_png", lambda picture, stream: stream.writelines(PICTURE)),
    )

    def prepare(folder):
        for name, findings in (("old", old), ("new", new)):
            if name not in folders:
                write(findings, folder / name)
                folders[name] = _tree(folder / name)
                shutil.rmtree(folder / name)
        if over:
            write(old, folder / "audit")

    def sound(folder, kind):
        left = _tree(folder / "audit") if (folder / "audit").exists() else {}
        before, after = folders["old"] if over else {}, folders["new"]
        if kind == "full" or not over:
            return left in (before, after)
        # A process that is killed while it moves files leaves some old and some new, each whole.
        return all(data in (before.get(name), after.get(name)) for name, data in left.items())

    return Scenario(lambda folder: write(new, folder / "audit"), prepare, sound)


def _once_each(function):
    """Return a function that is called only once for each first argument."""
    results = {}

    def call(first, *others, **options):
        if id(first) not in results:
            results[id(first)] = function(first, *others, **options)
        return results[id(first)]

    return call


def _tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
    }


def audit():
    """Write the files of an audit."""
    return _auditing(over=False)


def audit_again():
    """Write the files of an audit over an earlier one."""
    return _auditing(over=True)


def training():
    """Train with a checkpoint after every few rounds, or go on from it."""
    from fedavot import rules
    from fedavot import training as engine
    from fedavot.training.tasks.linear import linear_task

    rng, importance = np.random.default_rng(0), [0.5, 0.3, 0.2]
    task = linear_task("three", [(rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(3)])

    def sample(rng, rounds):
        return [np.flatnonzero(row) for row in rng.random((rounds, 3)) < 0.6]

    problem = engine.Problem(task, importance, sample)
    options = engine.Training(12, engine.constant(0.05), seeds=(0, 1), record_every=4)

    def act(folder):
        run = engine.train(problem, rules.mifa(importance), options, checkpoint=folder / "run.npz")
        return run.losses.tobytes(), np.asarray(run.params).tobytes()

    return Scenario(act)


def study():
    """Run a configured study, with its results, table and figure, or go on with it."""
    from click.testing import CliRunner
    from matplotlib.figure import Figure

    from attacks.fuzz import DRAWN
    from fedavot.cli import main

    def savefig(figure, stream, **options):
        stream.writelines(PICTURE)

    def prepare(folder):
        (folder / "study.toml").write_text(DRAWN)

    def act(folder):
        arguments = ["simulate", str(folder / "study.toml"), "--out", str(folder / "results")]
        with mock.patch.object(Figure, "savefig", savefig):
            done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        if done.exit_code:
            raise SystemExit(done.exit_code)

    def plain(name, data):
        if name.endswith(".json"):
            return _timeless(json.loads(data))
        return None if name.endswith((".md", ".csv")) else data  # they have seconds as well

    return Scenario(act, prepare, plain=plain)


def _timeless(content):
    """Return the content of a document without the time that it took, and its checksum."""
    if isinstance(content, list):
        rows = [row for row in content if not (isinstance(row, dict) and "seconds" in row.values())]
        return [_timeless(item) for item in rows]
    if isinstance(content, dict):
        return {k: _timeless(v) for k, v in content.items() if k not in ("seconds", "checksum")}
    return content


def flower():
    """Run a Flower strategy with memory and the best model kept, or resume it."""
    from attacks.flower import run

    def plain(name, data):
        if name.endswith(".jsonl"):
            return [json.loads(line) | {"time": ""} for line in data.splitlines()]
        # The marks of the memory are drawn anew in each run, and a checkpoint has one.
        return None if name.endswith((".npz", "memory.json")) else data

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    return Scenario(lambda folder: run(folder / "run", 3), plain=plain)


SCENARIOS = {
    **{make.__name__: make for make in (alignment, aligner, sample, audit, audit_again)},
    **{make.__name__: make for make in (training, study, flower)},
}


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
    again = scenario.result(folder, returned)
    if again == wanted:
        return ""
    names = sorted(set(again[0]) ^ set(wanted[0]))
    changed = [name for name in wanted[0] if again[0].get(name) != wanted[0][name]]
    return f"another result: {names or changed or 'what was returned'}"


def _empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def main(arguments=None):
    """Run the campaign for the scenarios asked for, and print a table."""
    options = parser("faults", __doc__)
    options.add_argument("--scenario", action="append", choices=SCENARIOS, help="else all")
    options.add_argument("--every", type=int, default=1, help="only every n-th point")
    options = options.parse_args(arguments)
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
