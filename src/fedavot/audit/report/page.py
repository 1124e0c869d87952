"""The report as one self-contained HTML page: no requests, no fonts, no build.

`words` writes the sentences, `figures` draws the pictures, `page_tables` makes the tables. Here
they are put in order: what to do first, then why. The page is complete without its script, which
only makes tables sortable.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import fedavot
from fedavot._checks import Integers
from fedavot._files import PathLike
from fedavot.audit.decision.rules import AS_APPLIED, FEDAVG, ONLINE, SELECT, label
from fedavot.audit.findings import Findings, Reach, Reached
from fedavot.audit.report.canvas import Picture
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.figures import draw
from fedavot.audit.report.markup import name, paragraphs, text
from fedavot.audit.report.numerals import count, day, interval, number, share
from fedavot.audit.report.page_help import method, usage
from fedavot.audit.report.page_tables import (
    MOST_CLIENTS,
    changes_table,
    clients_table,
    curve_table,
    extreme_tables,
    groups_table,
    laws_table,
    rules_table,
)
from fedavot.audit.report.svg import inline
from fedavot.audit.report.words import headline, sections

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
MOST_NAMES = 60
"""How many clients of a set are named."""
TONES = {
    "nothing to do": ("good", "✓"),
    "align": ("act", "→"),
    "align softly": ("act", "→"),
    "use memory": ("care", "!"),
    "change selection": ("care", "!"),
    "collect more rounds": ("wait", "…"),
}
"""Style and sign of the recommendation, by action."""


class _Part(NamedTuple):
    """A section of the page: anchor, heading, entry in the contents, and markup."""

    key: str
    title: str
    brief: str
    content: str


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
    drawn = {one.name: one for one in (draw(findings) if pictures is None else pictures)}
    parts = _parts(findings, changes, Path(folder), drawn)
    contents = "".join(f'<li><a href="#{part.key}">{text(part.brief)}</a></li>' for part in parts)
    written = "".join(
        f'<section id="{part.key}" aria-labelledby="{part.key}-heading">'
        f'<h2 id="{part.key}-heading">{text(part.title)}</h2>{part.content}</section>'
        for part in parts
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>Audit of {text(findings.source)}</title>"
        f"<style>\n{_resource('page.css')}</style></head>\n"
        '<body><a class="skip" href="#main">Skip to the findings</a>'
        f"{_header(findings)}"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>'
        f'<main id="main">{_verdict(findings)}{written}</main>'
        f"<footer><p>Made by fedavot {text(fedavot.__version__)} from this log alone. This page "
        "makes no network requests.</p></footer>"
        f"<script>\n{_resource('page.js')}</script></body></html>\n"
    )


def _resource(file: str) -> str:
    return resources.files("fedavot.audit.report").joinpath(file).read_text(encoding="utf-8")


def _header(findings: Findings) -> str:
    facts = {"Rounds": count(findings.rounds), "Clients": count(len(findings.clients))}
    if findings.groups:
        facts["Groups"] = count(len(findings.groups))
    facts["Clients per round"] = number(findings.mean_cohort_size)
    if findings.span is not None and findings.behaviour.dated:
        facts["From"], facts["To"] = map(day, findings.span)
    if findings.unknown_share > 0:
        facts["Unknown"] = share(findings.unknown_share)
    told = "".join(
        f"<div><dt>{what}</dt><dd>{text(value)}</dd></div>" for what, value in facts.items()
    )
    return (
        '<header><p class="brand"><span aria-hidden="true">◆</span> fedavot audit</p>'
        f'<h1>{name(findings.source)}</h1><dl class="facts">{told}</dl></header>'
    )


def _verdict(findings: Findings) -> str:
    """Return the recommendation, its reason, and the figures behind it."""
    tone, sign = TONES[findings.advice.action]
    told = "".join(f"<p>{text(one)}</p>" for one in sections(findings)["advice"].sentences)
    return (
        f'<section id="advice" class="verdict {tone}" aria-labelledby="advice-heading">'
        f'<p class="eyebrow"><span class="sign" aria-hidden="true">{sign}</span>Recommendation</p>'
        f'<h2 id="advice-heading">{text(headline(findings))}</h2>{told}'
        f'<ul class="tiles">{"".join(_tiles(findings))}</ul></section>'
    )


def _tiles(findings: Findings) -> list[str]:
    gap, reach = findings.gap, findings.reach
    plain, chosen = (findings.price.find(one) for one in (FEDAVG, findings.advice.rule))
    tiles = [
        _tile("Gap of the plain average", share(gap.value), interval(gap)),
        _tile("Exact alignment", *_possible(reach)),
    ]
    if chosen is not None and chosen is not plain:
        tiles.append(_tile("Gap of the recommended weights", share(chosen.gap), _with(chosen.rule)))
    shown = chosen or plain
    if shown is not None:
        against = f", {number(plain.effective_cohort_size)} with the plain average" if plain else ""
        size, there = number(shown.effective_cohort_size), number(findings.mean_cohort_size)
        tiles.append(
            _tile(
                "Effective cohort size",
                f"{size} client{'' if size == '1' else 's'}",
                f"{_with(shown.rule)}{against if shown is not plain else ''}; on average, {there} "
                f"{'client takes' if there == '1' else 'clients take'} part in a round",
            )
        )
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


def _with(rule: str) -> str:
    return {
        FEDAVG: "with the plain average",
        AS_APPLIED: "with the weights in use",
        ONLINE: "with weights learned during training",
        SELECT: "with selection by weights learned during training",
    }.get(rule, f"with {label(rule)}")


def _tile(label: str, value: str, note: str) -> str:
    return (
        f'<li><span class="label">{text(label)}</span> <strong>{text(value)}</strong> '
        f'<span class="note">{text(note)}</span></li>'
    )


def _parts(
    findings: Findings, changes: Sequence[Change], folder: Path, drawn: dict[str, Picture]
) -> list[_Part]:
    """Return the page's sections in order."""
    told = sections(findings)
    lead = {key: paragraphs(section.sentences) for key, section in told.items()}
    more = _pictures(drawn, "weekdays", "drift", "held-out")
    laws = laws_table(findings) if findings.fit.scores and findings.has_held_out else ""
    briefs = ("Objective", "Reach", "Availability", "Price")
    contents = (
        _beside(lead["objective"], _pictures(drawn, "shares")) + _objective(findings),
        _beside(lead["reach"], _reach(findings)),
        _beside(lead["behaviour"], _pictures(drawn, "hours")) + more + laws,
        _beside(lead["price"], _pictures(drawn, "price")) + _price(findings),
    )
    keys = ("objective", "reach", "behaviour", "price")
    parts = [
        _Part(key, told[key].title, brief, content)
        for key, brief, content in zip(keys, briefs, contents, strict=True)
    ]
    if changes:
        parts.insert(0, _Part("changes", "What has changed", "Changes", _changes(changes)))
    return [
        *parts,
        _Part("use", "How to use the weights", "Use", usage(findings, folder)),
        _Part("log", told["log"].title, "Log", lead["log"]),
        _Part("method", "How these figures were made", "Method", method(findings)),
    ]


def _pictures(drawn: dict[str, Picture], *names: str) -> str:
    """Return the pictures that exist, side by side if there is room."""
    found = [drawn[one] for one in names if one in drawn]
    shown = "".join(
        f'<figure id="figure-{one.name}"><figcaption>{text(one.title)}</figcaption>'
        f"{inline(one)}</figure>"
        for one in found
    )
    return f'<div class="pictures">{shown}</div>' if shown else ""


def _beside(told: str, shown: str) -> str:
    """Return text with a picture or a table beside it, if there is room."""
    return f'<div class="beside"><div>{told}</div><div>{shown}</div></div>' if shown else told


def _objective(findings: Findings) -> str:
    groups = groups_table(findings) if findings.by_group is not None else ""
    more = len(findings.clients) - MOST_CLIENTS
    left_out = (
        f"<p>{count(more)} more {'is' if more == 1 else 'are'} in <code>clients.csv</code>.</p>"
        if more > 0
        else ""
    )
    return (
        f"{groups}{extreme_tables(findings)}"
        f"<details><summary>Every client</summary>{clients_table(findings)}{left_out}</details>"
    )


def _reach(findings: Findings) -> str:
    """Return the clients with more importance than their rounds allow, and how much."""
    reach = findings.reach
    parts = []
    if reach.deficient.clients.size:
        parts.append(_meters(reach.deficient))
        whose = "their" if reach.deficient.clients.size > 1 else "its"
        title = f"More importance than {whose} rounds allow"
        parts.append(_names(title, findings, reach.deficient.clients))
    if reach.never_seen.size:
        parts.append(_names("Never took part", findings, reach.never_seen))
    return "".join(parts)


def _meters(held: Reached) -> str:
    several = held.clients.size > 1
    rows = (
        ("Their importance" if several else "Its importance", held.importance, "wanted"),
        (f"Rounds with {'any of them' if several else 'it'}", held.coverage, "plain"),
    )
    shown = "".join(
        f'<div><dt>{label}</dt><dd><span class="meter {kind}" aria-hidden="true">'
        f'<i style="width:{100 * min(value, 1.0):.1f}%"></i></span>{text(share(value))}</dd></div>'
        for label, value, kind in rows
    )
    return f'<dl class="meters">{shown}</dl>'


def _names(title: str, findings: Findings, clients: Integers) -> str:
    items = "".join(f"<li>{name(findings.clients[at])}</li>" for at in clients[:MOST_NAMES])
    more = len(clients) - MOST_NAMES
    left_out = f"<p>And {count(more)} more, in <code>findings.json</code>.</p>" if more > 0 else ""
    return f'<h3>{text(title)}</h3><ul class="names">{items}</ul>{left_out}'


def _price(findings: Findings) -> str:
    return (
        f"{rules_table(findings)}"
        f"<details><summary>The curve, point by point</summary>{curve_table(findings)}</details>"
    )


def _changes(changes: Sequence[Change]) -> str:
    told = "".join(f"<li>{text(one.words)}</li>" for one in changes)
    return f'<ul class="told">{told}</ul>{changes_table(changes)}'
