"""Values of the audit's options, parsed as they are typed."""

from collections.abc import Sequence
from pathlib import Path

import click

from fedavot.cli._paths import FILE

NEEDS = ("memory", "select")


def parse_columns(
    context: click.Context, parameter: click.Parameter, pairs: Sequence[str]
) -> dict[str, str]:
    """Parse MEANING=NAME."""
    named: dict[str, str] = {}
    for pair in pairs:
        role, equals, name = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r}; write MEANING=NAME, as in client=device_id")
        if role in named:
            raise click.BadParameter(
                f"the {role} has two columns, {named[role]!r} and {name!r}; give only one"
            )
        named[role] = name
    return named


def parse_where(
    context: click.Context, parameter: click.Parameter, pairs: Sequence[str]
) -> dict[str, list[str]]:
    """Parse COLUMN=VALUE; a column may have several values."""
    chosen: dict[str, list[str]] = {}
    for pair in pairs:
        column, equals, value = pair.partition("=")
        if not equals or not column.strip():
            raise click.BadParameter(f"{pair!r}; write COLUMN=VALUE, as in event=train_reply")
        chosen.setdefault(column, []).append(value)
    return chosen


def parse_statuses(
    context: click.Context, parameter: click.Parameter, pairs: Sequence[str]
) -> dict[str, str]:
    """Parse STATUS=MEANING."""
    told: dict[str, str] = {}
    for pair in pairs:
        status, equals, meaning = pair.rpartition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r}; write STATUS=MEANING, as in 0=ok")
        if told.setdefault(status, meaning) != meaning:
            raise click.BadParameter(
                f"the status {status!r} has two meanings, {told[status]!r} and {meaning!r}; give "
                "only one"
            )
    return told


def parse_can(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
    """Parse what is possible, separated by commas."""
    if value is None:
        return list(NEEDS)
    named = [] if value == "nothing" else [one.strip() for one in value.split(",") if one.strip()]
    for one in named:
        if one == "nothing":
            raise click.BadParameter("'nothing' stands alone; leave it out, or give it alone")
        if one not in NEEDS:
            raise click.BadParameter(f"{one!r}; give any of {', '.join(NEEDS)}, or nothing")
    return named


def parse_importance(context: click.Context, parameter: click.Parameter, value: str) -> Path | str:
    """Parse the path of a file, or the word uniform."""
    if value == "uniform":
        return value
    try:
        found: Path = FILE.convert(value, parameter, context)
    except click.BadParameter as cause:
        raise click.BadParameter(f"{cause.message} Give a file, or the word uniform.") from None
    return found
