"""Every kind of file that the library saves and reads again: how to make, read and judge one.

What was read is judged by checks of its own: distributions are finite, non-negative and sum to one,
lengths agree, weights of any cohort are a distribution.
"""

import dataclasses
import math

import numpy as np

import fedavot as fa
import fedavot.alignment
from attacks import mutations, saved_archives
from attacks.saved_archives import IMPORTANCE, NAMES, Kind

LAW = fa.Cohorts([[0, 1], [1, 2, 3], [0, 4], [2, 4], [0]], probabilities=[0.1, 0.3, 0.2, 0.2, 0.2])
SUM_SLACK = 1e-6


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
    aligner = fa.OnlineAligner(IMPORTANCE, softness=0, step=0.3)
    return _aligner(place, "online", aligner, fa.OnlineAligner)


def soft_online(place):
    """Return a soft online aligner's file."""
    aligner = fa.OnlineAligner(IMPORTANCE, softness=0.2, step=0.3)
    return _aligner(place, "soft-online", aligner, fa.OnlineAligner)


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


MAKERS = {
    "alignment": alignment,
    "named-alignment": named_alignment,
    "online": online,
    "soft-online": soft_online,
    "outcome": outcome,
    "study": study,
    "findings": findings,
    **saved_archives.MAKERS,
}
