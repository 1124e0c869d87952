"""Measure the peak memory of one alignment, alone in a process that `measure` started.

``python -m benchmarks.memory cohorts|independent problem.npz`` prints one line of JSON:

* ``code``: resident once NumPy, SciPy and the library are loaded,
* ``problem``: resident once the law is built and the raw arrays are dropped,
* ``align``: the peak during ``align``, ``process``: the peak of the whole process.
"""

import ctypes
import gc
import json
import resource
import sys
from pathlib import Path

import numpy as np

import fedavot as fa


def main(kind: str, path: str) -> None:
    """Load, build, align, and print what it took."""
    _small_alignment()
    figures = {"code": resident()}
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    importance, tol = arrays.pop("importance"), float(arrays.pop("tol"))
    if kind == "cohorts":
        members, n_clients = arrays["members"], importance.size
        law = fa.Cohorts(members, arrays["probabilities"], n_clients=n_clients)
        del members
    else:
        law = fa.IndependentClients(arrays["probabilities"])
    arrays.clear()
    figures["problem"] = resident()
    before = peak()
    forget_peak()
    residual = fa.align(importance, law, tol=tol).residual
    figures["align"] = peak()
    figures["process"] = max(before, figures["align"])
    print(json.dumps(figures | {"residual": residual}))


def _small_alignment() -> None:
    """Load every module an alignment needs, so that code does not count as data."""
    clients = np.arange(40)
    law = fa.Cohorts(np.column_stack((clients, (clients + 1) % 40)))
    fa.align(np.full(40, 1 / 40), law)


def resident() -> float:
    """Return the resident bytes, freed memory handed back first."""
    gc.collect()
    _c_library().malloc_trim(0)
    return _status("VmRSS")


def peak() -> float:
    """Return the most bytes resident so far, or since the mark was last forgotten."""
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> None:
    """Start the kernel's high-water mark over: building the law must not hide the alignment."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _status(key: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key):
            return 1024.0 * float(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {key}")


def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
