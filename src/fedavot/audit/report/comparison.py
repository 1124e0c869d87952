"""What changed since an earlier audit: its findings.json against the findings of now.

A figure has changed if it differs at the digits that are shown. If both audits have an interval for
the long run, the words say whether the two overlap; if they do, the change may be chance.
`document` reads the earlier file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from fedavot.audit.findings import Findings
from fedavot.audit.report.availability_words import LAWS
from fedavot.audit.report.document import findings_document
from fedavot.audit.report.numerals import NARROW, amount, count, listed, share, shown, size

NAMED = 5
"""How many clients are named before the rest are counted."""
MOST_GROUPS = 10
"""How many groups are listed, the largest changes first."""


class Change(NamedTuple):
    """One thing that changed.

    Attributes
    ----------
    name : str
        What it is.
    before, after : str
        The earlier value and the present one, in short.
    words : str
        The change in a sentence or two.
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
        The present findings.

    Returns
    -------
    tuple of Change
        The importance and the recommendation first, then the figures behind it, then the log. Empty
        if nothing changed.
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
            "The clients or their importance differ from the earlier audit. The gaps belong to "
            "different objectives, so the federation itself need not have changed.",
        )


def _advice(old: _Document, new: _Document) -> Iterator[Change]:
    before, after, reason = _action(old), _action(new), new["advice"]["reason"]
    if before != after:
        yield Change(
            "recommendation",
            before,
            after,
            f"The recommendation is now: {after}. It was: {before}. {reason}".rstrip(),
        )


def _action(document: _Document) -> str:
    advice = document["advice"]
    words = shown(advice["action"])
    if advice["softness"] > 0:
        words += f", softness {advice['softness']:.4g}"
    return f"{words}, learned during training" if advice["online"] else words


def _gap(old: _Document, new: _Document) -> Iterator[Change]:
    gaps = (old["gap"], new["gap"])
    yield from _figure("gap of the plain average", gaps, "The gap of the plain average is {}")
    before, after = (share(document["tolerance"]) for document in (old, new))
    if before != after:
        words = f"The largest gap that calls for no action is {after}; it was {before}."
        yield Change("tolerance", before, after, words)


def _figure(name: str, estimates: tuple[_Document, _Document], sentence: str) -> Iterator[Change]:
    """Compare two shares that have intervals for the long run."""
    before, after = (share(estimate["value"]) for estimate in estimates)
    if before != after:
        words = f"{sentence.format(after)}; before, it was {before}."
        yield Change(name, before, after, f"{words} {_overlap(*estimates)}")


def _overlap(before: _Document, after: _Document) -> str:
    low, high = max(_ends(before)[0], _ends(after)[0]), min(_ends(before)[1], _ends(after)[1])
    if low <= high:
        return f"The two 95{NARROW}% intervals overlap, so this may be chance."
    return f"The two 95{NARROW}% intervals do not overlap: this is more than chance."


def _ends(estimate: _Document) -> tuple[float, float]:
    low, high = estimate["low"], estimate["high"]
    return -inf if low is None else low, inf if high is None else high


def _groups(old: _Document, new: _Document) -> Iterator[Change]:
    before, after = (_by_group(document) for document in (old, new))
    yield from _members("groups", [*before], [*after], "group", "in the audit")
    found = []
    for group in (group for group in after if group in before):
        for key, name, words in (
            ("importance", "importance", "has an importance of {}"),
            ("implied", "plain average", "gets {} of the plain average"),
        ):
            was, now = before[group][key], after[group][key]
            if share(was) != share(now):
                told = f"Group {shown(group)} {words.format(share(now))}; it was {share(was)}."
                change = Change(f"{name}, {shown(group)}", share(was), share(now), told)
                found.append((abs(now - was), change))
    # A stable sort keeps the order of the groups among equals.
    yield from (change for _, change in sorted(found, key=lambda one: -one[0])[:MOST_GROUPS])


def _by_group(document: _Document) -> dict[str, dict[str, float]]:
    """Return every group's shares, by its name."""
    shares = document["by_group"] or {}
    columns = {key: shares[key] for key in ("importance", "implied") if key in shares}
    return {
        group: {key: values[at] for key, values in columns.items()}
        for at, group in enumerate(document["groups"])
    }


def _reach(old: _Document, new: _Document) -> Iterator[Change]:
    was, now = old["reach"], new["reach"]
    yield from _possible(was, now)
    yield from _figure(
        "importance out of reach",
        (was["deficiency"], now["deficiency"]),
        "The importance that no weights can deliver is {}",
    )
    if not (was["feasible"] and now["feasible"]):
        yield from _ratio(was["hall_ratio"]["value"], now["hall_ratio"]["value"])
    for name, before, after, words in (
        (
            *("clients out of reach", was["deficient"]["clients"], now["deficient"]["clients"]),
            "with more importance than their rounds allow",
        ),
        (
            *("clients never seen", was["never_seen"], now["never_seen"]),
            "with importance and without any round",
        ),
    ):
        yield from _members(name, before, after, "client", words)


def _ratio(old: float | None, new: float | None) -> Iterator[Change]:
    before, after = (amount(inf if ratio is None else ratio) for ratio in (old, new))
    if before != after:
        words = f"The Hall ratio, of the worst set of clients, is {after}; before, it was {before}."
        yield Change("Hall ratio", before, after, words)


def _possible(old: _Document, new: _Document) -> Iterator[Change]:
    was, now = ("possible" if part["feasible"] else "not possible" for part in (old, new))
    sure = [part["sure"] for part in (old, new)]
    before, after = (
        words if known else f"{words}, uncertain"
        for words, known in zip((was, now), sure, strict=True)
    )
    if before == after:
        return
    told = f"It is now {now} to give every client its importance; before, it was {was}."
    if was == now:
        told = f"It is {now}, as before, to give every client its importance."
    if not sure[1]:
        told += " The log is too short to be certain about the long run."
    elif not sure[0]:
        told += " The log is now long enough to be certain about the long run."
    yield Change("exact alignment", before, after, told)


def _members(
    name: str, before: Sequence[str], after: Sequence[str], what: str, words: str
) -> Iterator[Change]:
    """Compare two sets: which members are new, and which are gone."""
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
    used = (_recommended(old), _recommended(new))
    if all(used):
        yield from _plain(
            "gap attained", "gap", share, "The recommended rule has a gap of {}", used
        )
        yield from _plain(
            *("effective cohort size", "effective_cohort_size", size),
            "The recommended rule has an effective cohort size of {}",
            used,
        )
    before, after = (
        LAWS.get(document["fit"]["law"], shown(document["fit"]["law"])) for document in (old, new)
    )
    if before != after:
        words = f"Availability is now best described by {after}; before, by {before}."
        yield Change("law of availability", before, after, words)


def _recommended(document: _Document) -> _Document:
    """Return the standing of the recommended rule; nothing if none is, or was not measured."""
    advice, standings = document["advice"], document["price"]["standings"]
    rule = None if advice["action"] == "collect more rounds" else advice["rule"]
    return next((one for one in standings if one["rule"] == rule), {})


def _plain(
    name: str,
    key: str,
    tell: Callable[[float], str],
    sentence: str,
    documents: Sequence[_Document],
) -> Iterator[Change]:
    """Compare two figures, either of which may be unknown."""
    before, after = (
        "unknown" if document.get(key) is None else tell(document[key]) for document in documents
    )
    if before != after:
        yield Change(name, before, after, f"{sentence.format(after)}; before: {before}.")


def _log(old: _Document, new: _Document) -> Iterator[Change]:
    yield from _members("clients", old["clients"], new["clients"], "client", "in the audit")
    for name, key, sentence in (
        ("rounds", "rounds", "The log has {} with participants"),
        ("empty rounds", "empty_rounds", "Nobody took part in {}"),
    ):
        before, after = (count(document[key], "round") for document in (old, new))
        if before != after:
            yield Change(name, before, after, f"{sentence.format(after)}; before: {before}.")
    documents = (old, new)
    sizes = tuple({"size": one["entries"] / max(one["rounds"], 1)} for one in documents)
    yield from _plain("clients per round", "size", size, "A round has {} clients", sizes)
    yield from _plain(
        *("unknown states", "unknown_share", share),
        "The client's state is unknown in {} of all pairs of client and round",
        documents,
    )
    before, after = (shown(document["source"]) for document in documents)
    if before != after:
        yield Change("log", before, after, f"The log is {after}; it was {before}.")
