"""The options that the library names in its messages, as flags of the command line."""

import shlex
from collections.abc import Mapping

from fedavot.errors import FedavotError, Option

ONE_BY_ONE = {"columns": "--column", "statuses": "--status", "where": "--where"}
"""Flags that are repeated for each item of an option."""


def typed(error: FedavotError) -> str:
    """Return the message of an error with flags in place of the library's options.

    >>> typed(FedavotError("name it, as in ", Option("columns", {"client": "device id"})))
    "name it, as in --column 'client=device id'"
    """
    return error.written(_flag)


def _flag(option: Option) -> str:
    flag = ONE_BY_ONE.get(option.name, f"--{option.name.replace('_', '-')}")
    if isinstance(option.value, Mapping):
        pairs = [f"{flag} {shlex.quote(f'{key}={item}')}" for key, item in option.value.items()]
        return " ".join(pairs)
    return flag if option.value is None else f"{flag} {shlex.quote(str(option.value))}"
