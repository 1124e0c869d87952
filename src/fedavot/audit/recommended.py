"""What training on a log showed, and what follows from it, as data: a part of `findings`."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedavot._checks import Floats, Integers

Action = Literal[
    "nothing to do",
    "change the weights",
    "use memory",
    "change selection",
    "collect more rounds",
    "install JAX",
]

Reason = Literal[
    "one client",
    "within noise",
    "trains better",
    "too short",
    "unobserved",
    "not replayed",
]
"""Why: there is one client; no allowed rule trains better than the one in use by more than noise;
one does; the log is too short to tell, or most of the importance is not observed in it; there is no
replay."""

Need = Literal["memory-clients", "memory-server", "select"]
"""What a rule needs beyond weights: a model kept on each client, or one for each client on the
server; or that the server chooses which clients to ask."""


class Estimate(NamedTuple):
    """A figure of this log, and a 95 % interval for its long-run value."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Trained:
    """How training with one rule went in the replay.

    A loss is an excess loss: above the smallest possible one. A figure is a geometric mean over all
    variants and seeds; its ``low`` and ``high`` are the smallest and the largest of the variants'.

    Attributes
    ----------
    rule : str
        Its name, as in `fedavot.rules`, or one of the audit's own: ``as-applied`` for the weights
        in the log, ``by-examples`` for weights in proportion to the clients' examples.
    needs : tuple of Need
        What the rule needs, one of these; empty if nothing.
    step : float
        The step size at which it did best, relative to that of the plain average.
    to_plain, to_full : Estimate
        Its loss, averaged over all rounds, relative to the plain average's and to that of full
        participation.
    held_out_to_plain, held_out_to_full : Estimate
        The same in the last part of the log, which no weights were fitted to.
    to_use : Estimate
        Its loss in the last part of the log relative to that of the rule in use.
    low, middle, high : float array, shape (n_records,)
        The loss by round, relative to that of the first model: the smallest, the median and the
        largest of the variants.
    better : bool
        Whether it is better than the rule in use in every variant, by more than chance.
    softness : float
        Softness of its alignment, if it has one.
    """

    rule: str
    needs: tuple[Need, ...]
    step: float
    to_plain: Estimate
    to_full: Estimate
    held_out_to_plain: Estimate
    held_out_to_full: Estimate
    to_use: Estimate
    low: Floats
    middle: Floats
    high: Floats
    better: bool = False
    softness: float = 0.0


@dataclass(frozen=True, eq=False)
class Replay:
    """Training on the log: a small federated problem on its clients and rounds, in order.

    Attributes
    ----------
    trained : tuple of Trained
        The rules, among them the plain average, the rule in use, and ``full``, in which all clients
        take part in every round.
    recorded : int array, shape (n_records,)
        The rounds after which the loss was recorded, counted from 1.
    fitted_rounds, held_out_rounds : int
        Number of rounds in the first part, which weights were fitted to, and in the last.
    variants, seeds : int
        Number of problems, which differ in how different clients are and in the noise of their
        gradients; and of runs on each.
    local_steps : int
        Number of local steps of a client in a round.
    n_clients : int
        Number of clients; fewer than in the log if it is large, and then a random sample.
    task : str or None
        Name of the user's own task, if it was given instead of these problems.
    """

    trained: tuple[Trained, ...]
    recorded: Integers
    fitted_rounds: int
    held_out_rounds: int
    variants: int
    seeds: int
    local_steps: int
    n_clients: int
    task: str | None = None

    def find(self, rule: str) -> Trained | None:
        """Return how training with a rule went, or None if it was not replayed."""
        return next((one for one in self.trained if one.rule == rule), None)


@dataclass(frozen=True)
class Choice:
    """A rule that may be used, what it needs, and what it gains.

    ``needs`` is as in `Trained`. ``gain`` is the share of the excess loss in the last part of the
    log that it removes, compared with the rule in use, with its smallest and largest over the
    variants. ``softness`` is that of its alignment, if it has one.
    """

    rule: str
    needs: tuple[Need, ...]
    gain: Estimate
    softness: float = 0.0


@dataclass(frozen=True)
class Recommendation:
    """What to do, and why.

    Attributes
    ----------
    action : str
        One of `Action`.
    reason : str
        One of `Reason`.
    best : Choice or None
        The rule to use; None if there is nothing to change, or no ground for it.
    second : Choice or None
        The best rule that needs nothing, if ``best`` needs something and this one gains as well.
    rounds_needed : int or None
        If the log is too short, roughly how many rounds would be enough.
    """

    action: Action
    reason: Reason
    best: Choice | None = None
    second: Choice | None = None
    rounds_needed: int | None = None
