"""Attack the solvers with problems of moderate size that have no business taking long.

    python -m attacks.stalls [NAME ...] [--size N]

Every scenario (`stall_scenarios`) is aligned and certified in a process of its own, with one thread
on one core. Found is what takes more than 10 CPU seconds or 1 GB, ends unconverged, or has a
certificate that does not verify. How time grows with the number of clients is in
`benchmarks/growth.py`.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fedavot as fa
from attacks.stall_scenarios import SCENARIOS

CPU_SECONDS, GIGABYTES = 10.0, 1.0
PATIENCE = 180.0
"""CPU seconds after which a process is stopped; the row then has no status."""
MOST_BYTES = 8 << 30
"""Address space of a process, so that a runaway ends itself and not the machine."""
SOLVED = ("exact", "nearest", "soft")


def measure(name, size):
    """Align and certify a scenario here and now, and return the row of the table."""
    scenario = SCENARIOS[name]
    importance, law = scenario.problem(size)
    start = time.process_time()
    alignment = fa.align(importance, law, **scenario.options)
    aligned = time.process_time()
    certificate = fa.certify(importance, law)
    verified = certificate.verify(importance, law)
    return {
        "align": aligned - start,
        "certify": time.process_time() - aligned,
        "memory": _peak_gigabytes(),
        "status": str(alignment.status),
        "residual": float(alignment.residual),
        "verified": bool(verified),
    }


def _peak_gigabytes():
    """Return the most memory this program held.

    Linux counts in `ru_maxrss` what the process held before it became this program, which is the
    memory of whoever started it; the high-water mark of /proc begins with the program.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e9
    import resource

    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _child(name, size, patience):
    """Measure in this process, which was started for it, and print the row."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(patience), math.ceil(patience)))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(measure(name, size)))


def run(name, size, patience=PATIENCE):
    """Measure in a process of its own; a failure is a row that says what happened."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "attacks.stalls", "--child", name, "--size", str(size)]
    command += ["--patience", str(patience)]
    done = subprocess.run(
        command, env=os.environ | threads, capture_output=True, text=True, check=False
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failure": f"stopped after {patience:g} CPU seconds"}
    if done.returncode:
        last = done.stderr.strip().splitlines() or ["no message"]
        return {"failure": f"ended with {done.returncode}: {last[-1][:60]}"}
    return json.loads(done.stdout)


def faults(row):
    """Say what is wrong with a row."""
    if "failure" in row:
        return [row["failure"]]
    wrong = {
        f"more than {CPU_SECONDS:.0f} CPU seconds": max(row["align"], row["certify"]) > CPU_SECONDS,
        f"more than {GIGABYTES:.0f} GB": row["memory"] > GIGABYTES,
        "not solved": row["status"] not in SOLVED,
        "certificate does not verify": not row["verified"],
    }
    return [fault for fault, there in wrong.items() if there]


def stalls(names, size, patience):
    """Run scenarios one after the other, print the table, and return how many have faults."""
    columns = ("align", "certify", "memory", "status", "residual", "verified")
    print(f"{'scenario':<26}{'clients':>8}" + "".join(f"{name:>10}" for name in columns))
    count = 0
    for name in names:
        n_clients = size or SCENARIOS[name].size
        row = run(name, n_clients, patience)
        cells = (row.get(column, "") for column in columns)
        shown = (f"{cell:.2g}" if isinstance(cell, float) else str(cell) for cell in cells)
        count += bool(faults(row))
        table = "".join(f"{cell:>10}" for cell in shown)
        print(f"{name:<26}{n_clients:>8}{table}  {'; '.join(faults(row))}", flush=True)
    print(f"{count} of {len(names)} scenarios have faults")
    return count


def main(arguments=None):
    """Run the attack from the command line; return 1 if it found anything."""
    parser = argparse.ArgumentParser(prog="python -m attacks.stalls", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all by default")
    parser.add_argument("--size", type=int, help="number of clients, for all scenarios")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="CPU seconds per process")
    parser.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario is called {unknown[0]!r}; they are {', '.join(SCENARIOS)}")
    if options.child:
        _child(options.child, options.size, options.patience)
        return 0
    return int(stalls(options.names or SCENARIOS, options.size, options.patience) > 0)


if __name__ == "__main__":
    sys.exit(main())
