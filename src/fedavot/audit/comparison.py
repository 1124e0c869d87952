"""What changed since the last audit: the earlier findings.json against the findings of now.

A figure has changed if it reads otherwise at the digits that are shown. Where both audits have an
interval for the long run, the words say whether the two overlap: if they do, the change may be
chance. Reading the earlier file is left to `document`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from fedavot.audit.availability_words import LAWS
from fedavot.audit.document import findings_document
from fedavot.audit.findings import Findings
from fedavot.audit.numerals import NARROW, share
from fedavot.audit.telling import amount, count, listed, shown, size

NAMED = 5
"""How many clients are named before the rest are counted."""
MOST_GROUPS = 10
"""How many groups are spoken of, those that changed most."""


class Change(NamedTuple):
    """One thing that is not as it was.

    Attributes
    ----------
    name : str
        What it is.
    before, after : str
        How it was and how it is, short.
    words : str
        The same in a sentence or two.
    """

    name: str
    before: str
    after: str
    words: str


def compare(old: Mapping[str, Any], findings: Findings) -> tuple[Change, ...]:
    """Say what changed since an earlier audit.

    Parameters
    ----------
    old : mapping
        The earlier findings, as `read_findings` gives them.
    findings : Findings
        What was found now.

    Returns
    -------
    tuple of Change
        The importance and the recommendation first, then what it rests on, then the log. Empty if
        nothing changed.
    """
    new = findings_document(findings)
    return tuple(
        change
        for part in (_importance, _advice, _gap, _groups, _reach, _rule, _log)
        for change in part(old, new)
    )


_Document = Mapping[str, Any]


def _importance(old: _Document, new: _Document) -> Iterator[Change]:
    if old.get("importance_digest") != new["importance_digest"]:
        yield Change(
            "importance",
            "another",
            "as given now",
            "The clients or their importance are not those of the earlier audit, so the gaps are "
            "of different objectives: what changed need not be the federation.",
        )


def _advice(old: _Document, new: _Document) -> Iterator[Change]:
    before, after = _action(old), _action(new)
    if before != after:
        yield Change(
            "recommendation",
            before,
            after,
            f"The recommendation is now: {after}. It was: {before}. {new['reason']}".rstrip(),
        )


def _action(document: _Document) -> str:
    words = shown(document["recommendation"])
    if document["softness"] > 0:
        words += f", softness {document['softness']:.4g}"
    return f"{words}, learned on the way" if document["online"] else words


def _gap(old: _Document, new: _Document) -> Iterator[Change]:
    yield from _figure(
        "gap of the plain average", "gap_fedavg", old, new, "The plain average is off by {}"
    )
    before, after = (f"{document['tolerance']:.4g}" for document in (old, new))
    if before != after:
        words = f"The gap up to which nothing needs to be done is {after}; it was {before}."
        yield Change("tolerance", before, after, words)


def _figure(name: str, key: str, old: _Document, new: _Document, sentence: str) -> Iterator[Change]:
    """Compare two figures of the log that have intervals for the long run."""
    before, after = amount(old[key]), amount(new[key])
    if before == after:
        return
    words = f"{sentence.format(after)}; before, it was {before}."
    told = _overlap(old[f"{key}_interval"], new[f"{key}_interval"])
    yield Change(name, before, after, f"{words} {told}".rstrip())


def _overlap(before: Sequence[float | None], after: Sequence[float | None]) -> str:
    low, high = max(_ends(before)[0], _ends(after)[0]), min(_ends(before)[1], _ends(after)[1])
    if low <= high:
        return f"The two 95{NARROW}% intervals overlap, so this may be chance."
    return f"The two 95{NARROW}% intervals do not overlap: this is more than chance."


def _ends(interval: Sequence[float | None]) -> tuple[float, float]:
    low, high = interval
    return -inf if low is None else low, inf if high is None else high


def _groups(old: _Document, new: _Document) -> Iterator[Change]:
    before, after = ({row["group"]: row for row in document["groups"]} for document in (old, new))
    yield from _members("groups", [*before], [*after], "group", "in the audit")
    found = []
    for group in (group for group in after if group in before):
        for key, name, words in (
            ("importance", "importance", "should count {}"),
            ("plain_average", "plain average", "gets {} of the plain average"),
        ):
            was, now = before[group][key], after[group][key]
            if share(was) != share(now):
                told = f"Group {shown(group)} {words.format(share(now))}; it was {share(was)}."
                change = Change(f"{name}, {shown(group)}", share(was), share(now), told)
                found.append((abs(now - was), change))
    # A stable sort keeps the order of the groups among equals.
    yield from (change for _, change in sorted(found, key=lambda one: -one[0])[:MOST_GROUPS])


def _reach(old: _Document, new: _Document) -> Iterator[Change]:
    yield from _possible(old, new)
    yield from _figure(
        *("importance out of reach", "deficiency", old, new),
        "The importance that no weights can deliver is {}",
    )
    if not (old["feasible"] and new["feasible"]):
        yield from _ratio(old["hall_ratio"], new["hall_ratio"])
    for name, key, words in (
        ("clients out of reach", "deficient", "wanted more than they can be had"),
        ("clients never seen", "never_seen", "wanted and never seen"),
    ):
        yield from _members(name, old[key], new[key], "client", words)


def _ratio(old: float | None, new: float | None) -> Iterator[Change]:
    before, after = (amount(inf if ratio is None else ratio) for ratio in (old, new))
    if before != after:
        words = f"The worst set is {after} times too important; before, it was {before} times."
        yield Change("Hall ratio", before, after, words)


def _possible(old: _Document, new: _Document) -> Iterator[Change]:
    was, now = ("possible" if part["feasible"] else "not possible" for part in (old, new))
    sure = [part["feasible_sure"] for part in (old, new)]
    before, after = (
        words if known else f"{words}, in doubt"
        for words, known in zip((was, now), sure, strict=True)
    )
    if before == after:
        return
    told = f"It is now {now} to give every client its importance; before, it was {was}."
    if was == now:
        told = f"It is {now}, as before, to give every client its importance."
    if not sure[1]:
        told += " The log is too short to be sure of the long run."
    elif not sure[0]:
        told += " The log is now long enough to be sure of the long run."
    yield Change("exact alignment", before, after, told)


def _members(
    name: str, before: Sequence[str], after: Sequence[str], what: str, words: str
) -> Iterator[Change]:
    """Compare two sets: who joined, and who left."""
    was, now = set(before), set(after)
    joined = [shown(member) for member in after if member not in was]
    left = [shown(member) for member in before if member not in now]
    told = []
    if joined:
        told.append(f"Now {words}: {listed(joined, NAMED)}.")
    if left:
        told.append(f"No longer {words}: {listed(left, NAMED)}.")
    if told:
        yield Change(name, count(len(was), what), count(len(now), what), " ".join(told))


def _rule(old: _Document, new: _Document) -> Iterator[Change]:
    for name, key, tell, sentence in (
        ("gap attained", "gap_attained", amount, "What is recommended leaves a gap of {}"),
        (
            *("effective cohort size", "effective_cohort_size", size),
            "What is recommended averages as well as {} equally weighted clients",
        ),
    ):
        yield from _plain(name, key, tell, sentence, (old, new))
    before, after = (LAWS.get(document["law"], shown(document["law"])) for document in (old, new))
    if before != after:
        words = f"Availability is now best described by {after}; before, by {before}."
        yield Change("law of availability", before, after, words)


def _plain(
    name: str,
    key: str,
    tell: Callable[[float], str],
    sentence: str,
    documents: tuple[_Document, _Document],
) -> Iterator[Change]:
    """Compare two figures, either of which may be unknown."""
    before, after = (
        "unknown" if document[key] is None else tell(document[key]) for document in documents
    )
    if before != after:
        yield Change(name, before, after, f"{sentence.format(after)}; before: {before}.")


def _log(old: _Document, new: _Document) -> Iterator[Change]:
    yield from _members(
        "clients", old["client_names"], new["client_names"], "client", "in the audit"
    )
    for name, key, sentence in (
        ("rounds", "rounds", "The log has {} with anybody"),
        ("empty rounds", "empty_rounds", "Nobody took part in {}"),
    ):
        before, after = (count(document[key], "round") for document in (old, new))
        if before != after:
            yield Change(name, before, after, f"{sentence.format(after)}; before: {before}.")
    documents = (old, new)
    yield from _plain("clients a round", "mean_cohort", size, "A round has {} clients", documents)
    yield from _plain(
        *("state not known", "unknown_share", share),
        "Whether a client took part is not known in {} of cases",
        documents,
    )
    before, after = (shown(document["source"]) for document in documents)
    if before != after:
        yield Change("log", before, after, f"The log is {after}; it was {before}.")
