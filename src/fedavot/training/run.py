"""The result of training with one rule."""

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, as_importance, as_size
from fedavot._simplex import total_variation
from fedavot.errors import OptionError
from fedavot.training.task import Params


class Ending(enum.StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


@dataclass(frozen=True, eq=False)
class Run:
    """The models and the records of training with one rule, for every seed.

    Attributes
    ----------
    rule : str
        The rule's name.
    seeds : tuple of int
        One run per seed; leading axes run over them.
    params : pytree
        The last models, each leaf with a leading axis of seeds.
    average : pytree
        The means of the models after each round, shaped likewise.
    recorded : int array, shape (n_records,)
        The rounds after which the objective was recorded, counted from 1.
    losses : float array, shape (n_seeds, n_records)
        The objective Σ p_i f_i at those rounds.
    weights : float array, shape (n_seeds, n_clients)
        The mean weight of each client's updates.
    unseen : bool array, shape (n_seeds, n_clients)
        Which clients have importance but never trained; the model has not used their data.
    rounds : int
        Number of rounds completed.
    seconds : float
        Wall-clock time, compilation included.
    ending : Ending
        Whether the run finished, was interrupted, or diverged.
    message : str
        What happened, if the run did not finish.
    clients : tuple of str or None
        The clients' names, if the task has them.
    """

    rule: str
    seeds: tuple[int, ...]
    params: Params
    average: Params
    recorded: Integers
    losses: Floats
    weights: Floats
    unseen: NDArray[np.bool_]
    rounds: int
    seconds: float
    ending: Ending = Ending.FINISHED
    message: str = ""
    clients: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        last = f", loss {self.final_loss.mean():.4g}" if self.recorded.size else ""
        most = int(self.unseen.sum(axis=1).max())
        up_to = "up to " if len(self.seeds) > 1 else ""
        never = f", {up_to}{most:,} client{'s' * (most > 1)} never trained" if most else ""
        return (
            f"Run({str(self.rule)!r}, {self.ending} after {self.rounds:,} rounds, "
            f"{len(self.seeds):,} seed{'s' * (len(self.seeds) > 1)}{last}{never})"
        )

    @property
    def final_loss(self) -> Floats:
        """The objective at the last record, by seed."""
        self._refuse_if_empty()
        return np.asarray(self.losses[:, -1])

    def tail_loss(self, rounds: int) -> Floats:
        """Return the mean of the objective recorded in the last rounds, by seed."""
        as_size(rounds, what="rounds", low=1)
        self._refuse_if_empty()
        return np.asarray(self.losses[:, self.recorded > self.rounds - rounds].mean(axis=1))

    def realised_gap(self, importance: Floats) -> Floats:
        """Return the total variation distance between importance and mean weights, by seed."""
        shares = as_importance(importance, self.weights.shape[1])
        return total_variation(self.weights, shares)

    def _refuse_if_empty(self) -> None:
        if not self.recorded.size:
            raise OptionError(
                f"the run of rule {self.rule!r} has no record of the objective: {self.message}"
            )
