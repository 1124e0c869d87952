"""Configurations of studies, and the examples and digits they name, as inputs of `fuzz`.

A configuration must be refused, or give a setting whose importance and availability are proper; a
share of the small ones is run by the whole command. Examples and digits must be refused, or have
the shapes that training relies on.
"""

import gzip
import io
import json
import tomllib

import numpy as np
import tomli_w

from attacks import mutations
from attacks.isolation import Fault
from attacks.log_forms import some

RUN = 0.002
"""Share of the configurations that are run."""
MOST_ROUNDS = 20
"""Rounds of the longest study that is run."""
SUM_SLACK = 1e-9

DRAWN = """
name = "tiny"
rules = ["full", "fedavg", "fedavot-soft"]
[task]
kind = "heterogeneous-regression"
n_clients = 4
n_features = 2
examples = 3
seed = 1
[importance]
kind = "power"
exponent = 0.5
[availability]
law = "independent"
probabilities = "linear"
low = 0.2
high = 0.9
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
[task]
kind = "arrays"
file = "mine.npz"
loss = "softmax"
test_share = 0.4
[partition]
kind = "by-group"
[importance]
kind = "groups"
groups = "groups.csv"
targets = {east = 0.4, west = 0.6}
[availability]
law = "log"
file = "log.csv"
order = "shuffled"
columns = {client = "device"}
known = false
[training]
rounds = 4
step = 0.1
batch_size = 2
local_steps = 2
seeds = [3, 5]
[[rules]]
name = "fedavot-online"
step = 2.0
bound = 3.0
[[rules]]
name = "fedau"
cutoff = 5
"""
MIXED = """
[task]
kind = "hinge"
n_clients = 3
examples = 4
flipped = 0.2
[importance]
kind = "values"
values = [3, 2.5, 1]
[availability]
law = "mixture"
[[availability.states]]
probability = 0.25
law = "uniform-cohorts"
cohort_size = 2
[[availability.states]]
probability = 0.75
law = "successive-draws"
cohort_size = 2
rates = [1.0, 2.0, 0.5]
[training]
rounds = 5
step = 0.02
schedule = "cosine"
projection = "ball"
radius = 3.0
target = 0.5
[[rules]]
name = "fedavot"
[[rules]]
name = "fedavot-select"
cohort_size = 1
[[rules]]
name = "fedadam"
server_step = 0.1
betas = [0.9, 0.99]
epsilon = 1e-3
"""
BASES = (DRAWN, OWN, MIXED)


def configs(folder):
    """Return the judge of configurations."""
    _write_files(folder)
    path = folder / "study.toml"

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        path.write_bytes(_config(some(BASES, rng), rng))
        return _configured(path, run=rng.random() < RUN)

    return judge


def _write_files(folder):
    """Write the files that the configurations name."""
    names = np.repeat(["a", "b", "c"], 5)
    features = np.random.default_rng(0).normal(size=(15, 2))
    np.savez(folder / "mine.npz", features=features, targets=np.arange(15) % 3, clients=names)
    rows = [f"{t},{name}" for t in range(8) for name in "abc" if (t + ord(name)) % 3]
    (folder / "log.csv").write_text("\n".join(["round,device", *rows]) + "\n")
    (folder / "groups.csv").write_text("client,group\na,east\nb,west\nc,east\n")


def _config(text, rng):
    """Return a configuration after some changes, of its values or of its bytes."""
    if rng.random() < 0.25:
        return some((mutations.flipped, mutations.mangled), rng)(text.encode(), rng)
    content = tomllib.loads(text)
    for _ in range(int(rng.integers(0, 4))):
        content = mutations.changed(content, rng)
    try:
        written = tomli_w.dumps(content)
    except (TypeError, ValueError, AttributeError):  # TOML has no null, and is a table
        return mutations.mangled(text.encode(), rng)
    for word, huge in mutations.HUGE.items():
        written = written.replace(json.dumps(word), huge)
    return written.encode("utf-8", "surrogatepass")


def _configured(path, *, run):
    from fedavot.experiments.config import read_config
    from fedavot.experiments.configured import setting_of

    setting = setting_of(read_config(path))
    problem = setting.instances[0].problem
    shares, inclusion = problem.importance, setting.inclusion
    if not (np.all(shares >= 0) and abs(shares.sum() - 1) <= SUM_SLACK):
        return Fault("the importance is no distribution")
    if not np.all((inclusion >= 0) & (inclusion <= 1 + SUM_SLACK)):
        return Fault("inclusion probabilities are outside 0 to 1")
    if run and setting.training.rounds <= MOST_ROUNDS:
        return _commanded(path)
    return "read"


def _commanded(path):
    """Run a study by the command line; return how it ended."""
    from click.testing import CliRunner

    from fedavot.cli import main

    out = path.parent / f"results-{np.random.default_rng().integers(1 << 62):x}"
    done = CliRunner().invoke(main, ["simulate", str(path), "--out", str(out), "--seeds", "1"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    # Status 1 says that a rule's run diverged, as a wild step makes it.
    return {0: "run", 1: "run", 2: "refused"}.get(done.exit_code, Fault(f"{done.exit_code}"))


def examples(folder):
    """Return the judge of a user's examples, an .npz."""
    from fedavot.training.examples import read_examples

    _write_files(folder)
    path = folder / "mine.npz"
    good = path.read_bytes()

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        way = rng.random()
        if way < 0.6:
            data = mutations.archive(good, rng)
        else:
            data = (mutations.mangled if way < 0.8 else mutations.flipped)(good, rng)
        path.write_bytes(data)
        found = read_examples(path)
        lengths = {len(one) for one in found if one is not None}
        proper = found.features.ndim == 2 and len(lengths) == 1
        return "read" if proper else Fault("the arrays do not fit together")

    return judge


def digits(folder):
    """Return the judge of MNIST's files of images and labels."""
    from fedavot.training.mnist import SIDE, load

    images = np.arange(3 * SIDE * SIDE).astype(np.uint8)
    good = {
        "train-images-idx3-ubyte": _idx((3, SIDE, SIDE), images),
        "train-labels-idx1-ubyte": _idx((3,), np.array([0, 9, 4], np.uint8)),
    }

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        packed = rng.random() < 0.3
        for name, data in good.items():
            changed = data
            if rng.random() < 0.6:
                # Headers are a few bytes of many: half of the changes are to them.
                cut = 16 if rng.random() < 0.5 else len(data)
                way = some((mutations.flipped, mutations.mangled), rng)
                changed = way(data[:cut], rng) + data[cut:]
            if packed:
                changed = gzip.compress(changed, mtime=0)
                changed = mutations.flipped(changed, rng) if rng.random() < 0.5 else changed
            for suffix in ("", ".gz"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)
            (folder / f"{name}{'.gz' * packed}").write_bytes(changed)
        found = load(folder)
        inside = found.labels.max() <= 9 and 0 <= found.images.min() <= found.images.max() <= 1
        proper = found.images.shape == (found.labels.size, SIDE * SIDE) and inside
        return "read" if proper else Fault("the digits are not proper")

    return judge


def _idx(shape, values):
    stream = io.BytesIO()
    stream.write(bytes((0, 0, 8, len(shape))))
    stream.write(np.array(shape, dtype=">u4").tobytes())
    stream.write(values.tobytes())
    return stream.getvalue()
