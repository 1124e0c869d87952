"""A command group in which errors are messages: one line and an exit status, no traceback."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from fedavot.errors import FedavotError

INTERRUPTED = 130


class Refusal(click.ClickException):
    """What cannot be done, in one line and without how the command is used."""

    exit_code = 2


class Group(click.Group):
    """Turn errors of the library and of the file system into one line and exit status 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read the output has left: click ends quietly
        except (FedavotError, OSError) as error:
            raise Refusal(str(error)) from None
        except MemoryError:
            raise Refusal("out of memory; close other programs, or use a larger machine") from None
        except KeyboardInterrupt:
            click.echo("Interrupted before anything was run.", err=True)
            sys.exit(INTERRUPTED)


@contextmanager
def orderly() -> Iterator[None]:
    """Be interrupted, and so clean up, where one would be ended at once."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # where signals cannot be caught
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
