"""The client's side of `held`: its memory, and what it exchanges with the server."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import as_amount
from fedavot.errors import FileFormatError, RuleError

Model = list[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Request:
    """What the server sends to one client, in addition to the model.

    ``round`` counts from 1, and ``accepted`` is the round of the client's last accepted reply, with
    gain γ_i; 0 before the first. ``fade`` is the share of its memory that has not faded. The mean
    replaces the memory of a client that has none; only clients that correct need it.
    """

    round: int
    mean: Model | None
    trust: float
    correction: float
    accepted: int
    gain: float
    fade: float = 1.0


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client sends back.

    ``since`` is the round in which its memory was last accepted, 0 if it has none; the innovation
    is then u_i. ``memory`` is its memory as far as it has not faded; None if it has none, or if
    trust is 1. The update of a client that does not keep its memory is used but not remembered.
    """

    round: int
    since: int
    innovation: Model
    memory: Model | None
    products: tuple[float, float, float]
    """⟨u_i, y_i⟩, ‖u_i‖² and ‖y_i‖²."""
    keeps: bool = True


class Kept:
    """A dataclass whose fields are all of its state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: numbers, arrays, and models as lists of arrays."""
        return copy.deepcopy(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return an object from what `state_dict` returned."""
        try:
            return cls(**copy.deepcopy(dict(state)))
        except TypeError as cause:
            raise FileFormatError(f"the state is not one of {cls.__name__}: {cause}") from None


@dataclass(eq=False)
class ClientMemory(Kept):
    """The client's side: its memory, and the innovation of its last reply."""

    memory: Model | None = None
    since: int = 0
    """The round in which the memory was last accepted."""
    pending: Model | None = None
    pending_round: int = 0
    pending_fade: float = 1.0
    """Share of the memory that had not faded when the innovation was computed."""

    def correction(self, request: Request) -> Model:
        """Return what the client adds to each of its gradients: κ (y_i − T)."""
        if request.mean is None:
            raise RuleError("the request has no mean of the memories, which a correction needs")
        mean, own = request.mean, self.recall(request)
        own = mean if own is None else own
        return total((request.correction, own), (-request.correction, mean))

    def answer(
        self,
        request: Request,
        update: Sequence[ArrayLike],
        *,
        span: float = 1.0,
        path: Model | None = None,
    ) -> Reply:
        """Return the reply to a request; repeated in the same round, it gives the same reply.

        Parameters
        ----------
        request : Request
            The server's request.
        update : sequence of array-like
            The model after local training, minus the one before it.
        span : float
            H η, the number of local steps times their size: updates are kept per unit of it.
        path : list of arrays, optional
            What `correction` returned, if training followed it.
        """
        length = as_amount(span, what="span", positive=True)
        old = self.recall(request)
        if self.pending is None:
            along = [] if path is None else [(1.0, path)]
            said = total((1.0 / length, [np.asarray(array) for array in update]), *along)
            self.offer(request, said if old is None else total((1.0, said), (-1.0, old)))
        assert self.pending is not None
        return reply_of(request, self.since, self.pending, old)

    def offer(self, request: Request, innovation: Model) -> None:
        """Keep an innovation until it is known whether it was accepted."""
        self.pending, self.pending_round = innovation, request.round
        self.pending_fade = request.fade

    def recall(self, request: Request) -> Model | None:
        """Return the memory as far as it has not faded; None without one.

        The last reply is committed if it was accepted, and any state unknown to the server is
        dropped.
        """
        if self.pending is not None and self.pending_round == request.accepted:
            held = [] if self.memory is None else [(self.pending_fade, self.memory)]
            self.memory = total(*held, (request.gain, self.pending))
            self.since = request.accepted
        elif self.since != request.accepted:
            self.memory, self.since = None, 0
        if self.pending_round != request.round:
            self.pending, self.pending_round = None, 0
        if self.memory is None or request.fade == 1.0:
            return self.memory
        return total((request.fade, self.memory))


def reply_of(request: Request, since: int, innovation: Model, memory: Model | None) -> Reply:
    """Return a reply with its evidence; the memory is left out if the server does not need it."""
    if memory is None:
        square = product(innovation, innovation)
        return Reply(request.round, 0, innovation, None, (0.0, square, 0.0))
    said = total((1.0, innovation), (1.0, memory))
    products = (product(said, memory), product(said, said), product(memory, memory))
    sent = None if request.trust == 1.0 else memory
    return Reply(request.round, since, innovation, sent, products)


def total(*parts: tuple[float, Model]) -> Model:
    """Return the sum of multiples of models."""
    columns = zip(*(model for _, model in parts), strict=True)
    factors = [factor for factor, _ in parts]
    return [np.asarray(sum(map(np.multiply, factors, column))) for column in columns]


def product(left: Model, right: Model) -> float:
    """Return the inner product of two models."""
    return float(sum(np.vdot(one, other) for one, other in zip(left, right, strict=True)))
