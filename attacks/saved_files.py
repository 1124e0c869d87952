"""Every kind of file that the library saves and reads again: how to make, read and judge one.

What was read is judged by checks of its own: distributions are finite, non-negative and sum to one,
lengths agree, weights of any cohort are a distribution.
"""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedavot as fa
from attacks import mutations

NAMES = ["lyon", "porto", "<b>", 'é"🐝', "=cmd"]
IMPORTANCE = [0.3, 0.25, 0.2, 0.15, 0.1]
LAW = fa.Cohorts([[0, 1], [1, 2, 3], [0, 4], [2, 4], [0]], probabilities=[0.1, 0.3, 0.2, 0.2, 0.2])
SUM_SLACK = 1e-6


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    name : str
        What it is called in the table.
    data : bytes
        A good file.
    read : function of bytes
        Writes the file, has the library read it, and returns what was read as plain values.
    sound : function of what was read
        Whether that is a proper one, though another.
    mutate : function of (bytes, rng)
        Returns other bytes, and how they are sealed.
    """

    name: str
    data: bytes
    read: Callable[[bytes], Any]
    sound: Callable[[Any], bool]
    mutate: Callable[[bytes, Any], tuple[bytes, str]]


def kinds(folder, names=()):
    """Make a file of every kind asked for, each in a folder of its own; all by default."""
    for name, make in MAKERS.items():
        if not names or name in names:
            place = Path(folder) / name
            place.mkdir()
            yield make(place)


def plain(value):
    """Return a value such that equal ones are the same to the bit: floats and arrays as bytes."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return ("float", float(value).hex())
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return (type(value).__name__, value)


def is_distribution(values):
    """Return whether values are finite, non-negative and sum to one."""
    array = np.asarray(values)
    return bool(
        array.dtype == np.float64
        and np.isfinite(array).all()
        and (array >= 0).all()
        and abs(array.sum() - 1) <= SUM_SLACK
    )


def _document(place, name, save, load, sound):
    path = place / f"{name}.json"
    save(path)
    data = path.read_bytes()

    def read(content):
        path.write_bytes(content)
        return load(path)

    return Kind(name, data, read, sound, mutations.document)


def alignment(place):
    """Return an alignment's file."""
    aligned = fa.align(IMPORTANCE, LAW)
    return _document(place, "alignment", aligned.save, fa.Alignment.load, _is_alignment)


def named_alignment(place):
    """Return the file of an alignment whose clients have names."""
    aligned = fa.align(IMPORTANCE, LAW, softness=0.1, clients=NAMES)

    def sound(found):
        names = found.clients
        distinct = names is None or len(set(names)) == len(names) == found.n_clients
        return distinct and _is_alignment(found)

    return _document(place, "named-alignment", aligned.save, fa.Alignment.load, sound)


def _is_alignment(found):
    size, levels = found.importance.size, found.levels.tolist()
    numbers = (found.residual, found.softness, found.effective_cohort_size)
    return (
        is_distribution(found.importance)
        and is_distribution(found.attained)
        and found.potentials.size == found.attained.size == len(levels) == size
        and bool(np.isfinite(found.potentials).all())
        and set(levels) == set(range(max(levels) + 1))
        and all(math.isfinite(number) and number >= 0 for number in numbers)
        and type(found.iterations) is int
        and found.iterations >= 0
        and 1 - SUM_SLACK <= found.effective_cohort_size <= size + SUM_SLACK
        and is_distribution(found.weights(range(size)))
    )


def online(place):
    """Return an online aligner's file."""
    aligner = fa.OnlineAligner(IMPORTANCE, step=0.3)
    return _aligner(place, "online", aligner, fa.OnlineAligner)


def soft_online(place):
    """Return a soft online aligner's file."""
    aligner = fa.SoftOnlineAligner(IMPORTANCE, softness=0.2, step=0.3)
    return _aligner(place, "soft-online", aligner, fa.SoftOnlineAligner)


def _aligner(place, name, aligner, kind):
    for cohort in ([0, 1], [1, 2, 3], [0, 4], [0]) * 3:
        aligner.observe(cohort)

    def load(path):
        return kind.load(path).state_dict()

    def sound(state):
        found = kind.from_state(state)
        shares = [found.weights(range(found.n_clients)), found.importance]
        shares += [found.observe([0]) for _ in range(3)]
        again = kind.from_state(found.state_dict())
        shares.append(again.weights(range(found.n_clients)))
        realised = is_distribution(found.realised) and bool((found.realised >= 0).all())
        return realised and all(map(is_distribution, shares))

    return _document(place, name, aligner.save, load, sound)


def _outcomes():
    from fedavot.experiments.outcome import Outcome

    for number, rule in enumerate(("fedavot", "fedavg")):
        yield Outcome(
            setting="text",
            rule=rule,
            knows="p and q",
            stores="nothing",
            seeds=(0, 1),
            recorded=np.array([1, 5, 9]),
            losses=np.array([[3.0, 2.0, 1.0], [3.0, 2.5, 1.5]]) + number,
            optimum=np.array([0.5, 0.25]),
            metrics={"tail_loss": [1.0, 1.5], "rounds_to_target": [9.0, np.inf]},
            seconds=0.5,
            message="",
            fingerprint="0123abcd",
        )


def outcome(place):
    """Return the file of what a rule did on a setting."""
    from fedavot.experiments.outcome import Outcome

    return _document(place, "outcome", next(_outcomes()).save, Outcome.load, _is_outcome)


def _is_outcome(found):
    numbers = [value for values in found.metrics.values() for value in values]
    words = (found.setting, found.rule, found.knows, found.stores, found.message, found.fingerprint)
    return (
        all(isinstance(word, str) for word in words)
        and found.losses.shape == (len(found.seeds), found.recorded.size)
        and bool(np.isfinite(found.losses).all())
        and all(type(seed) is int and seed >= 0 for seed in found.seeds)
        and all(len(values) == len(found.seeds) for values in found.metrics.values())
        and not any(math.isnan(number) for number in numbers)
        and (found.optimum is None or found.optimum.shape == (len(found.seeds),))
        and sorted(set(found.recorded.tolist())) == found.recorded.tolist()
        and math.isfinite(found.seconds)
        and bool(found.rows())
    )


def study(place):
    """Return the file of a study beside the runs it tells of."""
    from fedavot.experiments.outcome import file_name
    from fedavot.experiments.report import reopen, report
    from fedavot.experiments.study import Panel, Study

    outcomes = list(_outcomes())
    (place / "runs").mkdir()
    for one in outcomes:
        one.save(place / "runs" / file_name(one.setting, one.rule))
    study = Study("tiny", "Tiny", "", draw=lambda outcomes, stem: [])
    share = np.array(IMPORTANCE)
    panel = Panel("text", share, share / 2, True, "as printed", ("fedavot", "fedavg"))
    report(study, [panel], outcomes, place)

    def load(path):
        found, panels, outcomes = reopen(study, place)
        return found.title, panels, outcomes

    def sound(found):
        title, panels, outcomes = found
        return (
            isinstance(title, str)
            and all(is_distribution(one.importance) for one in panels)
            and all(_is_share(one.inclusion, one.importance.size) for one in panels)
            and all(map(_is_outcome, outcomes))
        )

    return _document(place, "study", lambda path: None, load, sound)


def _is_share(values, size):
    inside = values is None or ((values >= 0) & (values <= 1 + SUM_SLACK)).all()
    return bool(inside) and (values is None or values.size == size)


def findings(place):
    """Return the findings of an audit, compared with the audit itself."""
    from fedavot import audit
    from fedavot.audit.report.comparison import compare
    from fedavot.audit.report.document import read_findings, write_findings

    rng = np.random.default_rng(0)
    lines = ["round,client,status"]
    lines += [
        f"{number},{name},replied"
        for number in range(1, 61)
        for name in NAMES[:4]
        if rng.random() < 0.6
    ]
    log = place / "log.csv"
    log.write_text("\n".join(line.replace('"', '""') for line in lines) + "\n", encoding="utf-8")
    found = audit.audit(audit.federation_of(audit.read_log(log)))

    def load(path):
        document = read_findings(path)
        return document, compare(document, found)

    def sound(read):
        words = [word for change in read[1] for word in change]
        return isinstance(read[0], dict) and all(isinstance(word, str) for word in words)

    def save(path):
        write_findings(found, path)

    return _document(place, "findings", save, load, sound)


def _archive(path, data, name, load, sound, inner=None):
    def read(content):
        path.write_bytes(content)
        return load()

    def mutate(content, rng):
        return mutations.archive(content, rng, inner=inner)

    return Kind(name, data, read, sound, mutate)


def training(place):
    """Return a checkpoint of training."""
    from fedavot.training.checkpoint import Checkpoint

    carry = {"average": np.zeros((2, 3), np.float32), "params": np.ones((2, 3), np.float32)}
    path = place / "run.npz"
    checkpoint = Checkpoint(path, "0123abcd", carry)
    checkpoint.save(carry, [5, 10], np.array([[2.0, 1.0], [3.0, 1.5]]))

    def load():
        found = checkpoint.load()
        leaves = {name: np.asarray(leaf) for name, leaf in found.carry.items()}
        return leaves, found.recorded, found.losses

    def sound(found):
        leaves, recorded, losses = found
        alike = all(leaves[name].shape == leaf.shape for name, leaf in carry.items())
        return alike and recorded[-1] > 0 and losses.shape == (2, len(recorded))

    return _archive(path, path.read_bytes(), "training", load, sound)


def flower(place):
    """Return a checkpoint of a Flower run."""
    from fedavot.flower.kept.checkpoint import FILE, Checkpoint

    aligner = fa.OnlineAligner(IMPORTANCE, step=2.0)
    aligner.observe([0, 3])
    meta = {
        "round": 3,
        "evaluated": True,
        "model": ["w", "b"],
        "strategy": [{"class": "FedAvg", "lost": [], "own": None, "data": {}, "objects": {}}],
        "weigher": {"kind": "listed", "names": NAMES, "aligner": aligner.state_dict()},
        "norms": [1.0, 2.0, float("inf")],
        "results": {"train_metrics_clientapp": [[1, {"loss": float("nan")}]]},
    }
    arrays = {"model/0": np.ones((2, 3), np.float32), "model/1": np.zeros(2), "memory": np.ones(8)}
    Checkpoint(meta, arrays).save(place)
    path = place / FILE

    def load():
        found = Checkpoint.load(place)
        return json.dumps(found.meta, sort_keys=True), dict(sorted(found.arrays.items()))

    def sound(found):
        meta = json.loads(found[0])
        whole = meta["format"] == "fedavot-flower-checkpoint" and meta["version"] == 3
        return whole and all(isinstance(array, np.ndarray) for array in found[1].values())

    return _archive(path, path.read_bytes(), "flower", load, sound, inner="meta")


def _memory(place):
    """Leave a memory whose last rows are in the journal; return how to recover it."""
    from fedavot.flower.memory.rows import JOURNAL, ROWS, Rows

    memory = Rows(place, 6, np.dtype(np.float32))
    rows = [np.arange(6, dtype=np.float32) + number for number in range(4)]
    for number, clients in enumerate(([0, 1, 3], [2]), start=1):
        memory.stage(clients, [rows[client] for client in clients])
        memory.write_journal(number)
        if number == 1:
            memory.commit()
    digests, size = memory.digests.copy(), memory.bytes_on_disk()
    held = {name: (place / name).read_bytes() for name in (ROWS, JOURNAL)}

    def recover():
        found = Rows(place, 6, np.dtype(np.float32))
        found.recover(2, size, digests)
        return (place / ROWS).read_bytes()[:size]

    return held, recover


def journal(place):
    """Return the journal of a memory, as a crash leaves it."""
    from fedavot.flower.memory.rows import JOURNAL, ROWS

    held, recover = _memory(place)

    def load():
        (place / ROWS).write_bytes(held[ROWS])
        return recover()

    # Rows have digests in the checkpoint, so that no other journal passes.
    return _archive(place / JOURNAL, held[JOURNAL], "journal", load, lambda found: False)


def rows(place):
    """Return the rows of a memory, which are bare numbers."""
    from fedavot.flower.memory.rows import JOURNAL, ROWS

    held, recover = _memory(place)

    def read(content):
        (place / ROWS).write_bytes(content)
        (place / JOURNAL).write_bytes(held[JOURNAL])
        return recover()

    def mutate(content, rng):
        return mutations.mangled(content, rng), "kept"

    return Kind("rows", held[ROWS], read, lambda found: False, mutate)


MAKERS = {
    "alignment": alignment,
    "named-alignment": named_alignment,
    "online": online,
    "soft-online": soft_online,
    "outcome": outcome,
    "study": study,
    "findings": findings,
    "training": training,
    "flower": flower,
    "journal": journal,
    "rows": rows,
}
