"""All errors that the library raises.

::

    FedavotError
    ├── InputError                 a caller's value is wrong (also a ValueError)
    │   ├── ImportanceError        an importance vector
    │   ├── LawError               an availability law: probabilities, cohorts, sizes
    │   ├── CohortError            a cohort given to be weighted or observed
    │   ├── TaskError              client data, a loss or a model
    │   ├── ModelError             a model or update given to be aggregated
    │   ├── RuleError              an aggregation rule lacks what it needs
    │   ├── ConfigError            a study's configuration file
    │   └── OptionError            an option: a method, a tolerance, a size
    ├── TooLargeError              would not fit in memory (also a MemoryError)
    ├── AggregateError             what a Flower strategy aggregated is not a model, or nothing
    ├── InterruptedStudyError      ctrl-C while a study ran; carries what is finished
    ├── FileFormatError            a saved file is truncated, damaged, foreign or too new
    ├── CheckpointError            a checkpoint is of another run, or in the way of a new one
    ├── MissingPackageError        an optional package is missing or too old (also an ImportError)
    └── UnavailableError           the object does not have what was asked for

A message says what was found, where, what was required, and what to do. Infeasible importance
and solvers that stop early are not errors: they are answers, in a certificate or a status. The one
warning, `FedavotWarning`, is for a missing package that would make a computation faster.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option that a message names, so that a command line can name its own flag instead.

    The value is what to set it to; None to name the parameter alone.
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class FedavotError(Exception):
    """Root of every error the library raises on purpose.

    A message may be given in parts, of which some are `Option`.
    """

    def __str__(self) -> str:
        return self.written(str)

    def written(self, option: Callable[[Option], str]) -> str:
        """Return the message with its options written by a function."""
        return "".join(
            option(part) if isinstance(part, Option) else str(part) for part in self.args
        )


class InputError(FedavotError, ValueError):
    """A value the caller passed is wrong."""


class ImportanceError(InputError):
    """An importance vector is not a distribution over the clients."""


class LawError(InputError):
    """An availability law is not a distribution over non-empty cohorts."""


class CohortError(InputError):
    """A cohort is empty, repeats a member, or names an unknown client."""


class TaskError(InputError):
    """Client data, a loss or a model is not what training needs."""


class ModelError(InputError):
    """A model or update is not finite, or not like the others."""


class RuleError(InputError):
    """An aggregation rule was not given what it needs, or was given what it must not use."""


class ConfigError(InputError):
    """A configuration has an unknown key, a wrong type, or names what is not there."""


class OptionError(InputError):
    """An option is outside what a function accepts."""


class TooLargeError(FedavotError, MemoryError):
    """The result would not fit in memory; refused before anything is allocated."""


class FileFormatError(FedavotError, ValueError):
    """A file is truncated, damaged, foreign, or of a newer version of the library."""


class CheckpointError(FedavotError, ValueError):
    """A checkpoint belongs to another run, or a new run would overwrite it."""


class MissingPackageError(FedavotError, ImportError):
    """An optional package is not installed, or too old."""


class AggregateError(FedavotError):
    """What a Flower strategy aggregated cannot be the next model."""


class InterruptedStudyError(FedavotError):
    """A study was interrupted; what was finished is saved, and in ``outcomes``."""

    def __init__(self, outcomes: list[object]) -> None:
        super().__init__(f"interrupted with {len(outcomes)} runs finished; run it again to go on")
        self.outcomes = outcomes


class UnavailableError(FedavotError):
    """The object does not have what was asked for."""


class FedavotWarning(UserWarning):
    """A warning, such as that a missing package would make a computation faster."""
