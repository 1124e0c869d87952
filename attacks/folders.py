"""Folders of Flower runs, with one of their files damaged or edited, as inputs of `fuzz`.

A run of three rounds left its log, checkpoint, memory and best model. One of these is changed, and
the run is resumed for one round more. That must be refused by one of the library's own errors, or
end with the model of a run that was never interrupted, to the bit.
"""

import json
import logging
import shutil

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvgM

from attacks import mutations
from attacks.clients import (
    MODEL,
    N_CLIENTS,
    arrays_of,
    everybody,
    federation,
    record_of,
    update,
)
from attacks.isolation import Fault
from attacks.log_forms import some
from fedavot.flower import FedAVOT

SAVED, N_ROUNDS = 3, 4
ARCHIVES = {"checkpoint.npz": "meta", "best.npz": "meta"}
"""Files that are archives, and which of their arrays is a JSON document."""


def folders(folder):
    """Return the judge of folders."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    good, place = folder / "good", folder / "run"
    _run(good, SAVED)
    shutil.copytree(good, folder / "whole")
    wanted = {name: it.tobytes() for name, it in _run(folder / "whole", N_ROUNDS).items()}
    names = [path.name for path in sorted(good.iterdir()) if path.stat().st_size]
    names.remove("memory.rows")  # bare numbers

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(good, place)
        path = place / some(names, rng)
        path.write_bytes(_changed(path.name, path.read_bytes(), rng))
        model = {name: values.tobytes() for name, values in _run(place, N_ROUNDS).items()}
        return (
            "equal" if model == wanted else Fault(f"another model, after a change to {path.name}")
        )

    return judge


def _changed(name, data, rng):
    """Return other bytes in place of a file's."""
    way = rng.random()
    if way < 0.5 and name in ARCHIVES:
        return mutations.archive(data, rng, inner=ARCHIVES[name])
    if way < 0.5 and name.endswith(".jsonl"):
        lines = data.split(b"\n")
        at = int(rng.integers(len(lines) - 1))
        changed = mutations.changed(json.loads(lines[at]), rng)
        lines[at] = json.dumps(changed).encode("utf-8", "surrogatepass")
        return b"\n".join(lines)
    return some((mutations.flipped, mutations.mangled), rng)(data, rng)


def _run(folder, n_rounds):
    """Begin a run or resume it; return its last model."""
    options = {"importance": "examples", "memory": True, "folder": folder, "resume": True}
    strategy = FedAVOT(everybody(FedAvgM, server_momentum=0.5), **options)
    strategy.keep_best("norm")
    grid = federation(N_CLIENTS, update)
    result = strategy.start(grid, record_of(MODEL), n_rounds, evaluate_fn=_norm)
    return arrays_of(result.arrays)


def _norm(number, arrays):
    return MetricRecord({"norm": float(np.abs(arrays_of(arrays)["w"]).sum())})
