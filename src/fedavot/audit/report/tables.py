"""The tables of a report, made from findings."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedavot._checks import Integers
from fedavot.audit.findings import Findings, Shares
from fedavot.audit.report import terms
from fedavot.audit.report.cells import (
    Cell,
    Column,
    Table,
    estimates,
    multiples,
    named,
    percents,
    ratios,
    sizes,
)
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.numerals import NARROW, digits_of, share
from fedavot.audit.statistics.rules import FULL, label

MOST_ROWS = 500
"""Rows of the tables of clients and groups: more would be slow to open, and are in the files."""
NOW, BEST, SECOND = "what you do now", "recommended", "second best, needs nothing"


def replay_table(findings: Findings) -> Table | None:
    """Return the excess loss of each rule in the replay, the smallest first."""
    if findings.replay is None:
        return None
    trained = sorted(
        findings.replay.trained, key=lambda one: np.nan_to_num(one.to_use.value, nan=np.inf)
    )
    needs = [
        "; or ".join(terms.NEEDS[need] for need in one.needs)
        or ("all clients in every round" if one.rule == FULL else "nothing")
        for one in trained
    ]
    rules = [one.rule for one in trained]
    clearly = ["yes" if one.better else "no" for one in trained]
    return Table(
        "replay-table",
        "Excess loss in the last part of the log",
        [
            _rules(rules),
            Column(f"Now = 100{NARROW}%", ratios([one.to_use for one in trained]), terms.LOSS),
            Column("Clearly better", [Cell(one, one) for one in clearly], terms.CLEARLY),
            Column(
                "Times full participation",
                multiples([one.held_out_to_full for one in trained]),
                "The same excess loss, relative to training with all clients in every round.",
            ),
            Column("Needs", [Cell(one, one) for one in needs]),
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
    replayed = {one.rule for one in findings.replay.trained} if findings.replay else set()
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
    columns = [named(what.title(), [names[row] for row in rows])]
    if not grouped and findings.group_of is not None:
        columns.append(named("Group", [findings.groups[at] for at in findings.group_of[rows]]))
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
    assumed = [terms.LAWS.get(one.law, one.law) for one in scores]
    return Table(
        "laws-table",
        "Assumptions about availability",
        [
            Column("Assumption", [Cell(one, one) for one in assumed]),
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
        Column(heading, [Cell(one[at], one[at]) for one in changes])
        for heading, at in headings.items()
    ]
    return Table("changes-table", "Changes", columns)


def _rules(rules: Sequence[str]) -> Column:
    return Column("Rule", [Cell(label(rule), label(rule)) for rule in rules])


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


def _wanted(findings: Findings) -> str:
    return "Owed" if findings.owes_otherwise else "Importance"


def _shares(findings: Findings, shares: Shares, rows: Integers) -> list[Column]:
    """Return the columns with the shares of clients or groups."""
    owed, implied = shares.owed[rows], shares.implied[rows]
    digits = max(1, digits_of(owed), digits_of(implied))
    columns = [
        Column("Importance", percents(shares.importance[rows], digits), "What it should count.")
    ]
    if findings.owes_otherwise:
        columns.append(Column("Owed", percents(owed, digits), terms.OWED))
    apart = implied - owed
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
            f"Plain average minus {_wanted(findings).lower()}.",
        ),
        Column("Closest possible", percents(shares.attained[rows], digits), terms.CLOSEST),
    ]
