"""The summary of an audit on a terminal: the recommendation first, then the findings behind it.

Names of clients and groups come from a log. They are printed as plain text, without markup and
without control characters.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedavot.audit.findings import Findings
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.tables import (
    BEST,
    NOW,
    SECOND,
    Column,
    replay_table,
    rules_table,
    shares_table,
)
from fedavot.audit.report.tables import Table as Tabular
from fedavot.audit.report.terms import ISOLATE, ISOLATED, NARROW, shown
from fedavot.audit.report.words import headline, sections

MOST_ROWS, HALF = 12, 6
"""Rows of the table of groups or, without groups, of the clients with the largest deviations."""
SIGNS = {BEST: "*", SECOND: "+", NOW: "<"}
"""What marks the rows of rules."""
OBJECTIVE = 2
"""Sentences on the objective, besides what is owed; the table below them has the rest."""
WIDEST = 100
"""Largest width of the text: longer lines are hard to read."""
NARROWEST = 40
"""Smallest width that is used; some terminals report a width of zero."""
BULLET = "  - "
LEFT_OUT = ("Needs", "Times full participation", "Largest sum", "Effective cohort, held out")
"""Columns of rules that only the report has room for."""
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
    for key in ("objective", "replay", "reach", "behaviour", "price"):
        section, most = told[key], None
        if key == "objective":
            most = OBJECTIVE + findings.owes_otherwise
        _say(console, section.title, section.sentences[:most])
        if key == "objective":
            _tabulate(console, _shares(findings))
        elif key == "price":
            _tabulate(console, _rules(rules_table(findings)))
        elif key == "replay" and (replayed := replay_table(findings)) is not None:
            _tabulate(console, _rules(replayed))
    if changes is not None:
        nothing = ("Nothing changed since the earlier audit.",)
        _say(console, "What changed", tuple(one.words for one in changes) or nothing)
    _say(console, told["log"].title, told["log"].sentences)
    how = ("How to follow the recommendation, with code, is in report.html.",)
    _say(console, "Files", how if findings.recommendation.best else ())
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


def _shares(findings: Findings) -> Table:
    """Return importance and weights by group, or by client, the largest deviations first."""
    made = shares_table(findings, grouped=findings.by_group is not None)
    left_out = ("Group", "Deviation", "Importance" if findings.owes_otherwise else "")
    columns = [made.columns[0], *(one for one in made.columns[1:] if one.heading not in left_out)]
    deviation = next(one for one in made.columns if one.heading == "Deviation")
    order = sorted(range(made.n_rows), key=lambda row: deviation.cells[row].value)
    rows = order if len(order) <= MOST_ROWS else order[:HALF] + order[-HALF:]
    table = _table(columns, rows)
    if len(rows) < made.n_rows:
        _caption(table, f"The largest deviations; {made.n_rows - len(rows)} more in the report.")
    return table


def _rules(made: Tabular) -> Table:
    """Return how every rule does, those in use and recommended marked."""
    columns = [one for one in made.columns if one.heading not in LEFT_OUT]
    table = _table(columns, range(made.n_rows), made)
    used = {word for words in made.badges.values() for word in words}
    _caption(table, "; ".join(f"{SIGNS[word]} {word}" for word in SIGNS if word in used))
    return table


def _table(columns: Sequence[Column], rows: Iterable[int], made: Tabular | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(columns[0].heading, overflow="fold", min_width=12)
    for column in columns[1:]:
        # On two lines, so that names have room.
        start, _, rest = column.heading.partition(" ")
        heading = f"{start}\n{rest}" if rest and rest[0] != "=" else column.heading
        table.add_column(_plain(heading), justify="right", no_wrap=True)
    for row in rows:
        words = made.badges.get(row, ()) if made else ()
        signs = "".join(f" {SIGNS[word]}" for word in words)
        first, *others = (column.cells[row] for column in columns)
        name = shown(first.text, LONGEST) if columns[0].names else first.text
        cells = (_plain(f"{one.text} ({one.note})" if one.note else one.text) for one in others)
        table.add_row(Text(f"{name}{signs}"), *cells, style="bold" if BEST in words else "")
    return table


def _caption(table: Table, words: str) -> None:
    table.caption, table.caption_justify = Text(_plain(words)), "left"


def _plain(words: str) -> str:
    """Return words with ordinary spaces, which every terminal can print."""
    return words.replace(NARROW, " ")
