"""The tables of a report, made from findings.

Cells, columns and tables are data, which the page and the terminal each show in their own way. A
cell has a text and a sort key, so that shares sort as numbers however they are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.findings import Findings, Shares
from fedavot.audit.recommending import Estimate
from fedavot.audit.report import terms
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.terms import (
    ABSENT,
    MOST_TIMES,
    NARROW,
    digits_of,
    number,
    share,
    size,
    times,
)
from fedavot.audit.statistics.rules import FULL, label

MOST_ROWS = 500
"""Largest number of rows of the tables of clients and groups: a page with more would be slow to
open, and the files have all of them."""
NOW, BEST, SECOND = "what you do now", "recommended", "second best, needs nothing"


class Cell(NamedTuple):
    """A cell: its text, its sort key, a note after it, and the length of a bar, −1 to 1."""

    text: str
    value: float | str
    note: str = ""
    bar: float | None = None

    @property
    def sorts_by(self) -> str:
        """The sort key as text; empty, which sorts last, if the cell has no number."""
        return "" if isinstance(self.value, float) and np.isnan(self.value) else str(self.value)


@dataclass(frozen=True)
class Column:
    """A column: a heading, what it means, one cell per row, and whether the cells are names."""

    heading: str
    cells: Sequence[Cell]
    means: str = ""
    names: bool = False

    @property
    def numeric(self) -> bool:
        """Whether the column sorts by numbers."""
        return all(isinstance(cell.value, (int, float)) for cell in self.cells)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    key : str
        An id that is unique among the tables.
    caption : str
    columns : sequence of Column
        The first one names the rows.
    badges : mapping from int to tuple of str
        What some rows are: in use, or recommended.
    find : str
        What rows can be searched by, if there are many; empty for no search.
    explained : mapping from str to str
        Further terms in the table, and what they mean.
    """

    key: str
    caption: str
    columns: Sequence[Column]
    badges: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    find: str = ""
    explained: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].cells)

    @property
    def terms(self) -> dict[str, str]:
        """The terms of the table and what they mean."""
        headings = {one.heading: one.means for one in self.columns if one.means}
        return {**headings, **self.explained}


def percents(values: Floats | Sequence[float], digits: int | None = None) -> list[Cell]:
    """Return shares with the same number of decimals."""
    digits = max(digits_of(values), 1) if digits is None else digits
    return [Cell(share(value, digits), float(value)) for value in values]


def sizes(values: Sequence[float]) -> list[Cell]:
    """Return numbers of clients that need not be whole."""
    return [Cell(size(value), float(value)) for value in values]


def texts(values: Iterable[str]) -> list[Cell]:
    """Return cells that sort by their text."""
    return [Cell(one, one) for one in values]


def estimates(values: Sequence[Estimate]) -> list[Cell]:
    """Return shares with their intervals."""
    digits = max(digits_of([one.value for one in values]), 1)
    return [
        Cell(share(one.value, digits), one.value, _range(one, digits))
        if isfinite(one.value)
        else Cell(ABSENT, float("nan"))
        for one in values
    ]


def ratios(values: Sequence[Estimate]) -> list[Cell]:
    """Return one loss relative to another in per cent, if it is not many times as large."""
    return [
        Cell(
            times(one.value),
            float(np.nan_to_num(one.value, nan=1e9, posinf=1e9)),
            _range(one) if one.high <= MOST_TIMES else "",
        )
        for one in values
    ]


def multiples(values: Sequence[Estimate]) -> list[Cell]:
    """Return one loss as a multiple of another."""
    return [
        Cell(
            number(one.value),
            one.value,
            f"{number(one.low)}–{number(one.high)}" if one.low < one.high else "",
        )
        for one in values
    ]


def _range(estimate: Estimate, digits: int | None = None) -> str:
    if estimate.low == estimate.high:
        return ""
    low = share(estimate.low, digits)
    if not isfinite(estimate.high):
        return f"{low} upwards"
    return f"{low.removesuffix(f'{NARROW}%')}–{share(estimate.high, digits)}"


def replay_table(findings: Findings) -> Table:
    """Return the excess loss of each rule in the replay, the smallest first."""
    trained = sorted(
        findings.replay.trained, key=lambda one: np.nan_to_num(one.to_use.value, nan=np.inf)
    )
    needs = [
        terms.NEEDS[one.need]
        if one.need
        else ("all clients in every round" if one.rule == FULL else "nothing")
        for one in trained
    ]
    rules = [one.rule for one in trained]
    return Table(
        "replay-table",
        "Excess loss in the last part of the log",
        [
            _rules(rules),
            Column(f"Now = 100{NARROW}%", ratios([one.to_use for one in trained]), terms.LOSS),
            Column(
                "Clearly better",
                texts("yes" if one.better else "no" for one in trained),
                terms.CLEARLY,
            ),
            Column(
                "Times full participation",
                multiples([one.held_out_to_full for one in trained]),
                "The same excess loss, relative to training with all clients in every round.",
            ),
            Column("Needs", texts(needs)),
        ],
        _badges(findings, rules),
        explained=_explained(rules),
    )


def rules_table(findings: Findings) -> Table:
    """Return gap and effective cohort size of each rule."""
    standings = findings.price.standings
    rules = [one.rule for one in standings]
    columns = [
        _rules(rules),
        Column("Gap", percents([one.gap for one in standings]), terms.GAP),
        Column(
            "Effective cohort",
            sizes([one.effective_cohort_size for one in standings]),
            terms.EFFECTIVE,
        ),
    ]
    if findings.has_held_out:
        columns += [
            Column(
                "Gap, held out", estimates([one.held_out_gap for one in standings]), terms.HELD_OUT
            ),
            Column(
                "Effective cohort, held out",
                sizes([one.held_out_effective_cohort_size for one in standings]),
            ),
        ]
    if any(one.largest_sum_of_weights > 1 + 1e-6 for one in standings):
        most = sizes([one.largest_sum_of_weights for one in standings])
        means = "The largest sum of the weights of a round; 1 if they are an average."
        columns.append(Column("Largest sum", most, means))
    replayed = {one.rule for one in findings.replay.trained}
    left = [rule for rule in rules if rule not in replayed]
    badges = _badges(findings, rules)
    return Table("rules-table", "Gap and evenness", columns, badges, explained=_explained(left))


def shares_table(findings: Findings, *, grouped: bool) -> Table:
    """Return the importance and weight of all groups or clients, the largest deviations first.

    Groups keep their order if all of them are shown.
    """
    shares = findings.by_group if grouped else findings.by_client
    assert shares is not None
    names, what = (findings.groups, "group") if grouped else (findings.clients, "client")
    rows = np.argsort(-np.abs(shares.implied - shares.owed), kind="stable")[:MOST_ROWS]
    whole = rows.size == len(names)
    if grouped and whole:
        rows = np.arange(len(names))
    columns = [Column(what.title(), texts(names[row] for row in rows), names=True)]
    if not grouped and findings.group_of is not None:
        groups = texts(findings.groups[at] for at in findings.group_of[rows])
        columns.append(Column("Group", groups, names=True))
    columns += _shares(findings, shares, rows)
    often = f"Share of the rounds with {'any client of the group' if grouped else 'the client'}."
    columns.append(
        Column(f"Rounds with {'any' if grouped else 'it'}", percents(shares.inclusion[rows]), often)
    )
    caption = f"All {what}s" if whole else f"The {rows.size} {what}s with the largest deviations"
    find = "" if grouped else "Find a client"
    return Table(f"{what}s-table", caption, columns, find=find)


def laws_table(findings: Findings) -> Table:
    """Return each law's gap, in the part of the log it was fitted to and in the other."""
    scores = findings.fit.scores
    return Table(
        "laws-table",
        "Assumptions about availability",
        [
            Column("Assumption", texts(terms.LAWS.get(one.law, one.law) for one in scores)),
            Column("Gap, fitted", percents([one.fitted_gap for one in scores]), terms.FITTED),
            Column(
                "Gap, held out", estimates([one.held_out_gap for one in scores]), terms.HELD_OUT
            ),
        ],
    )


def changes_table(changes: Sequence[Change]) -> Table:
    """Return what changed since an earlier audit, before and after."""
    headings = {"What": 0, "Before": 1, "Now": 2}
    columns = [
        Column(heading, texts(one[at] for one in changes)) for heading, at in headings.items()
    ]
    return Table("changes-table", "Changes", columns)


def _rules(rules: Sequence[str]) -> Column:
    return Column("Rule", texts(map(label, rules)))


def _explained(rules: Iterable[str]) -> dict[str, str]:
    return {label(rule): terms.EXPLAINED[rule] for rule in rules if rule in terms.EXPLAINED}


def _badges(findings: Findings, rules: Sequence[str]) -> dict[int, tuple[str, ...]]:
    advice = findings.recommendation
    kinds = {
        BEST: advice.best and advice.best.rule,
        SECOND: advice.second and advice.second.rule,
        NOW: findings.in_use,
    }
    badges = {
        row: tuple(words for words, one in kinds.items() if one == rule)
        for row, rule in enumerate(rules)
    }
    return {row: found for row, found in badges.items() if found}


def _shares(findings: Findings, shares: Shares, rows: Integers) -> list[Column]:
    """Return the columns with the shares of clients or groups."""
    owed, implied = shares.owed[rows], shares.implied[rows]
    digits = max(1, digits_of(owed), digits_of(implied))
    columns = [
        Column("Importance", percents(shares.importance[rows], digits), "What it should count.")
    ]
    if findings.owes_otherwise:
        columns.append(Column("Owed", percents(owed, digits), terms.OWED))
    apart, wanted = implied - owed, "owed" if findings.owes_otherwise else "importance"
    most = float(np.abs(apart).max(initial=0.0)) or 1.0
    return [
        *columns,
        Column("Plain average", percents(implied, digits), "What it counts with equal weights."),
        Column(
            "Deviation",
            [
                Cell(f"{'+' if one > 0 else ''}{share(one, digits)}", one, bar=one / most)
                for one in apart.tolist()
            ],
            f"Plain average minus {wanted}.",
        ),
        Column("Closest possible", percents(shares.attained[rows], digits), terms.CLOSEST),
    ]
