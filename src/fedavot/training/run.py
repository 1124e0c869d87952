"""What a training run leaves behind."""

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, as_importance, as_size
from fedavot.errors import OptionError

Params = Any


class Ending(enum.StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


@dataclass(frozen=True, eq=False)
class Run:
    """The models and the course of training of one rule, for every seed.

    Attributes
    ----------
    rule : str
        The rule's name.
    seeds : tuple of int
        One run each; leading axes count them.
    params : pytree
        The last models, each leaf with a leading axis of seeds.
    average : pytree
        The means of the models after each round, likewise.
    recorded : int array, shape (n_records,)
        The rounds after which the objective was recorded, counted from 1.
    losses : float array, shape (n_seeds, n_records)
        The objective Σ p_i f_i there.
    weights : float array, shape (n_seeds, n_clients)
        The mean weight each client's updates had.
    rounds : int
        How many rounds were completed.
    seconds : float
        Wall-clock time, compilation included.
    ending : Ending
        Finished, interrupted, or diverged.
    message : str
        What happened, where the run did not finish.
    """

    rule: str
    seeds: tuple[int, ...]
    params: Params
    average: Params
    recorded: Integers
    losses: Floats
    weights: Floats
    rounds: int
    seconds: float
    ending: Ending = Ending.FINISHED
    message: str = ""

    @property
    def final_loss(self) -> Floats:
        """The objective at the last record, by seed."""
        self._refuse_if_empty()
        return np.asarray(self.losses[:, -1])

    def tail_loss(self, rounds: int) -> Floats:
        """Return the mean objective over the records of the last rounds, by seed."""
        as_size(rounds, what="rounds", low=1)
        self._refuse_if_empty()
        return np.asarray(self.losses[:, self.recorded > self.rounds - rounds].mean(axis=1))

    def realised_gap(self, importance: Floats) -> Floats:
        """Return ½ Σ |p_i − mean weight_i|, by seed."""
        shares = as_importance(importance, self.weights.shape[1])
        return np.asarray(np.abs(self.weights - shares).sum(axis=1) / 2)

    def _refuse_if_empty(self) -> None:
        if not self.recorded.size:
            raise OptionError(
                f"the run of rule {self.rule!r} has no record of the objective: {self.message}"
            )
