"""A study in a folder: ``results.json``, ``summary.md``, figures, and what redraws them.

The folder holds ``runs/`` (one file a setting and rule, and checkpoints of unfinished ones) and
``study.json`` (what the figures need beside the runs). Everything but the runs is written anew by
`report`, from the outcomes alone.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedavot._checks import SUM_SLACK, as_distribution
from fedavot._files import read_document, write_document, write_whole
from fedavot.errors import FileFormatError, InputError
from fedavot.experiments.figures import LOOKS, Sheet, draw_curves, drawing
from fedavot.experiments.outcome import Outcome, as_numbers, as_text, write_results
from fedavot.experiments.study import Case, file_name
from fedavot.experiments.summary import combined, derived_table, excess_table, summary

_FORMAT = "fedavot-study"
_VERSION = 2

Draw = Callable[[Sequence[Outcome], Path], list[Path]]


@dataclass(frozen=True, eq=False)
class Page:
    """How a study is told.

    Attributes
    ----------
    name : str
        Of the command and the figure.
    title, text : str
        Heading and introduction.
    drawn : tuple of str
        Rules in the figure; all if empty.
    draw : function of (outcomes, stem), optional
        Draws something else than curves.
    combined : bool
        Whether one table of the excess serves all settings.
    derive : function of outcomes, optional
        Further rows of results.
    """

    name: str
    title: str
    text: str
    drawn: tuple[str, ...] = ()
    draw: Draw | None = None
    combined: bool = False
    derive: Callable[[Sequence[Outcome]], list[dict[str, Any]]] | None = None


def sheet_of(case: Case) -> Sheet:
    """Return what a figure needs of a case."""
    known = all(instance.optimum is not None for instance in case.instances)
    rules = tuple(rule.name for rule in case.rules)
    return Sheet(case.setting, case.importance, case.inclusion, known, case.caption, rules)


def report(
    page: Page, sheets: Sequence[Sheet], outcomes: Sequence[Outcome], folder: Path
) -> list[Path]:
    """Write results, summary and figures; return the figures' paths.

    Parameters
    ----------
    page : Page
        How it is told.
    sheets : sequence of Sheet
        The settings, in order.
    outcomes : sequence of Outcome
        Whatever has finished.
    folder : Path
        Where to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = in_order(outcomes, sheets)
    derived = page.derive(outcomes) if page.derive else []
    rows = [row for outcome in outcomes for row in outcome.rows()]
    write_results(folder / "results.json", rows + derived)
    _save_sheets(folder, page, sheets, outcomes)
    if not page.combined:
        settings = [sheet.setting for sheet in sheets]
        text = summary(page.title, page.text, settings, outcomes)
    else:
        tables = [excess_table(outcomes), derived_table(derived)]
        text = combined(page.title, page.text, tables)
    write_whole(folder / "summary.md", lambda stream: stream.write(text.encode()))
    if not outcomes:
        return []
    stem = folder / page.name
    with drawing():
        if page.draw is not None:
            return page.draw(outcomes, stem)
        shown = [one for one in outcomes if not page.drawn or one.rule in page.drawn]
        return draw_curves(shown, sheets, stem, title=page.title)


def reopen(page: Page, folder: Path) -> tuple[Page, list[Sheet], list[Outcome]]:
    """Return what `report` needs, from a folder it wrote: the outcomes it told, and no others.

    Parameters
    ----------
    page : Page
        Of the study the folder should hold.
    folder : Path
        Where results are.
    """
    path = folder / "study.json"
    if not path.exists():
        raise InputError(f"{folder} holds no study; run without --redraw first")
    held = read_document(path, format=_FORMAT, version=_VERSION)
    if held.get("name") != page.name:
        raise InputError(f"{folder} holds the study {held.get('name')!r}, not {page.name!r}")
    try:
        sheets = [_sheet(one) for one in held["settings"]]
        told = {name: as_text(mark) for name, mark in held["runs"].items()}
        page = dataclasses.replace(page, title=as_text(held["title"]))
        known = {file_name(sheet.setting, rule) for sheet in sheets for rule in sheet.rules}
        if not told.keys() <= known:
            raise ValueError(f"{min(told.keys() - known)!r} is a run of none of its settings")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as cause:
        raise FileFormatError(
            f"{path} is not a valid study ({cause!r}); run it again without --redraw"
        ) from None
    return page, sheets, [_told(folder, name, mark) for name, mark in told.items()]


def _sheet(one: Any) -> Sheet:
    """Return a setting as a document has it, or raise what a wrong one makes of itself."""
    importance = as_numbers(one["importance"])
    as_distribution(importance, what="importance", item="client", error=InputError)
    inclusion = None if one["inclusion"] is None else as_numbers(one["inclusion"])
    if inclusion is not None and (
        inclusion.shape != importance.shape
        or not ((inclusion >= 0) & (inclusion <= 1 + SUM_SLACK)).all()
        or not inclusion.any()
    ):
        raise ValueError("inclusion is not one probability per client")
    if not isinstance(one["excess"], bool) or not isinstance(one["rules"], list):
        raise TypeError("excess must be true or false, and rules a list")
    rules = tuple(map(as_text, one["rules"]))
    setting, caption = as_text(one["setting"]), as_text(one["caption"])
    return Sheet(setting, importance, inclusion, one["excess"], caption, rules)


def _told(folder: Path, name: str, mark: str) -> Outcome:
    """Return the outcome of a file, or raise if it is not the one the study told of."""
    path = folder / "runs" / name
    if not path.is_file():
        raise InputError(f"{path} is missing; run the study without --redraw")
    one = Outcome.load(path)
    if file_name(one.setting, one.rule) != name:
        raise FileFormatError(
            f"{path} holds the run of {one.rule!r} on {one.setting!r}, which belongs elsewhere; "
            "remove it and run the study without --redraw"
        )
    if one.fingerprint != mark:
        raise InputError(
            f"the run of {one.rule!r} on {one.setting!r} in {folder} was made with other options "
            "since; run the study without --redraw"
        )
    return one


def in_order(outcomes: Sequence[Outcome], sheets: Sequence[Sheet]) -> list[Outcome]:
    """Return the outcomes of these settings and their rules, in the order of the legend."""
    found = {(one.setting, one.rule): one for one in outcomes}
    order = {rule: place for place, rule in enumerate(LOOKS)}
    keys = [
        (sheet.setting, rule)
        for sheet in sheets
        for rule in sorted(sheet.rules, key=lambda rule: order.get(rule, len(order)))
    ]
    return [found[key] for key in keys if key in found]


def _save_sheets(
    folder: Path, page: Page, sheets: Sequence[Sheet], outcomes: Sequence[Outcome]
) -> None:
    settings = [
        {
            "setting": sheet.setting,
            "importance": sheet.importance.tolist(),
            "inclusion": None if sheet.inclusion is None else sheet.inclusion.tolist(),
            "excess": sheet.excess,
            "caption": sheet.caption,
            "rules": list(sheet.rules),
        }
        for sheet in sheets
    ]
    runs = {file_name(one.setting, one.rule): one.fingerprint for one in outcomes}
    content = {"name": page.name, "title": page.title, "settings": settings, "runs": runs}
    write_document(folder / "study.json", format=_FORMAT, version=_VERSION, content=content)
