"""Programs that write files, for a disk that fails: saves, checkpoints, audits, studies, runs.

Every program begins in the folder that `prepare` makes, or in what a failure left of it, and must
end with the same result. `sound` looks at what is there right after the failure: what was there
before must be there still, or what was to come, whole.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedavot as fa
from attacks.pictures import drawn_once, rendered_once
from attacks.saved_files import IMPORTANCE, LAW, NAMES

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
    plain: Callable[[str, bytes], Any] = field(default=lambda name, data: data)

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
        read = type(new).load(folder / "saved.json")
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
    from fedavot.audit.report.outputs import write_audit as write_all

    write_audit = drawn_once(write_all)
    old, new = _findings(30), _findings(40)
    folders = {}

    def prepare(folder):
        for name, findings in (("old", old), ("new", new)):
            if name not in folders:
                write_audit(findings, folder / name)
                folders[name] = _tree(folder / name)
                shutil.rmtree(folder / name)
        if over:
            write_audit(old, folder / "audit")

    def act(folder):
        write_audit(new, folder / "audit")

    def sound(folder, kind):
        found = _tree(folder / "audit") if (folder / "audit").exists() else {}
        before, after = folders["old"] if over else {}, folders["new"]
        if kind == "full" or not over:
            return found in (before, after)
        # A process that is killed while it moves files leaves some old and some new, each whole.
        return all(data in (before.get(name), after.get(name)) for name, data in found.items())

    return Scenario(act, prepare, sound)


def _tree(folder):
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in found.items()
        if path.is_file() and not name.parts[0].startswith(".")
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

    from attacks.configs import DRAWN
    from fedavot.cli import main

    rendering = rendered_once()

    def prepare(folder):
        (folder / "study.toml").write_text(DRAWN)

    def act(folder):
        arguments = ["simulate", str(folder / "study.toml"), "--out", str(folder / "results")]
        with rendering:
            done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        if done.exit_code:
            raise SystemExit(done.exit_code)

    def plain(name, data):
        if name.endswith(".json"):
            return _timeless(json.loads(data))
        return None if name.endswith((".md", ".csv")) else data  # they have seconds as well

    return Scenario(act, prepare, plain=plain)


def _timeless(held):
    """Return the content of a document without the time that it took, and its checksum."""
    if isinstance(held, list):
        rows = [row for row in held if not (isinstance(row, dict) and "seconds" in row.values())]
        return [_timeless(item) for item in rows]
    if isinstance(held, dict):
        return {k: _timeless(v) for k, v in held.items() if k not in ("seconds", "checksum")}
    return held


def flower():
    """Run a Flower strategy with memory and the best model kept, or resume it."""
    from flwr.serverapp.strategy import FedAvgM

    from attacks.clients import MODEL, N_CLIENTS, arrays_of, everybody, federation, record_of
    from attacks.clients import update as step
    from attacks.folders import _norm
    from fedavot.flower import FedAVOT

    def act(folder):
        options = {"importance": "examples", "memory": True, "folder": folder / "run"}
        strategy = FedAVOT(everybody(FedAvgM, server_momentum=0.5), resume=True, **options)
        strategy.keep_best("norm")
        grid = federation(N_CLIENTS, step)
        result = strategy.start(grid, record_of(MODEL), 3, evaluate_fn=_norm)
        return {name: array.tobytes() for name, array in arrays_of(result.arrays).items()}

    def plain(name, data):
        if name.endswith(".jsonl"):
            return [json.loads(line) | {"time": ""} for line in data.splitlines()]
        # The marks of the memory are drawn anew in each run, and a checkpoint has one.
        return None if name.endswith((".npz", "memory.json")) else data

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    return Scenario(act, plain=plain)


SCENARIOS = {
    "alignment": alignment,
    "aligner": aligner,
    "sample-log": sample,
    "audit": audit,
    "audit-again": audit_again,
    "training": training,
    "study": study,
    "flower": flower,
}
