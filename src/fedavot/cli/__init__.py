"""The command line: what a user types, and what comes back.

Only this package prints. It parses, calls the library, and shows the result; errors of the library
and of the file system become one line and exit status 2, an interruption leaves what is done and
exits with 130.
"""

import logging
import sys
from io import TextIOWrapper

from fedavot import __version__
from fedavot._checks import require

require("cli", "click", "rich", by="the command line")

import click

from fedavot.cli._group import Group
from fedavot.cli.audit import audit_command, sample_log
from fedavot.cli.studies import reproduce, simulate


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedavot")
def main() -> None:
    """Federated learning that optimises the objective you meant."""
    # Such as where it keeps its cache, or that it makes one: of no use to who waits for a report.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # A client may be called what the terminal has no letters for.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


for command in (audit_command, sample_log, simulate, reproduce):
    main.add_command(command)
