"""What changed since an earlier audit: its findings.json compared with the current findings.

A figure has changed if it differs at the digits that are shown. If both audits have an interval for
the long run, the words say whether the two overlap; if they do, the change may be chance.
`document` reads the earlier file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, nan
from typing import Any, NamedTuple

from fedavot.audit.findings import Findings
from fedavot.audit.report.document import findings_document
from fedavot.audit.report.terms import NARROW, amount, count, listed, share, shown, size
from fedavot.audit.statistics.rules import label
from fedavot.errors import FileFormatError

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
        The earlier value and the current one, in short.
    words : str
        The change in a sentence or two.
    """

    name: str
    before: str
    after: str
    words: str


_Document = Mapping[str, Any]


def compare(old: Mapping[str, Any], findings: Findings) -> tuple[Change, ...]:
    """Say what changed since an earlier audit.

    Parameters
    ----------
    old : mapping
        The earlier findings, as returned by `read_findings`.
    findings : Findings
        The current findings.

    Returns
    -------
    tuple of Change
        The importance and the recommendation first, then the figures behind it, then the log. Empty
        if nothing changed.
    """
    new = findings_document(findings)
    parts = (_advice, _figures, _groups, _sets, _log)
    try:
        return tuple(change for part in parts for change in part(old, new))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as cause:
        # Its checksum is right, so it was edited and given a new checksum.
        raise FileFormatError(
            f"the earlier findings are not as an audit wrote them ({cause!r}); use its "
            "findings.json unchanged"
        ) from None


def _advice(old: _Document, new: _Document) -> Iterator[Change]:
    if old["importance_digest"] != new["importance_digest"]:
        yield Change(
            "importance",
            "another",
            "as given now",
            "The clients or their importance differ from the earlier audit. The gaps belong to "
            "different objectives, so the federation itself need not have changed.",
        )
    yield from _told("recommendation", old, new, _action)
    yield from _told("rule in use", old, new, lambda one: _rule(one["in_use"]))


def _action(document: _Document) -> str:
    advice = document["recommendation"]
    rule = f", with {_rule(advice['best']['rule'])}" if advice["best"] else ""
    return f"{shown(advice['action'])}{rule}"


def _rule(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the rule {name!r} is not a name")
    return shown(label(name))


def _told(
    name: str, old: _Document, new: _Document, tell: Callable[[_Document], str]
) -> Iterator[Change]:
    """Compare what two documents say about one thing."""
    before, after = tell(old), tell(new)
    if before != after:
        begin = "Exact alignment" if name == "exact alignment" else f"The {name}"
        yield Change(name, before, after, f"{begin} is now: {after}; before: {before}.")


def _figures(old: _Document, new: _Document) -> Iterator[Change]:
    yield from _estimate("gap of the plain average", old["gap"], new["gap"])
    yield from _told("tolerance", old, new, lambda one: _share(one["tolerance"]))
    was, now = old["reach"], new["reach"]
    yield from _told("exact alignment", was, now, _possible)
    yield from _estimate(
        "importance that no weights can deliver", was["deficiency"], now["deficiency"]
    )
    if not (was["feasible"] and now["feasible"]):
        yield from _told("Hall ratio", was, now, _ratio)


def _possible(reach: _Document) -> str:
    sure = "" if reach["sure"] else ", uncertain because the log is short"
    return f"{'possible' if reach['feasible'] else 'not possible'}{sure}"


def _ratio(reach: _Document) -> str:
    value = reach["hall_ratio"]["value"]
    return amount(inf if value is None else value)


def _estimate(name: str, old: _Document, new: _Document) -> Iterator[Change]:
    """Compare two shares that have intervals for the long run."""
    low = max(-inf if one["low"] is None else one["low"] for one in (old, new))
    high = min(inf if one["high"] is None else one["high"] for one in (old, new))
    chance = "overlap, so this may be chance" if low <= high else "do not overlap"
    for change in _told(name, old, new, lambda one: _share(one["value"])):
        yield change._replace(words=f"{change.words} The two 95{NARROW}% intervals {chance}.")


def _groups(old: _Document, new: _Document) -> Iterator[Change]:
    before, after = (_by_group(document) for document in (old, new))
    yield from _members("groups", [*before], [*after], "group")
    found = []
    for group in (group for group in before if group in after):
        for key, words in (("importance", "importance"), ("implied", "share of the plain average")):
            was, now = ({key: one[group][key]} for one in (before, after))
            name = f"{words} of group {shown(group)}"
            told = _told(name, was, now, lambda one: _share(*one.values()))
            found += [(abs((now[key] or 0.0) - (was[key] or 0.0)), change) for change in told]
    # A stable sort keeps the order of the groups among equals.
    yield from (change for _, change in sorted(found, key=lambda one: -one[0])[:MOST_GROUPS])


def _by_group(document: _Document) -> dict[str, dict[str, float | None]]:
    """Return every group's shares, by its name."""
    shares = document["by_group"]
    if shares is None:
        return {}
    columns = zip(shares["importance"], shares["implied"], strict=False)
    pairs = zip(document["groups"], columns, strict=False)
    return {group: {"importance": one, "implied": other} for group, (one, other) in pairs}


def _share(value: float | None) -> str:
    return share(nan if value is None else value)


def _sets(old: _Document, new: _Document) -> Iterator[Change]:
    was, now = old["reach"], new["reach"]
    for name, before, after in (
        ("clients out of reach", was["deficient"]["clients"], now["deficient"]["clients"]),
        ("clients never seen", was["never_seen"], now["never_seen"]),
        ("clients", old["clients"], new["clients"]),
    ):
        yield from _members(name, before, after, "client")


def _members(name: str, before: Sequence[str], after: Sequence[str], what: str) -> Iterator[Change]:
    """Compare two sets: which members are new, and which are gone."""
    was, now = set(before), set(after)
    joined = [shown(member) for member in after if member not in was]
    left = [shown(member) for member in before if member not in now]
    told = [
        f"{verb} the {name}: {listed(them, NAMED)}."
        for verb, them in (("Now among", joined), ("No longer among", left))
        if them
    ]
    if told:
        yield Change(name, count(len(was), what), count(len(now), what), " ".join(told))


def _log(old: _Document, new: _Document) -> Iterator[Change]:
    for name, tell in (
        ("number of rounds", lambda one: count(one["rounds"])),
        ("number of empty rounds", lambda one: count(one["empty_rounds"])),
        (
            "mean number of clients per round",
            lambda one: size(one["entries"] / max(one["rounds"], 1)),
        ),
        ("share of unknown states", lambda one: _share(one["unknown_share"])),
        ("log", lambda one: shown(one["source"])),
    ):
        yield from _told(name, old, new, tell)
