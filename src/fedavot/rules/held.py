"""The steady rule with memories on the clients: the server keeps one model, whatever their number.

The server holds the mean of the memories, T over the importance heard, and a few numbers: sums of
evidence, and for each client the round and the gain of its last accepted reply. Client i holds y_i,
and for the time being the innovation d_i = u_i − y_i of its last reply, whose fate it does not
know. A round is one exchange:

* A `Request` carries the mean, trust α and correction κ, and which reply was last accepted. If that
  is the client's last one, y_i ← y_i + γ_i d_i; otherwise d_i is dropped. So a reply that is lost,
  late or excluded changes nothing on either side.
* A `Reply` carries d_i and y_i, as the server needs Σ w_i u_i and Σ w_i y_i and knows the weights
  only when the round ends; with α = 1 it needs Σ w_i d_i alone, and y_i is not sent. A first reply
  carries u_i. ⟨u_i, y_i⟩, ‖u_i‖² and ‖y_i‖² are the evidence that α and κ are learnt from.

The runs are those of `steady`, to rounding. Save the server's state before the next requests go
out, and a client's before its reply does: then a restart on either side changes nothing either. A
client without the memory that the server names says so, and counts as never seen. What it said
before stays in the mean, as if a client of the same importance had left for good, and does not
fade: the mean is off by p_i/(1 + p_i) of the difference between that and what the mean should be.

Models are lists of arrays. Which replies may be used is left to the caller.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_amount
from fedavot.errors import FileFormatError, RuleError
from fedavot.rules._known import as_shares
from fedavot.rules._memory import FORGETTING, RETURNS
from fedavot.rules._rule import equal_weights
from fedavot.rules.steady import constants_of

Model = list[NDArray[Any]]
Weigh = Callable[[Integers], Floats]


@dataclass(frozen=True, eq=False)
class Request:
    """What the server sends to one client, beside the model.

    ``round`` counts from 1, and ``accepted`` is the round of the client's last accepted reply, with
    gain γ_i; 0 before the first. The mean stands for the memory of a client that has none.
    """

    round: int
    mean: Model
    trust: float
    correction: float
    accepted: int
    gain: float


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client sends back.

    ``since`` is the round in which its memory was last accepted, 0 if it has none; the innovation
    is then u_i. The memory is None without one, and if trust is 1.
    """

    round: int
    since: int
    innovation: Model
    memory: Model | None
    products: tuple[float, float, float]
    """⟨u_i, y_i⟩, ‖u_i‖² and ‖y_i‖²."""


class _Kept:
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
class ClientMemory(_Kept):
    """The client's side: its memory, and the innovation of its last reply."""

    memory: Model | None = None
    since: int = 0
    """The round in which the memory was last accepted."""
    pending: Model | None = None
    pending_round: int = 0

    def correction(self, request: Request) -> Model:
        """Return what the client adds to each of its gradients: κ (y_i − T)."""
        self._settle(request)
        own = request.mean if self.memory is None else self.memory
        return _sum((request.correction, own), (-request.correction, request.mean))

    def answer(self, request: Request, update: Sequence[ArrayLike], *, span: float = 1.0) -> Reply:
        """Return the reply to a request; asked again in the same round, the same reply.

        Parameters
        ----------
        request : Request
            The server's.
        update : sequence of array-like
            The model after local training with `correction`, less the one before it.
        span : float
            H η, the number of local steps times their size: updates are kept per unit of it.
        """
        length = as_amount(span, what="span", positive=True)
        path = self.correction(request)
        if self.pending is None:
            said = _sum((1.0 / length, [np.asarray(array) for array in update]), (1.0, path))
            self.pending = said if self.memory is None else _sum((1.0, said), (-1.0, self.memory))
            self.pending_round = request.round
        new, old = self.pending, self.memory
        if old is None:
            return Reply(request.round, 0, new, None, (0.0, _product(new, new), 0.0))
        said = _sum((1.0, new), (1.0, old))
        products = (_product(said, old), _product(said, said), _product(old, old))
        sent = None if request.trust == 1.0 else old
        return Reply(request.round, self.since, new, sent, products)

    def _settle(self, request: Request) -> None:
        """Commit the last reply if it was accepted; forget what the server does not know."""
        if self.pending is not None and self.pending_round == request.accepted:
            held = [] if self.memory is None else [(1.0, self.memory)]
            self.memory = _sum(*held, (request.gain, self.pending))
            self.since = request.accepted
        elif self.since != request.accepted:
            self.memory, self.since = None, 0
        if self.pending_round != request.round:
            self.pending, self.pending_round = None, 0


@dataclass(eq=False)
class ServerMemory(_Kept):
    """The server's side: the mean of the memories, and what returning clients have taught."""

    importance: Floats
    constants: dict[str, float]
    """β, c, κ and α; NaN for what is learnt."""
    mean: Model
    accepted: Integers
    """The round of each client's last accepted reply; 0 before the first."""
    gains: Floats
    rounds: int = 0
    heard: float = 0.0
    """Importance of the memories in the mean."""
    absences: Floats = field(default_factory=lambda: np.zeros(2))
    trusted: Floats = field(default_factory=lambda: np.zeros(2))
    alike: Floats = field(default_factory=lambda: np.zeros(3))

    @classmethod
    def start(cls, importance: ArrayLike, model: Sequence[ArrayLike], **constants: Any) -> Self:
        """Return the state before the first round, with ``share`` and so on as for `steady`.

        ``model`` is any model of the shapes and types to come.
        """
        shares = as_shares(importance)
        mean = [np.zeros_like(np.asarray(array)) for array in model]
        never = np.zeros(shares.size, dtype=np.int64)
        return cls(shares, constants_of(**constants), mean, never, np.zeros(shares.size))

    @property
    def trust(self) -> float:
        """α of the next round."""
        return self._given("trust", min(max(_ratio(*self.trusted), 0.0), 1.0))

    @property
    def correction(self) -> float:
        """κ of the next round."""
        product, new, old = self.alike
        return self._given("correction", min(max(product, 0.0) ** 2 / (new * old or 1.0), 1.0))

    def request(self, client: int) -> Request:
        """Return the request of the next round to a client."""
        last = int(self.accepted[client]), float(self.gains[client])
        return Request(self.rounds + 1, self.mean, self.trust, self.correction, *last)

    def close(self, replies: Mapping[int, Reply], *, weigh: Weigh = equal_weights) -> Model:
        """End the round with the replies accepted; return the model's change per unit of span.

        Replies to other rounds, of clients without importance, and those based on a memory that the
        server does not know are left out. Shares a_i are ``weigh(cohort)`` of those that remain.
        """
        used = {client: one for client, one in replies.items() if self._is_usable(client, one)}
        if not used:
            self.rounds += 1
            return [np.zeros_like(array) for array in self.mean]
        cohort, told = np.array(list(used), dtype=np.int64), list(used.values())
        first, shares = np.array([one.since == 0 for one in told]), self.importance[cohort]
        trust, given = self.trust, not np.isnan(self.constants["trust"])
        # Nothing stands for clients never seen if trust is learnt; see `_memory`.
        unheard = 0.0 if given else max(1.0 - self.heard - float(shares[first].sum()), 0.0)
        part = 1.0 - trust * (1.0 - self.constants["share"])
        weights = shares + (part * (1.0 - shares.sum() - unheard) + unheard) * weigh(cohort)
        stands = 1.0 - float(weights[first].sum()) if given else self.heard
        parts = [(trust * stands, self.mean)]
        for weight, one in zip(weights.tolist(), told, strict=True):
            parts.append((weight, one.innovation))
            if one.memory is not None:
                parts.append((weight * (1.0 - trust), one.memory))
        change = _sum(*parts)
        self.rounds += 1
        absence = np.where(first, 0, self.rounds - self.accepted[cohort])
        gains = self._learn(shares, absence, np.array([one.products for one in told]))
        self._remember(cohort, first, gains, [one.innovation for one in told])
        return change

    def _given(self, name: str, learnt: float) -> float:
        return float(learnt if np.isnan(self.constants[name]) else self.constants[name])

    def _is_usable(self, client: int, reply: Reply) -> bool:
        """Return whether a reply belongs to this round, or raise if it is damaged."""
        known = reply.since in (0, self.accepted[client]) and self.importance[client] > 0
        if not known or reply.round != self.rounds + 1:
            return False
        shapes = [array.shape for array in self.mean]
        needed = reply.since > 0 and self.trust != 1.0
        models = [reply.innovation, *([reply.memory or []] if needed else [])]
        if any([np.shape(array) for array in model] != shapes for model in models):
            raise RuleError(
                f"the reply of client {client} lacks arrays of the model, or has them in other "
                f"shapes than {shapes}; exclude it"
            )
        if not np.isfinite([*reply.products, *(_product(one, one) for one in models)]).all():
            raise RuleError(f"the reply of client {client} is not finite; exclude it")
        return True

    def _learn(self, shares: Floats, absence: Integers, products: Floats) -> Floats:
        """Add the evidence of the clients that are back; return the gains of all."""
        back = absence > 0
        self.absences = self.absences + np.array([absence[back].sum(), back.sum()])
        damping = self._given("damping", RETURNS * _ratio(*self.absences))
        gains = np.where(back, absence / np.where(back, absence + damping, 1.0), 1.0)
        if back.any():
            counted = (shares * gains)[back] @ products[back]
            self.trusted = FORGETTING * self.trusted + counted[[0, 2]]
            self.alike = FORGETTING * self.alike + products[back].sum(axis=0)
        return gains

    def _remember(
        self, cohort: Integers, first: NDArray[np.bool_], gains: Floats, news: list[Model]
    ) -> None:
        """Add to the mean what the clients will add to their memories, all of it the first time."""
        shares = self.importance[cohort]
        heard = self.heard + float(shares[first].sum())
        parts = zip((shares * gains / heard).tolist(), news, strict=True)
        self.mean, self.heard = _sum((self.heard / heard, self.mean), *parts), heard
        self.accepted[cohort], self.gains[cohort] = self.rounds, gains


def _sum(*parts: tuple[float, Model]) -> Model:
    """Return the sum of multiples of models."""
    columns = zip(*(model for _, model in parts), strict=True)
    factors = [factor for factor, _ in parts]
    return [np.asarray(sum(map(np.multiply, factors, column))) for column in columns]


def _product(left: Model, right: Model) -> float:
    return float(sum(np.vdot(one, other) for one, other in zip(left, right, strict=True)))


def _ratio(over: float, under: float) -> float:
    return float(over / under) if under > 0 else 0.0
