"""A command group that shows errors as one line and an exit status, without a traceback."""

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
    """An error shown in one line, without the usage of the command."""

    exit_code = 2


class Group(click.Group):
    """Turn errors of the library and of the file system into one line and exit status 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            with ending("Interrupted before anything was run."):
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of the output has closed it: click ends quietly
        except (FedavotError, OSError) as error:
            raise Refusal(str(error)) from None
        except MemoryError:
            raise Refusal("out of memory; close other programs, or use a larger machine") from None


@contextmanager
def ending(words: str) -> Iterator[None]:
    """End the command with these words, and the exit status for it, if it is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(words, err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def orderly() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that clean-up runs."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # signals can only be caught in the main thread
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
