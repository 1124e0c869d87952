"""Folders of Flower runs, with one of their files damaged or edited, as inputs of `fuzz`.

A run of three rounds left its log, checkpoint, memory and best model. One of these is changed, and
the run is resumed for one round more. That must be refused by one of the library's own errors, or
end with the model of a run that was never interrupted, to the bit. Only where a file was sealed
again may it fail otherwise, or end with another model, which must be finite and of its own shapes.
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
from fedavot.errors import FedavotError
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
        data, seal = _changed(path.name, path.read_bytes(), rng)
        path.write_bytes(data)
        try:
            found = _run(place, N_ROUNDS)
        except (FedavotError, ArithmeticError):
            raise
        except Exception:
            if seal == "kept":
                raise
            return "failed"  # a checksum is no signature: folders of runs are the server's own
        if {name: values.tobytes() for name, values in found.items()} == wanted:
            return "equal"
        if seal == "kept":
            return Fault(f"another model, after a change to {path.name}")
        # A strategy may add and remove arrays, so that a model may have others.
        alike = all(values.shape == MODEL[name].shape for name, values in found.items())
        finite = all(np.all(np.isfinite(values)) for values in found.values())
        return "proper" if alike and finite else Fault("no proper model")

    return judge


def _changed(name, data, rng):
    """Return other bytes in place of a file's, and how they are sealed."""
    way = rng.random()
    if way < 0.5 and name in ARCHIVES:
        return mutations.archive(data, rng, inner=ARCHIVES[name])
    if way < 0.5 and name.endswith(".jsonl"):
        lines = data.split(b"\n")
        at = int(rng.integers(len(lines) - 1))
        changed = mutations.changed(json.loads(lines[at]), rng)
        lines[at] = json.dumps(changed).encode("utf-8", "surrogatepass")
        return b"\n".join(lines), "kept"
    return some((mutations.flipped, mutations.mangled), rng)(data, rng), "kept"


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
