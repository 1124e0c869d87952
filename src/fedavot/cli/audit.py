"""The commands that audit a participation log, and that write a sample log."""

import errno
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from fedavot.cli._audit_options import (
    parse_can,
    parse_columns,
    parse_importance,
    parse_statuses,
    parse_where,
)
from fedavot.cli._group import Refusal, ending, orderly
from fedavot.cli._paths import FILE, FOLDER, LOG
from fedavot.cli._progress import of_bytes, of_stages
from fedavot.cli._terms import typed
from fedavot.errors import FedavotError

if TYPE_CHECKING:
    from fedavot.audit.findings import Findings
    from fedavot.audit.report.comparison import Change

LEAST_TOLERANCE = 1e-4
"""The smallest tolerance: no log is long enough to resolve a smaller gap."""
ABOVE_0 = click.FloatRange(min=0, min_open=True)


@click.command("audit")
@click.argument("log", type=LOG)
@click.option(
    "--importance",
    default="uniform",
    show_default=True,
    metavar="FILE",
    callback=parse_importance,
    help="Importance of each client: a table with the columns client and importance (or "
    "examples) and optionally group; a JSON file from client to number; or the word uniform.",
)
@click.option(
    "--groups", type=FILE, help="Group of each client: a table with the columns client and group."
)
@click.option(
    "--targets",
    type=FILE,
    help="Share of each group, instead of --importance: a table with the columns group and share.",
)
@click.option(
    "--unlisted",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    help="Importance of clients in the log that have none.  [default: refuse them]",
)
@click.option(
    "--out", type=FOLDER, help="Folder for the files.  [default: audit- and the name of the log]"
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="MEANING=NAME",
    callback=parse_columns,
    help="Name of a column that is not recognised, as in client=device_id, or in "
    "importance.client=name for the file of importance alone; an empty name leaves a column out. "
    "May be repeated.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    callback=parse_where,
    help="Read only the rows with this value in this column, as in event=train_reply. May be "
    "repeated, also for several values of one column.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS=MEANING",
    callback=parse_statuses,
    help="What a status means that is not certain, as in 0=ok: ok, failed, not_asked, offline or "
    "unknown. The status * is all others. May be repeated.",
)
@click.option(
    "--dates",
    type=click.Choice(["day-first", "month-first"]),
    help="How dates such as 03/04/2024 are written, if the log does not show it.",
)
@click.option(
    "--period", type=ABOVE_0, metavar="SECONDS", help="For interval logs: time between rounds."
)
@click.option(
    "--cohort-size",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="For interval logs: largest number of clients per round.  [default: all available]",
)
@click.option(
    "--state",
    metavar="WORD",
    help="For interval logs: the state that means available, as in charging.",
)
@click.option(
    "--observed",
    type=FILE,
    help="For interval logs: when each client was observed, a table with the columns client, "
    "known_until and optionally known_from.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=LEAST_TOLERANCE, max=1),
    metavar="GAP",
    default=0.05,
    show_default=True,
    help="Largest gap, between 0 and 1, that calls for no action.",
)
@click.option(
    "--weights",
    metavar="WEIGHTS",
    help="The weights in use today: equal, examples (in proportion to the examples in the log), or "
    "the name of a column with weights.  [default: as the log says, or equal]",
)
@click.option(
    "--can",
    metavar="NEEDS",
    callback=parse_can,
    help="What is possible, separated by commas: memory, select; or nothing. Rules that need "
    "something else are not recommended.  [default: all of it]",
)
@click.option(
    "--local-steps",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    default=5,
    show_default=True,
    help="Local steps that a client takes in a round.",
)
@click.option(
    "--task",
    type=FILE,
    help="A task to train on instead of small problems: an .npz of features, targets and clients, "
    "as fedavot simulate takes it.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=0,
    show_default=True,
    help="Seed for sampling cohorts, for the bootstrap and for training on the log.",
)
@click.option(
    "--compare", type=FILE, help="The findings.json of an earlier audit, to report what changed."
)
def audit_command(log: Path, out: Path | None, compare: Path | None, **chosen: Any) -> None:
    """Report what a federation really optimises, from its LOG.

    LOG, a log of participation, is a CSV, JSON lines (either may be gzipped) or Parquet file, or a
    folder of files of one of these kinds: the parts of one log. A folder of Parquet files may be
    larger than memory. The log has one row per round and client, optionally with status and time;
    or one line per round with all its clients; or one row per interval in which a client was
    available, with client, start and end; or it is the log that fedavot.flower writes.

    \b
    Try it on a sample:
      fedavot sample-log sample
      fedavot audit sample/log.csv --importance sample/importance.csv

    \b
    Rounds every ten minutes, with up to ten of the phones that are charging:
      fedavot audit phones.csv --period 600 --cohort-size 10 --state charging

    Prints a summary and writes a folder with report.html, a page to read or print, which ends with
    how to follow the advice; alignment.json, weights fitted to the log; findings.json and
    clients.csv with all numbers; and the figures.
    """  # noqa: D301
    from fedavot.audit.report.outputs import check_folder, write_audit
    from fedavot.cli.summary import show

    folder = out or Path(f"audit-{_stem(log)}")
    with _refused(log, folder):
        check_folder(folder)
        findings, changes = _find(log, compare, chosen)
        with of_stages() as told:
            told("the report", 0, 1)
            files = write_audit(findings, folder, changes=changes or ())
    with ending(f"Interrupted; {folder} was written."):
        show(Console(highlight=False), findings, changes, files)


@contextmanager
def _refused(log: Path, folder: Path) -> Iterator[None]:
    """Turn errors about a log into one line."""
    from polars.exceptions import PanicException, PolarsError

    try:
        with ending("Interrupted; nothing was written."), orderly():
            yield
    except FedavotError as error:
        raise Refusal(typed(error)) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Refusal(
            f"the disk of {folder} is full; free some space, or name another folder with --out "
            "(nothing was written)"
        ) from None
    except MemoryError:
        raise Refusal(f"{log} does not fit in memory; audit a part of it") from None
    except (PolarsError, PanicException) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise Refusal(f"{log} cannot be read: {reason}; write it again as CSV") from None


def _find(
    log: Path, compare: Path | None, chosen: dict[str, Any]
) -> "tuple[Findings, tuple[Change, ...] | None]":
    """Read, audit and compare; the changes are None without an earlier audit."""
    from fedavot.audit import auditing
    from fedavot.audit.federation import federation_of, refuse_contradictions
    from fedavot.audit.reading.log import read_log
    from fedavot.audit.report import comparison
    from fedavot.audit.report.document import read_findings

    wanted = {name: chosen.pop(name) for name in ("importance", "groups", "targets", "unlisted")}
    refuse_contradictions(**wanted)  # before a long log is read
    options = {name: chosen.pop(name) for name in ("tolerance", "can")}
    how = {name: chosen.pop(name) for name in ("local_steps", "task")}
    options["training"] = auditing.ReplayOptions(**how)
    options["weights"] = weights = chosen.pop("weights")
    if weights not in (None, "equal", "examples"):
        chosen["columns"], options["weights"] = {**chosen["columns"], "weight": weights}, "applied"
    old = None if compare is None else read_findings(compare)
    name = _name(log)
    with of_bytes(f"reading {name}") as read:
        participation = read_log(log, **chosen, progress=read)
    federation = federation_of(participation, **wanted, columns=chosen["columns"])
    with of_stages() as told:
        findings = auditing.audit(
            federation, source=name, seed=chosen["seed"], progress=told, **options
        )
    return findings, None if old is None else comparison.compare(old, findings)


def _name(log: Path) -> str:
    """Return a log's name; the folder . has one as well."""
    return log.name or log.resolve().name


def _stem(log: Path) -> str:
    """Return a log's name without its suffixes, a folder's as it is."""
    name = Path(log.name.removesuffix(".gz"))
    return _name(log) if log.is_dir() else name.stem or log.name


@click.command("sample-log")
@click.argument("folder", type=FOLDER)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed for the random draws.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1, max=366),
    default=14,
    show_default=True,
    help="Length of the log.",
)
@click.option(
    "--n-clients",
    "n_clients",
    type=click.IntRange(min=20, max=500),
    default=120,
    show_default=True,
    help="Number of clients.",
)
def sample_log(folder: Path, **sizes: int) -> None:
    """Write a synthetic federation into FOLDER, to try an audit on.

    It has phones in three time zones that charge at night, and a few important clinics that are
    online in office hours only. Its README.txt gives the true figures that an audit should find.
    """
    from fedavot.audit.sample import write_sample

    with ending("Interrupted; nothing was written."):
        files = write_sample(folder, **sizes)
    for file in files:
        click.echo(file)
    log, importance = (shlex.quote(_argument(file)) for file in (files.log, files.importance))
    click.echo(f"\nNow audit it:\n\n  fedavot audit {log} --importance {importance}")


def _argument(path: Path) -> str:
    """Return a path that cannot be mistaken for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)
