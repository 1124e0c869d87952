"""The page's tables, made from findings."""

from collections.abc import Sequence

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.decision.rules import label, recommended
from fedavot.audit.findings import Estimate, Findings, Shares
from fedavot.audit.report.availability_words import LAWS
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.markup import Cell, Column, figures, name, table, text, words
from fedavot.audit.report.numerals import ABSENT, NARROW, digits_of, number, share

MOST_CLIENTS = 500
"""Rows of the tables of clients and groups: more would be slow to open, and are in the files."""
MOST_EXTREME = 10
"""Rows of the tables of clients with too much and with too little weight."""
_EXACT = 1e-9


def groups_table(findings: Findings) -> str:
    """Return each group's importance and weight."""
    shares = findings.by_group
    assert shares is not None
    rows = np.arange(len(findings.groups))
    if rows.size > MOST_CLIENTS:
        rows = np.argsort(-np.abs(shares.implied - shares.owed), kind="stable")[:MOST_CLIENTS]
    names = [findings.groups[row] for row in rows]
    columns = [
        Column("Group", [Cell(name(one), one) for one in names]),
        *_shares(findings, shares, rows, "Rounds with any"),
    ]
    whole = rows.size == len(findings.groups)
    caption = "Groups" if whole else f"The {rows.size} groups with the largest deviations"
    return table(caption, columns, key="groups-caption")


def extreme_tables(findings: Findings) -> str:
    """Return the clients with far too much and with far too little weight."""
    excess = findings.by_client.implied - findings.by_client.owed
    parts = []
    for sign, caption, key in (
        (1, "Clients with too much weight", "over-caption"),
        (-1, "Clients with too little weight", "under-caption"),
    ):
        order = np.argsort(-sign * excess, kind="stable")[:MOST_EXTREME]
        rows = order[sign * excess[order] > _EXACT]
        if rows.size:
            columns = [_clients(findings, rows), *_brief(findings, rows)]
            parts.append(table(caption, columns, key=key))
    return f'<div class="pair">{"".join(parts)}</div>' if parts else ""


def clients_table(findings: Findings) -> str:
    """Return all clients, or those with the largest deviations if there are too many."""
    excess = np.abs(findings.by_client.implied - findings.by_client.owed)
    rows = np.argsort(-excess, kind="stable")[:MOST_CLIENTS]
    columns = [_clients(findings, rows)]
    if findings.group_of is not None:
        belongs = [findings.groups[at] for at in findings.group_of[rows]]
        columns.append(Column("Group", [Cell(name(one), one) for one in belongs]))
    columns += _shares(findings, findings.by_client, rows, "Rounds with it")
    whole = rows.size == len(findings.clients)
    caption = "All clients" if whole else f"The {rows.size} clients with the largest deviations"
    return table(caption, columns, key="clients-caption", find="Find a client")


def rules_table(findings: Findings) -> str:
    """Return how each rule does; the recommended one, if any, is marked."""
    standings = findings.price.standings
    chosen = [one.rule == recommended(findings.advice) for one in standings]
    badge = ' <span class="badge">recommended</span>'
    rules = [
        Cell(text(label(one.rule)) + (badge if best else ""), label(one.rule))
        for one, best in zip(standings, chosen, strict=True)
    ]
    columns = [
        Column("Rule", rules),
        Column("Gap", _percents([one.gap for one in standings])),
        Column("Effective cohort", _sizes([one.effective_cohort_size for one in standings])),
    ]
    if findings.has_held_out:
        later = _sizes([one.held_out_effective_cohort_size for one in standings])
        columns += [
            Column(
                "Gap, held out",
                _estimates([one.held_out_gap for one in standings]),
                "In the last part of the log, with weights fitted to the first",
            ),
            Column("Effective cohort, held out", later),
        ]
    if any(one.largest_sum_of_weights > 1 + 1e-6 for one in standings):
        most = _sizes([one.largest_sum_of_weights for one in standings])
        columns.append(Column("Largest sum of weights", most, "1 if the weights are an average"))
    marked = chosen.index(True) if any(chosen) else None
    return table("Rules", columns, key="rules-caption", marked=marked)


def curve_table(findings: Findings) -> str:
    """Return gap and effective cohort size at each softness."""
    curve = findings.price.curve
    softness = [point.softness for point in curve]
    columns = [
        Column("Softness", figures(softness, map(number, softness))),
        Column("Gap", _percents([point.gap for point in curve])),
        Column("Effective cohort", _sizes([point.effective_cohort_size for point in curve])),
    ]
    return table("Softness", columns, key="curve-caption")


def laws_table(findings: Findings) -> str:
    """Return each law's gap, in the part of the log it was fitted to and in the other."""
    scores = findings.fit.scores
    laws: list[str] = [one.law for one in scores]
    columns = [
        Column("Description", [words(LAWS.get(law, law)) for law in laws]),
        Column("Gap, fitted", _percents([one.fitted_gap for one in scores])),
        Column("Gap, held out", _estimates([one.held_out_gap for one in scores])),
    ]
    marked = laws.index(findings.fit.law) if findings.fit.law in laws else None
    return table("Descriptions of availability", columns, key="laws-caption", marked=marked)


def changes_table(changes: Sequence[Change]) -> str:
    """Return what changed since an earlier audit, before and after."""
    columns = [
        Column("What", [words(one.name) for one in changes]),
        Column("Before", [Cell(text(one.before), one.before) for one in changes]),
        Column("Now", [Cell(text(one.after), one.after) for one in changes]),
    ]
    return table("Changes", columns, key="changes-caption")


def _clients(findings: Findings, rows: Integers) -> Column:
    names = [findings.clients[row] for row in rows]
    return Column("Client", [Cell(name(one), one) for one in names])


def _shares(findings: Findings, shares: Shares, rows: Integers, inclusion: str) -> list[Column]:
    """Return the columns with the shares of clients or groups."""
    owed, implied = shares.owed[rows], shares.implied[rows]
    digits = _digits(owed, implied)
    columns = [_wanted(findings, owed, digits)]
    if findings.owes_otherwise:
        columns.insert(0, Column("Importance", _percents(shares.importance[rows], digits)))
    return [
        *columns,
        Column("Plain average", _percents(implied, digits)),
        Column(
            "Deviation",
            _differences(implied - owed, digits),
            f"Plain average minus {columns[-1].heading.lower()}",
        ),
        Column(
            "Closest possible", _percents(shares.attained[rows], digits), "With the best weights"
        ),
        Column(inclusion, _percents(shares.inclusion[rows]), "Share of rounds"),
    ]


def _brief(findings: Findings, rows: Integers) -> list[Column]:
    owed, implied = findings.by_client.owed[rows], findings.by_client.implied[rows]
    digits = _digits(owed, implied)
    return [
        _wanted(findings, owed, digits),
        Column("Plain average", _percents(implied, digits)),
        Column("Deviation", _differences(implied - owed, digits)),
    ]


def _wanted(findings: Findings, owed: Floats, digits: int) -> Column:
    """Return the column that the plain average is compared with."""
    if not findings.owes_otherwise:
        return Column("Importance", _percents(owed, digits))
    note = "The importance, counted only in rounds in which its state is known"
    return Column("Owed", _percents(owed, digits), note)


def _digits(*shares: Floats) -> int:
    """Return the number of decimals for columns that are compared with each other."""
    return max(1, *(digits_of(one) for one in shares))


def _percents(values: Floats | Sequence[float], digits: int | None = None) -> list[Cell]:
    """Return shares with the same number of decimals."""
    digits = max(digits_of(values), 1) if digits is None else digits
    return figures(values, (share(value, digits) for value in values))


def _sizes(values: Sequence[float]) -> list[Cell]:
    """Return numbers with two decimals."""
    written = (f"{value:.2f}" if abs(value) < 99.95 else number(value) for value in values)
    return figures(values, written)


def _estimates(values: Sequence[Estimate]) -> list[Cell]:
    digits = max(digits_of([one.value for one in values]), 1)
    return [
        Cell(
            f"{share(one.value, digits)} <small>{_range(one, digits)}</small>"
            if np.isfinite(one.value)
            else ABSENT,
            float(one.value),
        )
        for one in values
    ]


def _range(estimate: Estimate, digits: int) -> str:
    low = share(estimate.low, digits)
    if not np.isfinite(estimate.high):
        return f"{low} upwards"
    return f"{low.removesuffix(f'{NARROW}%')}–{share(estimate.high, digits)}"


def _differences(values: Floats, digits: int) -> list[Cell]:
    """Return signed shares with a bar: to the right for too much, to the left for too little."""
    most = float(np.abs(values).max(initial=0.0)) or 1.0
    return [
        Cell(
            f'<span class="bar {"over" if value > 0 else "under"}" aria-hidden="true">'
            f'<i style="width:{50 * abs(value) / most:.1f}%"></i></span>'
            f"{'+' if value > 0 else ''}{share(value, digits)}",
            float(value),
        )
        for value in values
    ]
