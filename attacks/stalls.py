"""Attack the solvers with problems of moderate size that have no business taking long.

    python -m attacks.stalls [--entry chain-random ...] [--only N_CLIENTS]

Every scenario pairs a law that is hard for one method or another, by construction, with a kind of
importance. It is aligned and certified in a process of its own, with one thread. Found is what
takes more than 10 CPU seconds or 1 GB, ends unconverged, or has a certificate that does not verify.
How time grows with the number of clients is in `benchmarks/growth.py`.
"""

import functools
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

import fedavot as fa
from attacks.campaign import Fault, attack, never_refused, parser, verdict

CPU_SECONDS, GIGABYTES = 10.0, 1.0
ROUNDS, PER_ROUND = 1_000, 20
"""A log as most are: a thousand rounds of twenty clients."""
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def chain(rng, n):
    """Pairs of neighbours in a line."""
    return fa.Cohorts(np.column_stack((np.arange(n - 1), np.arange(1, n))))


def cycle(rng, n):
    """Pairs of neighbours in a ring."""
    return fa.Cohorts(np.column_stack((np.arange(n), (np.arange(n) + 1) % n)))


def tree(rng, n):
    """Parents and children of a binary tree."""
    children = np.arange(1, n)
    return fa.Cohorts(np.column_stack((children, (children - 1) // 2)))


def grid(rng, n):
    """Neighbours in a square grid."""
    side = int(np.sqrt(n))
    index = np.arange(side * side).reshape(side, side)
    along = np.column_stack((index[:, :-1].ravel(), index[:, 1:].ravel()))
    across = np.column_stack((index[:-1].ravel(), index[1:].ravel()))
    return fa.Cohorts(np.concatenate((along, across)))


def graph(rng, n):
    """Pairs of a sparse random graph."""
    return fa.Cohorts([rng.choice(n, 2, replace=False) for _ in range(2 * n)], n_clients=n)


def nested(rng, n):
    """Cohorts {0}, {0, 1}, {0, 1, 2}, … of which 500 are kept."""
    ends = range(0, n, max(1, n // 500))
    return fa.Cohorts([np.arange(last + 1) for last in ends], n_clients=n)


def log(rng, n, rounds=ROUNDS):
    """Draw rounds of twenty clients, or of half of them if there are fewer than forty."""
    size = min(PER_ROUND, n // 2)
    return fa.Cohorts([rng.choice(n, size, replace=False) for _ in range(rounds)], n_clients=n)


def large(rng, n):
    """Two thousand rounds of half of all clients."""
    return fa.Cohorts([np.flatnonzero(rng.random(n) < 0.5) for _ in range(2 * ROUNDS)], n_clients=n)


def mixture(laws):
    """Return laws that occur equally often."""
    return fa.Mixture(laws, np.full(len(laws), 1.0 / len(laws)))


def day_night(rng, n):
    """Two states of independent clients, one of them with few."""
    chances = [0.02 * rng.random(n), 0.02 * rng.random(n) ** 8]
    return mixture([fa.IndependentClients(np.clip(part, 1e-9, 1)) for part in chances])


def hours(rng, n, count=24, expected=20):
    """States of independent clients, one for each hour."""
    chances = [np.clip(rng.random(n) ** 4 * expected / n, 1e-9, 1) for _ in range(count)]
    return mixture([fa.IndependentClients(part) for part in chances])


def regions(rng, n, count=10, elsewhere=1e-9):
    """Regions, each nearly alone in its own state."""
    own = np.arange(n) % count == np.arange(count)[:, None]
    return mixture([fa.IndependentClients(row) for row in np.where(own, 0.05, elsewhere)])


def sizes(rng, n):
    """Two uniform states, pairs and a tenth of all clients."""
    return mixture([fa.UniformCohorts(n, 2), fa.UniformCohorts(n, max(2, n // 10))])


def log_and_model(rng, n):
    """Mix a short log with independent clients."""
    return mixture([log(rng, n, 300), fa.IndependentClients(rng.random(n) * 10 / n)])


def logs(rng, n):
    """Two short logs."""
    return mixture([log(rng, n, 300), log(rng, n, 300)])


def sure(rng, n):
    """Independent clients, half of them always there."""
    return fa.IndependentClients(np.where(np.arange(n) < n // 2, 1.0, rng.random(n)))


def opposed(rng, n):
    """Ten draws by rates that rise with the number of the client."""
    return fa.SuccessiveDraws(1.0 / np.arange(n, 0, -1), min(10, n // 2))


LAWS = {
    **{one.__name__: one for one in (chain, cycle, tree, grid, graph, nested, log, large, logs)},
    **{one.__name__: one for one in (day_night, hours, regions, sizes, log_and_model)},
    **{one.__name__: one for one in (sure, opposed)},
    "three_logs": functools.partial(log, rounds=3 * ROUNDS),
    "three_states": functools.partial(hours, count=3, expected=5),
    "five_regions": functools.partial(regions, count=5, elsewhere=0.0),
    "half": lambda rng, n: fa.UniformCohorts(n, n // 2),
    "all_but_one": lambda rng, n: fa.UniformCohorts(n, n - 1),
    "pairs": lambda rng, n: fa.UniformCohorts(n, 2),
    "rare": lambda rng, n: fa.IndependentClients(10.0 ** rng.uniform(-12, 0, n)),
    "few": lambda rng, n: fa.IndependentClients(rng.random(n) * 5 / n),
    "three": lambda rng, n: fa.IndependentClients(np.full(n, 3 / n)),
    "two_draws": lambda rng, n: fa.SuccessiveDraws(rng.random(n), 2),
    "ten_draws": lambda rng, n: fa.SuccessiveDraws(rng.random(n) ** 3, min(10, n // 2)),
}
IMPORTANCE = {
    "equal": lambda rng, law: np.ones(law.n_clients),
    "random": lambda rng, law: rng.random(law.n_clients),
    "cubed": lambda rng, law: rng.random(law.n_clients) ** 3,
    "linear": lambda rng, law: np.arange(law.n_clients, 0.0, -1),
    "power": lambda rng, law: 1.0 / np.arange(1, law.n_clients + 1) ** 1.2,
    "cycling": lambda rng, law: 1.0 + np.arange(law.n_clients) % 10,
    "exponential": lambda rng, law: np.exp(-np.linspace(0, 30, law.n_clients)),
    "wide": lambda rng, law: 10.0 ** rng.uniform(-8, 0, law.n_clients),
    "widest": lambda rng, law: 10.0 ** rng.uniform(-15, 0, law.n_clients),
    # One client is wanted nearly as often as it takes part in half of the rounds.
    "one": lambda rng, law: np.where(np.arange(law.n_clients) == 0, law.n_clients - 1.0, 1.0004),
    "potentials": lambda rng, law: law.expected_weights(3.0 * rng.normal(size=law.n_clients)),
    "near": lambda rng, law: law.expected_weights(8.0 * rng.normal(size=law.n_clients)),
    "nearer": lambda rng, law: law.expected_weights(25.0 * rng.normal(size=law.n_clients)),
    "rising": lambda rng, law: law.expected_weights(np.linspace(0, 60, law.n_clients)),
    "steep": lambda rng, law: law.expected_weights(np.arange(float(law.n_clients))),
    "tight": lambda rng, law: law.expected_weights(
        rng.normal(size=law.n_clients), rng.integers(0, 50, law.n_clients)
    ),
}
PLANS = {
    1_200: {
        "half": "random one power exponential",
        **{"all_but_one": "random", "pairs": "linear", "large": "random power"},
        **{"hours": "cubed", "sizes": "linear"},
    },
    2_000: {"nested": "equal"},
    5_000: {
        **{"chain": "potentials steep random equal", "cycle": "tight", "tree": "equal"},
        **{"grid": "rising random", "graph": "random widest", "log": "random"},
        **{"three_logs": "tight near", "logs": "random", "log_and_model": "random"},
        **{"day_night": "random", "three_states": "power", "regions": "cycling"},
        **{"five_regions": "equal", "rare": "widest", "sure": "random", "few": "rising"},
        **{"three": "nearer", "two_draws": "random", "ten_draws": "random", "opposed": "power"},
    },
}
"""What is aligned without options, by the number of clients it is tried at."""
VARIANCE = {
    **{("large", "random"): 1_200, ("nested", "equal"): 2_000, ("chain", "potentials"): 5_000},
    **{("chain", "equal"): 5_000, ("log", "random"): 5_000, ("three_logs", "tight"): 5_000},
    **{("three_logs", "near"): 5_000, ("ten_draws", "random"): 5_000},
}
SOFT = {
    ("half", "wide"): (1_200, 1e-4),
    ("few", "wide"): (5_000, 1e-6),
    ("log", "wide"): (5_000, 1e-6),
}
SCENARIOS = {
    **{
        f"{law}-{importance}": (law, importance, size, {})
        for size, plans in PLANS.items()
        for law, kinds in plans.items()
        for importance in kinds.split()
    },
    **{
        f"{law}-{importance}-variance": (law, importance, size, {"objective": "variance"})
        for (law, importance), size in VARIANCE.items()
    },
    **{
        f"{law}-{importance}-soft": (law, importance, size, {"softness": softness})
        for (law, importance), (size, softness) in SOFT.items()
    },
}
"""The law, the importance, how many clients, and the options of `align`."""


def stalled(folder, *, name):
    """Return the judge of a scenario; the number of its input is the number of clients."""
    law_name, importance_name, _, options = SCENARIOS[name]

    def judge(seed, number):
        rng, before = np.random.default_rng(seed), peak_gigabytes()
        law = LAWS[law_name](rng, number)
        once = IMPORTANCE[importance_name](rng, law)
        # Twice, as callers do: a solver may depend on the last digit where sets are tight.
        importance = once / once.sum() / (once / once.sum()).sum()
        start = time.process_time()
        alignment = fa.align(importance, law, **options)
        aligned = time.process_time()
        certificate = fa.certify(importance, law)
        verified = certificate.verify(importance, law)
        seconds = (aligned - start, time.process_time() - aligned)
        return outcome(alignment, verified, seconds, peak_gigabytes() - before)

    return never_refused(judge)


def outcome(alignment, verified, seconds, gigabytes):
    """Return what came of a scenario in words, a fault if anything is wrong."""
    words = f"{alignment.status} in {seconds[0]:.2f} + {seconds[1]:.2f} s, {gigabytes:.2f} GB"
    if alignment.status == "unconverged" or not verified:
        return Fault(f"{words}, certificate verified {verified}")
    slow = max(seconds) > CPU_SECONDS or gigabytes > GIGABYTES
    return Fault(f"too much: {words}") if slow else words


def peak_gigabytes():
    """Return the most memory this program has had.

    Linux counts in `ru_maxrss` what the process had before it became this program, which is the
    memory of whoever started it; the high-water mark of /proc begins with the program.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e9
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


ENTRIES = {name: functools.partial(stalled, name=name) for name in SCENARIOS}


def main(arguments=None):
    """Run scenarios one after the other; return 1 if anything was found."""
    options = parser("stalls", __doc__)
    options.add_argument("--entry", action="append", choices=ENTRIES, help="repeatable; else all")
    options.add_argument("--only", type=int, help="number of clients, for all scenarios")
    options = options.parse_args(arguments)
    os.environ |= ONE_THREAD
    every = []
    for name in options.entry or ENTRIES:
        n_clients = options.only or SCENARIOS[name][2]
        counts, found = attack(ENTRIES[name], [n_clients], seed=0, seconds=6 * CPU_SECONDS)
        words = next(iter(counts)) if not found else found[0]
        print(f"{name:<26}{n_clients:>8}  {words}", flush=True)
        every += [f"{name}: {line}" for line in found]
    return verdict(every, f"{len(options.entry or ENTRIES)} scenarios")


if __name__ == "__main__":
    sys.exit(main())
