"""The report as one self-contained HTML page: no requests, no fonts, no build.

Templates hold the page; `words` writes the sentences, `figures` draws the pictures, `tables` makes
the tables. What to do comes first, then why. The page is complete without its script, which only
makes tables sortable. Everything from a log is escaped by the templates.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fedavot
from fedavot._checks import Integers
from fedavot._files import PathLike
from fedavot.audit.findings import Findings, Reach
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.drawing import Picture, inline
from fedavot.audit.report.figures import draw
from fedavot.audit.report.tables import (
    MOST_ROWS,
    Table,
    changes_table,
    laws_table,
    replay_table,
    rules_table,
    shares_table,
)
from fedavot.audit.report.terms import MEANT, count, day, interval, number, share, stretch, times
from fedavot.audit.report.words import headline, sections
from fedavot.audit.statistics import rules
from fedavot.online import EXACT_STEP, STEP

MOST_NAMES = 60
"""How many clients of a set are named."""
TONES = {
    "nothing to do": ("good", "✓"),
    "change the weights": ("act", "→"),
    "use memory": ("act", "→"),
    "change selection": ("act", "→"),
    "collect more rounds": ("wait", "…"),
}
"""Style and sign of the recommendation, by action."""
KINDS = {
    rules.STEADY: "memory",
    rules.SELECT: "select",
    rules.ONLINE: "online",
    rules.SOFT_ONLINE: "online",
    rules.FEDAVOT: "alignment",
    rules.SOFT: "alignment",
}
"""Which kind of code the page shows, by rule; for other rules, weights come from a table."""
CONTENTS = {
    "objective": "Objective",
    "replay": "Training",
    "reach": "Reach",
    "behaviour": "Availability",
    "price": "Price",
    "use": "Use",
    "log": "Log",
    "method": "Method",
}
_UNPRINTED = {"Cc", "Cs"}
_SPACES = "\t\n\r"


def page(
    findings: Findings,
    changes: Sequence[Change] = (),
    *,
    folder: PathLike = "",
    pictures: Sequence[Picture] | None = None,
) -> str:
    """Return the report as an HTML document.

    Parameters
    ----------
    findings : Findings
        What an audit found.
    changes : sequence of Change
        What changed since an earlier audit.
    folder : path
        The folder of the audit's files, for the code on the page.
    pictures : sequence of Picture, optional
        The pictures of the findings, if they have already been drawn.
    """
    drawn = draw(findings) if pictures is None else pictures
    tone, sign = TONES[findings.recommendation.action]
    reach = findings.reach
    written: str = _template().render(
        findings=findings,
        version=fedavot.__version__,
        headline=headline(findings),
        told=sections(findings),
        tone=tone,
        sign=sign,
        facts=_facts(findings),
        tiles=_tiles(findings),
        contents={**({"changes": "Changes"} if changes else {}), **CONTENTS},
        changes=changes,
        tables=_tables(findings, changes),
        drawn={
            one.name: {"name": one.name, "title": one.title, "markup": inline(one)} for one in drawn
        },
        weak=reach.deficient,
        deficient=_named(findings, reach.deficient.clients),
        never_seen=_named(findings, reach.never_seen),
        most_names=MOST_NAMES,
        more=len(findings.clients) - MOST_ROWS,
        **_usage(findings, Path(folder)),
    )
    return written


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fedavot.audit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"count": count, "share": share, "stretch": stretch}
    return environment.get_template("page.html")


def _printable(value: Any) -> Any:
    """Return text without characters that a page cannot hold; markup is left unchanged."""
    if type(value) is not str:
        return value
    return "".join(
        "\ufffd" if unicodedata.category(letter) in _UNPRINTED and letter not in _SPACES else letter
        for letter in value
    )


def _named(findings: Findings, clients: Integers) -> list[str]:
    return [findings.clients[at] for at in clients]


def _facts(findings: Findings) -> dict[str, str]:
    facts = {"Rounds": count(findings.rounds), "Clients": count(len(findings.clients))}
    if findings.groups:
        facts["Groups"] = count(len(findings.groups))
    facts["Clients per round"] = number(findings.mean_cohort_size)
    if findings.span is not None and findings.behaviour.dated:
        facts["From"], facts["To"] = map(day, findings.span)
    if findings.unknown_share > 0:
        facts["Unknown"] = share(findings.unknown_share)
    return facts


def _tiles(findings: Findings) -> list[tuple[str, str, str]]:
    """Return the figures behind the recommendation: label, value and note."""
    gap, advice, replay = findings.gap, findings.recommendation, findings.replay
    tiles = [
        ("Gap of the plain average", share(gap.value), f"of the weight; {interval(gap)}"),
        ("Exact alignment", *_possible(findings.reach)),
    ]
    chosen = {"recommended": advice.best, "second best": advice.second}
    for place, (kind, one) in enumerate(chosen.items()):
        if one is not None and (found := replay.find(one.rule)) is not None:
            loss = times(found.to_use.value)
            note = f"of what it is today, with {MEANT.get(one.rule, one.rule)}"
            tiles.insert(place, (f"Excess loss, {kind}", loss, note))
    return tiles


def _possible(reach: Reach) -> tuple[str, str]:
    """Return whether exact alignment is possible, and what that means."""
    if reach.feasible and not reach.proven:
        return "seems possible", "none of the sets of clients that were tested has too few rounds"
    sure = "" if reach.sure else ", as far as this log shows"
    if reach.feasible:
        return "is possible", f"every client can get its importance{sure}"
    lost = share(reach.deficiency.value)
    return "is not possible", f"{lost} of the importance is out of reach{sure}"


def _tables(findings: Findings, changes: Sequence[Change]) -> dict[str, Table | None]:
    laws = findings.fit.scores and findings.has_held_out
    return {
        "changes": changes_table(changes) if changes else None,
        "groups": shares_table(findings, grouped=True) if findings.by_group is not None else None,
        "clients": shares_table(findings, grouped=False),
        "replay": replay_table(findings),
        "laws": laws_table(findings) if laws else None,
        "rules": rules_table(findings),
    }


def _usage(findings: Findings, folder: Path) -> dict[str, Any]:
    """Return the values for the code on the page."""
    best = findings.recommendation.best
    return {
        "best": best,
        "kind": KINDS.get(best.rule, "table") if best else "",
        "softness": f"{best.softness:.3g}" if best else "",
        "size": max(1, round(findings.mean_cohort_size)),
        "step": f"{EXACT_STEP:g}",
        "soft_step": f"{STEP:g}",
        "clients": _literal(folder / "clients.csv"),
        "alignment": _literal(folder / "alignment.json"),
        "relative": not (folder.is_absolute() or folder == Path()),
    }


def _literal(path: Path) -> str:
    """Return a path as a Python literal."""
    name = path.as_posix()
    plain = name.isprintable() and not set(name) & {'"', "\\"}
    return f'"{name}"' if plain else ascii(name)
