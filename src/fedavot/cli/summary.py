"""The summary of an audit on a terminal: the recommendation first, then the findings behind it.

Names of clients and groups come from a log. They are printed as plain text, without markup and
without control characters.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedavot._checks import Integers
from fedavot.audit.decision.rules import label, recommended
from fedavot.audit.findings import Findings, Shares
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.numerals import (
    ISOLATE,
    ISOLATED,
    NARROW,
    NOTHING,
    count,
    ends,
    share,
    shown,
    size,
)
from fedavot.audit.report.words import headline, sections

MOST_ROWS = 12
"""Rows of the table of groups or, without groups, of the clients with the largest deviations."""
OBJECTIVE = 2
"""Sentences on the objective, besides what is owed; the table below them has the rest."""
WIDEST = 100
"""Largest width of the text: longer lines are hard to read."""
NARROWEST = 40
"""Smallest width that is used; some terminals report a width of zero."""
BULLET = "  - "
STAND_IN = "\ue000"
"""Stands in for a space at which a line must not break, since Rich breaks at any space."""
LONGEST = 30
"""Longest name that leaves room for the numbers in 80 columns."""


def show(
    console: Console,
    findings: Findings,
    changes: Sequence[Change] | None,
    files: Iterable[Path],
) -> None:
    """Print a summary and the files written; changes are None without an earlier audit."""
    console.width = max(console.width, NARROWEST)
    told = sections(findings)
    _recommend(console, findings, told["advice"].sentences)
    for key in ("objective", "reach", "behaviour", "price"):
        section, most = told[key], None
        if key == "objective":
            most = OBJECTIVE + findings.owes_otherwise
        _say(console, section.title, section.sentences[:most])
        if key == "objective":
            _tabulate(console, _parts(findings))
        elif key == "price":
            _tabulate(console, _rules(findings))
    if changes is not None:
        nothing = ("Nothing changed since the earlier audit.",)
        _say(console, "What changed", tuple(one.words for one in changes) or nothing)
    _say(console, told["log"].title, told["log"].sentences)
    _say(console, "Files", ())
    for file in files:
        console.print(Text(f"{BULLET}{file}"), soft_wrap=True)


def _recommend(console: Console, findings: Findings, sentences: Sequence[str]) -> None:
    inside = _width(console) - 4
    body = Text("\n".join(_wrapped(console, headline(findings), inside)), style="bold")
    for sentence in sentences:
        body.append("\n\n" if sentence is sentences[0] else "\n", style="not bold")
        body.append("\n".join(_wrapped(console, sentence, inside)), style="not bold")
    title = Text(f"fedavot audit: {shown(findings.source)}")
    console.print(Panel(body, title=title, title_align="left", width=_width(console)))


def _say(console: Console, title: str, sentences: Sequence[str]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for sentence in sentences:
        for number, line in enumerate(_wrapped(console, sentence, _width(console) - len(BULLET))):
            console.print(Text(f"{' ' * len(BULLET) if number else BULLET}{line}"))


def _wrapped(console: Console, words: str, width: int) -> list[str]:
    """Break a sentence into lines, never between a number and its unit."""
    for mark in (ISOLATE, ISOLATED):  # Rich takes them to be as wide as letters.
        words = words.replace(mark, "")
    lines = Text(words.replace(NARROW, STAND_IN)).wrap(console, max(8, width))
    return [line.plain.rstrip().replace(STAND_IN, " ") for line in lines]


def _tabulate(console: Console, table: Table) -> None:
    console.print()
    console.print(Padding(table, (0, 0, 0, len(BULLET)), expand=False))


def _width(console: Console) -> int:
    return min(console.width, WIDEST)


def _parts(findings: Findings) -> Table:
    """Return importance and weights by group, or by client, the largest deviations first."""
    grouped = findings.by_group is not None
    parts = findings.by_group or findings.by_client
    names = findings.groups if grouped else findings.clients
    chosen = _furthest(parts)
    wanted = "owed" if findings.owes_otherwise else "importance"
    headings = (wanted, "plain\naverage", "closest\npossible", "rounds\nwith it")
    table = _table("group" if grouped else "client", *headings)
    for at in chosen.tolist():
        values = (parts.owed, parts.implied, parts.attained, parts.inclusion)
        table.add_row(
            Text(shown(names[at], LONGEST)), *(_plain(share(value[at])) for value in values)
        )
    if chosen.size < len(names):
        more = count(len(names) - chosen.size, "group" if grouped else "client")
        _caption(table, f"The largest deviations; {more} more in the report.")
    return table


def _furthest(parts: Shares) -> Integers:
    """Return the rows with the largest deviations, those with too little weight first."""
    excess = parts.implied - parts.owed
    order = np.argsort(excess, kind="stable")
    if order.size <= MOST_ROWS:
        return order
    half = MOST_ROWS // 2
    rows = np.concatenate((order[:half], order[-half:]))
    off = rows[np.abs(excess[rows]) > NOTHING]
    return off if off.size else rows


def _rules(findings: Findings) -> Table:
    """Return how every rule does; the recommended one, if any, is marked."""
    best, judged = recommended(findings.advice), findings.has_held_out
    held_out = ("gap,\nheld out", "95 % interval") if judged else ()
    table = _table("rule", "gap", "effective\ncohort size", *held_out)
    for one in findings.price.standings:
        chosen = one.rule == best
        held = one.held_out_gap
        table.add_row(
            Text(f"{label(one.rule)} *" if chosen else label(one.rule)),
            _plain(share(one.gap)),
            _plain(size(one.effective_cohort_size)),
            *((_plain(share(held.value)), _plain(ends(held))) if judged else ()),
            style="bold" if chosen else "",
        )
    if best is not None:
        _caption(table, "* recommended")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, overflow="fold", min_width=12)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _caption(table: Table, words: str) -> None:
    table.caption, table.caption_justify = Text(_plain(words)), "left"


def _plain(words: str) -> str:
    """Return words with ordinary spaces, which every terminal can print."""
    return words.replace(NARROW, " ")
