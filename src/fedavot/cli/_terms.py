"""The library's remedies as one types them: its options have other names on the command line."""

import re
import shlex

_COLUMN = re.compile(r'columns=\{"(\w+)": "(.*?)"\}')
_WORDS: tuple[tuple[str, str], ...] = (
    ("as in period=600", "as in --period 600"),
    ("as in state='...'", "as in --state charging"),
    ("unlisted=0 (--unlisted 0)", "--unlisted 0"),
    (
        "period, cohort_size, state and coverage are of intervals",
        "--period, --cohort-size, --state and --coverage are of intervals",
    ),
)


def as_typed(message: str) -> str:
    """Return a message of the library with its options as the command line has them.

    >>> as_typed('name them, as in columns={"client": "device id"}')
    "name them, as in --column 'client=device id'"
    """
    for library, typed in _WORDS:
        message = message.replace(library, typed)
    return _COLUMN.sub(_option, message)


def _option(found: re.Match[str]) -> str:
    return f"--column {shlex.quote(f'{found[1]}={found[2]}')}"
