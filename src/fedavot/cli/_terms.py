"""The options that the library names in its messages, as flags of the command line."""

import shlex
from collections.abc import Mapping

from fedavot.errors import FedavotError, Option


def typed(error: FedavotError) -> str:
    """Return the message of an error with flags in place of the library's options.

    >>> typed(FedavotError("name it, as in ", Option("columns", {"client": "device id"})))
    "name it, as in --column 'client=device id'"
    """
    return error.written(_flag)


def _flag(option: Option) -> str:
    if option.name == "columns":
        given = option.value if isinstance(option.value, Mapping) else {}
        pairs = [f"--column {shlex.quote(f'{role}={name}')}" for role, name in given.items()]
        return " ".join(pairs) or "--column"
    flag = f"--{option.name.replace('_', '-')}"
    return flag if option.value is None else f"{flag} {shlex.quote(str(option.value))}"
