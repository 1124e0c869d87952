"""The options of training: rounds, steps, batches, seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import as_array, as_floats, as_seed, as_size, shown
from fedavot.errors import OptionError
from fedavot.training.projection import Projection
from fedavot.training.steps import StepSchedule
from fedavot.training.task import Params


@dataclass(frozen=True, eq=False)
class Training:
    """The options of training.

    Parameters
    ----------
    rounds : int
        Number of rounds, each of which ends with one aggregation.
    step : function of (rounds, local_steps)
        A schedule of positive local step sizes, such as ``constant(0.01)``.
    local_steps : int
        Number of local steps each client takes per round, H.
    batch_size : int, optional
        Number of examples per local step, drawn without replacement; all of a client's examples if
        not given.
    projection : Projection, optional
        Projection onto the convex set that models are kept in.
    seeds : sequence of int
        One run per seed, all in one compiled program.
    record_every : int
        Number of rounds between records of the objective; the last round is always recorded.
    start : pytree, optional
        The first model, with the shapes of the task's ``init``, and used instead of it.
    """

    rounds: int
    step: StepSchedule
    local_steps: int = 1
    batch_size: int | None = None
    projection: Projection | None = None
    seeds: Sequence[int] = (0,)
    record_every: int = 1
    start: Params | None = None

    def __repr__(self) -> str:
        batches = "all examples" if self.batch_size is None else f"batches of {self.batch_size:,}"
        return (
            f"Training({self.rounds:,} rounds of {self.local_steps:,} local steps on {batches}, "
            f"{len(self.seeds):,} seed{'s' * (len(self.seeds) > 1)})"
        )

    def __post_init__(self) -> None:
        as_size(self.rounds, what="rounds", low=1)
        as_size(self.local_steps, what="local_steps", low=1)
        as_size(self.record_every, what="record_every", low=1)
        if self.batch_size is not None:
            as_size(self.batch_size, what="batch_size", low=1)
        if not callable(self.step):
            raise OptionError(f"step is {self.step!r}; give a schedule, such as constant(0.01)")
        wanted = f"seeds are {shown(self.seeds)}; give a sequence of integers"
        if as_array(self.seeds, otherwise=wanted, error=OptionError).ndim != 1:
            raise OptionError(wanted)
        seeds = [as_seed(seed, high=2**31 - 1) for seed in self.seeds]
        if not seeds or len(set(seeds)) != len(seeds):
            raise OptionError(f"seeds are {shown(seeds)}; give at least one, each once")

    def step_sizes(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the step size of every round in a precision, shape (rounds,)."""
        exact = as_floats(
            self.step(self.rounds, self.local_steps), what="the step schedule", error=OptionError
        )
        if exact.size != self.rounds:
            raise OptionError(
                f"the step schedule gives {exact.size} step sizes for {self.rounds} rounds"
            )
        with np.errstate(over="ignore", under="ignore"):
            sizes = exact.astype(dtype)
        bad = np.flatnonzero(~((sizes > 0) & (sizes < np.inf)))
        if bad.size:
            raise OptionError(
                f"the step size of round {bad[0] + 1} is {exact[bad[0]]}; "
                f"in {dtype} it must be finite and above 0; end the schedule above 0, or earlier"
            )
        return sizes
