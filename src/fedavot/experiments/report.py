"""The folder of a study: ``results.json``, ``results.csv``, ``summary.md``, figures, and more.

The folder holds ``runs/`` (one file per setting and rule, and checkpoints of unfinished runs) and
``study.json`` (what the figures need besides the runs). Everything except the runs is written anew
by `report`, from the outcomes alone.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedavot._checks import SUM_SLACK, as_distribution
from fedavot._files import read_document, write_document, write_whole
from fedavot._reading import csv_line
from fedavot.errors import FileFormatError, InputError
from fedavot.experiments.canvas import LOOKS, drawing
from fedavot.experiments.figures import draw_curves
from fedavot.experiments.outcome import Outcome, as_numbers, as_text, file_name
from fedavot.experiments.study import Panel, Study
from fedavot.experiments.summary import markdown, sections

_FORMAT = "fedavot-study"
_VERSION = 2


def report(
    study: Study, panels: Sequence[Panel], outcomes: Sequence[Outcome], folder: Path
) -> list[Path]:
    """Write results, summary and figures of the outcomes that there are; return the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = in_order(outcomes, panels)
    write_results(
        folder, [*(row for one in outcomes for row in one.rows()), *study.derive(outcomes)]
    )
    _save(folder, study, panels, outcomes)
    _write(folder / "summary.md", markdown(study, sections(study, panels, outcomes)))
    if not outcomes:
        return []
    stem = folder / study.name
    with drawing():
        if study.draw is not None:
            return study.draw(outcomes, stem)
        shown = [one for one in outcomes if not study.drawn or one.rule in study.drawn]
        return draw_curves(shown, panels, stem, title=study.title)


def write_results(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as ``results.json``, one per line, and as ``results.csv``."""
    lines = ",\n".join(json.dumps(one, allow_nan=False, ensure_ascii=False) for one in rows)
    cells = "".join(map(csv_line, [rows[0], *(one.values() for one in rows)])) if rows else ""
    _write(folder / "results.json", f"[\n{lines}\n]\n")
    _write(folder / "results.csv", cells)


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda stream: stream.write(text.encode()))


def reopen(study: Study, folder: Path) -> tuple[Study, list[Panel], list[Outcome]]:
    """Return the arguments of `report` from a folder that it wrote, with the outcomes it used."""
    path = folder / "study.json"
    if not path.exists():
        raise InputError(f"{folder} holds no study; run without --redraw first")
    held = read_document(path, format=_FORMAT, version=_VERSION)
    if held.get("name") != study.name:
        raise InputError(f"{folder} holds the study {held.get('name')!r}, not {study.name!r}")
    try:
        panels = [_panel(one) for one in held["settings"]]
        used = {name: as_text(mark) for name, mark in held["runs"].items()}
        study = dataclasses.replace(study, title=as_text(held["title"]))
        known = {file_name(panel.setting, rule) for panel in panels for rule in panel.rules}
        if not used.keys() <= known:
            raise ValueError(f"{min(used.keys() - known)!r} belongs to none of its settings")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as cause:
        raise FileFormatError(
            f"{path} is not a valid study ({cause!r}); run it again without --redraw"
        ) from None
    return study, panels, [_loaded(folder, name, mark) for name, mark in used.items()]


def _panel(one: Any) -> Panel:
    """Return a setting from a document, or raise KeyError, TypeError or ValueError."""
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
    rules, notes = (tuple(map(as_text, held)) for held in (one["rules"], one.get("notes", [])))
    setting, caption = as_text(one["setting"]), as_text(one["caption"])
    return Panel(setting, importance, inclusion, one["excess"], caption, rules, notes)


def _loaded(folder: Path, name: str, mark: str) -> Outcome:
    """Return the outcome of a file, or raise if the study used another."""
    path = folder / "runs" / name
    if not path.is_file():
        raise InputError(f"{path} is missing; run the study without --redraw")
    one = Outcome.load(path)
    if file_name(one.setting, one.rule) != name:
        raise FileFormatError(
            f"{path} holds the run of {one.rule!r} on {one.setting!r}, which belongs in another "
            "file; remove it and run the study without --redraw"
        )
    if one.fingerprint != mark:
        raise InputError(
            f"the run of {one.rule!r} on {one.setting!r} in {folder} has since been made with "
            "other options; run the study without --redraw"
        )
    return one


def in_order(outcomes: Sequence[Outcome], panels: Sequence[Panel]) -> list[Outcome]:
    """Return the outcomes of these settings and their rules, in the order of the legend."""
    found = {(one.setting, one.rule): one for one in outcomes}
    order = {rule: place for place, rule in enumerate(LOOKS)}
    keys = [
        (panel.setting, rule)
        for panel in panels
        for rule in sorted(panel.rules, key=lambda rule: order.get(rule, len(order)))
    ]
    return [found[key] for key in keys if key in found]


def _save(folder: Path, study: Study, panels: Sequence[Panel], outcomes: Sequence[Outcome]) -> None:
    settings = [
        {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(panel).items()
        }
        for panel in panels
    ]
    runs = {file_name(one.setting, one.rule): one.fingerprint for one in outcomes}
    content = {"name": study.name, "title": study.title, "settings": settings, "runs": runs}
    write_document(folder / "study.json", format=_FORMAT, version=_VERSION, content=content)
