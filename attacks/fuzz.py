"""Read outside data of every kind, most of it damaged, edited or made up.

    python -m attacks.fuzz --seed 0 [--inputs 1000] [--entry log --entry reply ...] [--only NUMBER]

Inputs are derived from valid ones: flipped bits, bytes cut off, moved or overwritten, values of
another type, NaN, deep nesting, wrong shapes, odd names. Each must be refused by one of the
library's own errors, or give what independent checks find proper, without a warning, within 20 CPU
seconds and 6 GB. Inputs are read in processes of their own, so that one that ends the process, or
does not come back, is found as well. What is found is printed with its number, which reproduces it.

Logs, saved files and replies have modules of their own. A configuration of a study must be refused,
or give a setting whose importance and availability are proper; a share of the small ones is run.
"""

import sys
import tomllib

import numpy as np
import tomli_w

from attacks import flower, logs, saved_files
from attacks.campaign import Fault, main, some
from attacks.logs import commanded
from attacks.mutations import changed, damaged

RUN = 0.002
"""Share of the configurations that are run."""
MOST_ROUNDS = 20
"""Rounds of the longest study that is run."""
SUM_SLACK = 1e-9

DRAWN = """
name = "tiny"
rules = ["full", "fedavg", "fedavot-soft"]
task = {kind = "heterogeneous-regression", n_clients = 4, n_features = 2, examples = 3, seed = 1}
importance = {kind = "power", exponent = 0.5}
availability = {law = "independent", probabilities = "linear", low = 0.2, high = 0.9}
[training]
rounds = 6
step = 0.05
schedule = "decaying"
halved_after = 10.0
projection = "box"
low = -5.0
high = 5.0
record_every = 2
tail = 3
seeds = 1
"""
OWN = """
rules = [{name = "fedavot-online", step = 2.0, bound = 3.0}, {name = "fedau", cutoff = 5}]
task = {kind = "arrays", file = "mine.npz", loss = "softmax", test_share = 0.4}
partition = {kind = "by-group"}
importance = {kind = "groups", groups = "groups.csv", targets = {east = 0.4, west = 0.6}}
training = {rounds = 4, step = 0.1, batch_size = 2, local_steps = 2, seeds = [3, 5]}
[availability]
law = "log"
file = "log.csv"
order = "shuffled"
columns = {client = "device"}
known = false
"""
MIXED = """
task = {kind = "hinge", n_clients = 3, examples = 4, flipped = 0.2}
importance = {kind = "values", values = [3, 2.5, 1]}
[availability]
law = "mixture"
states = [
    {probability = 0.25, law = "uniform-cohorts", cohort_size = 2},
    {probability = 0.75, law = "successive-draws", cohort_size = 2, rates = [1.0, 2.0, 0.5]},
]
[training]
rounds = 5
step = 0.02
schedule = "cosine"
projection = "ball"
radius = 3.0
target = 0.5
[[rules]]
name = "fedavot-select"
cohort_size = 1
[[rules]]
name = "fedadam"
server_step = 0.1
betas = [0.9, 0.99]
epsilon = 1e-3
"""


def configs(folder):
    """Return the judge of configurations."""
    names = np.repeat(["a", "b", "c"], 5)
    features = np.random.default_rng(0).normal(size=(15, 2))
    np.savez(folder / "mine.npz", features=features, targets=np.arange(15) % 3, clients=names)
    rows = [f"{t},{name}" for t in range(8) for name in "abc" if (t + ord(name)) % 3]
    (folder / "log.csv").write_text("\n".join(["round,device", *rows]) + "\n")
    (folder / "groups.csv").write_text("client,group\na,east\nb,west\nc,east\n")
    path = folder / "study.toml"

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        path.write_bytes(edited(some((DRAWN, OWN, MIXED), rng), rng))
        outcome = configured(path)
        if outcome == "small" and rng.random() < RUN:
            out = folder / f"results-{number}"
            return commanded("simulate", str(path), "--out", str(out), "--seeds", "1")
        return "read" if outcome == "small" else outcome

    return judge


def edited(text, rng):
    """Return a configuration after some changes, of its values or of its bytes."""
    if rng.random() < 0.25:
        return damaged(text.encode(), rng)
    content = tomllib.loads(text)
    for _ in range(int(rng.integers(0, 4))):
        content = changed(content, rng)
    try:
        return tomli_w.dumps(content).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError):  # TOML has no null, and is a table
        return damaged(text.encode(), rng)


def configured(path):
    """Read a configuration; return "read", or "small" if it can be run, or a fault."""
    from fedavot.experiments.config import read_config
    from fedavot.experiments.configured import setting_of

    setting = setting_of(read_config(path))
    problem = setting.instances[0].problem
    shares, inclusion = problem.importance, setting.inclusion
    if not (np.all(shares >= 0) and abs(shares.sum() - 1) <= SUM_SLACK):
        return Fault("the importance is no distribution")
    if not np.all((inclusion >= 0) & (inclusion <= 1 + SUM_SLACK)):
        return Fault("inclusion probabilities are outside 0 to 1")
    return "small" if setting.training.rounds <= MOST_ROUNDS else "read"


ENTRIES = {
    "log": (logs.logs, 30_000),
    "importance": (logs.tables, 30_000),
    "config": (configs, 30_000),
    "saved": (saved_files.saved, 40_000),
    "reply": (flower.replies, 30_000),
    "folder": (flower.folders, 15_000),
}
"""How the judge of every entry is made, and how many inputs it gets."""


if __name__ == "__main__":
    sys.exit(main("fuzz", __doc__, ENTRIES))
