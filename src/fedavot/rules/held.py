"""The steady rule with memories on the clients: the server keeps one model for any number of them.

The server holds the mean T of the memories, sums of evidence, and for each client the round and the
gain of its last accepted reply. Client i holds y_i and, until it learns whether its last reply was
accepted, the innovation d_i = u_i − y_i of that reply. A round is one exchange:

* A `Request` carries the mean, trust α and correction κ, and which reply was last accepted. If that
  is the client's last one, y_i ← y_i + γ_i d_i; otherwise d_i is dropped. So a reply that is lost,
  late or excluded changes nothing on either side.
* A `Reply` carries d_i and y_i, as the server needs Σ w_i (u_i − α y_i) and Σ p_i γ_i d_i, and
  knows w_i and γ_i only when the round ends; with α = 1 these are sums of d_i alone, and y_i is not
  sent. A first reply carries u_i. ⟨u_i, y_i⟩, ‖u_i‖² and ‖y_i‖² are the evidence from which α and κ
  are learnt.

The results are those of `steady`, up to rounding. Save the server's state before the next requests
are sent, and a client's before its reply is sent: then a restart on either side changes nothing
either.

A client that does not have the memory named by the server reports this. The mean replaces the lost
memory: the client counts as one whose memory is T, with gain 1. T then stays off by p_i (y_i − T),
where y_i is the memory that was lost, unless memories *fade*. With a half-life of h rounds, a
memory counts 2^(−s_i/h) after s_i rounds, on both sides; for the rest its client counts as never
seen. So a lost memory fades as well, and so does that of a client that never returns. If several
clients reply and all of them have lost their memories, as in a resumed simulation, all memories are
reset.

Models are lists of arrays. The caller decides which replies may be used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount
from fedavot.errors import FileFormatError, RuleError
from fedavot.rules._evidence import FASTEST, FORGETTING, RETURNS
from fedavot.rules._held_client import ClientMemory, Kept, Model, Reply, Request, product, total
from fedavot.rules._known import as_shares
from fedavot.rules._rule import equal_weights
from fedavot.rules.steady import constants_of

__all__ = ["ClientMemory", "Reply", "Request", "ServerMemory", "Step"]

Weigh = Callable[[Integers], Floats]
LOST = 2
"""Number of clients without the memory named by the server that, if no client has its memory, show
that all memories are lost."""


@dataclass(frozen=True, eq=False)
class Step:
    """A round that may be accepted: the change of the model, and the resulting memory."""

    change: Model
    weights: Floats
    """w_i of the clients that were used, in the order of the replies."""
    cohort: Integers
    """Those of them that keep a memory, with their gains and how much their memories count."""
    gains: Floats
    masses: Floats
    mean: Model
    rate: float
    """The rate at which all memories fade at the end of the round."""
    absences: Floats
    trusted: Floats
    alike: Floats
    begins_anew: bool = False
    """Whether all memories from before the round are discarded."""


@dataclass(eq=False)
class ServerMemory(Kept):
    """The server's side: the mean of the memories, and evidence from returning clients."""

    importance: Floats
    constants: dict[str, float]
    """β, c, κ and α, NaN for a constant that is learnt; and the half-life in rounds."""
    mean: Model
    accepted: Integers
    """The round of each client's last accepted reply; 0 before the first."""
    gains: Floats
    masses: Floats
    """How much each memory counted when it was last accepted: 1 without a half-life."""
    written: Floats
    """Sum of the fading rates up to then."""
    faded: float = 0.0
    """Sum of the fading rates so far."""
    rounds: int = 0
    absences: Floats = field(default_factory=lambda: np.zeros(2))
    trusted: Floats = field(default_factory=lambda: np.zeros(2))
    alike: Floats = field(default_factory=lambda: np.zeros(3))

    @classmethod
    def start(
        cls,
        importance: ArrayLike,
        model: Sequence[ArrayLike],
        *,
        half_life: float | None = None,
        **constants: Any,
    ) -> Self:
        """Return the state before the first round.

        Parameters
        ----------
        importance : array-like of shape (n_clients,)
            A distribution over the clients.
        model : sequence of array-like
            Any model with the shapes and types of the models to come.
        half_life : float, optional
            Number of rounds after which a memory that is not renewed loses half of its weight; no
            decay by default.
        **constants
            ``share`` and so on, as for `steady`.
        """
        mean = [np.zeros_like(np.asarray(array)) for array in model]
        life = float("inf")
        if half_life is not None:
            life = as_amount(half_life, what="half_life", positive=True)
        held = {**constants_of(**constants), "half_life": life}
        fresh = cls(np.zeros(0), held, mean, np.zeros(0, np.int64), *np.zeros((3, 0)))
        fresh.reach(as_shares(importance))
        return fresh

    def check(self) -> None:
        """Raise if the arrays are not those of a valid state, for example after reading a file."""
        sizes = dict.fromkeys(("accepted", "gains", "masses", "written"), np.size(self.accepted))
        for name, size in (sizes | {"absences": 2, "trusted": 2, "alike": 3}).items():
            values, kind = getattr(self, name), "i" if name == "accepted" else "f"
            alike = isinstance(values, np.ndarray) and values.dtype.kind == kind
            if not (alike and values.shape == (size,) and np.isfinite(values).all()):
                raise FileFormatError(f"the state has no proper {name}: {values}")
        if not np.all(self.written <= self.faded):
            raise FileFormatError(f"the state has rounds after the last one, {self.faded}")

    def reach(self, importance: Floats) -> None:
        """Set a new importance, for these clients and for those that have joined after them."""
        more = (0, importance.size - self.accepted.size)
        self.importance = importance
        if more[1]:
            self.accepted = np.pad(self.accepted, more)
            self.gains, self.masses = np.pad(self.gains, more), np.pad(self.masses, more)
            self.written = np.pad(self.written, more)

    @property
    def trust(self) -> float:
        """α of the next round."""
        return self._given("trust", min(max(_ratio(*self.trusted), 0.0), 1.0))

    @property
    def correction(self) -> float:
        """κ of the next round."""
        product, new, old = self.alike
        return self._given("correction", min(max(product, 0.0) ** 2 / (new * old or 1.0), 1.0))

    @property
    def heard(self) -> float:
        """Importance of the clients with memories that have not faded by the next round."""
        return float(self.importance @ (self.masses * self.left()))

    def left(self) -> Any:
        """Return the share of each client's memory that still counts in the next round."""
        life = self.constants["half_life"]
        return 1.0 if life == np.inf else 0.5 ** ((self.rounds + 1 - self.accepted) / life)

    def request(self, client: int | None) -> Request:
        """Return the request of the next round to a client; None stands for an unknown client."""
        last: Any = (0, 0.0, 1.0)
        if client is not None and client < self.accepted.size and self.accepted[client]:
            age = self.rounds + 1 - int(self.accepted[client])
            aged = 0.5 ** (age / self.constants["half_life"])
            fade = float(np.exp(self.written[client] - self.faded)) * aged
            last = int(self.accepted[client]), float(self.gains[client]), fade
        return Request(self.rounds + 1, self.mean, self.trust, self.correction, *last)

    def close(self, replies: Mapping[int, Reply], *, weigh: Weigh = equal_weights) -> Model:
        """End the round with the replies accepted; return the model's change per unit of span.

        Replies to other rounds, of clients without importance, and those based on a memory that the
        server does not know are left out. Shares a_i are ``weigh(cohort)`` of those that remain.
        """
        step = self.step(replies, weigh=weigh)
        self.accept(step)
        return [np.zeros_like(array) for array in self.mean] if step is None else step.change

    def step(self, replies: Mapping[int, Reply], *, weigh: Weigh = equal_weights) -> Step | None:
        """Return the step of `close` without taking it; None if no reply can be used."""
        used = {client: one for client, one in replies.items() if self._is_usable(client, one)}
        if not used:
            return None
        if self.is_forgotten({client: one.since for client, one in used.items()}):
            anew = self._without_memories().step(used, weigh=weigh)
            return None if anew is None else replace(anew, begins_anew=True)
        cohort, told = np.array(list(used), dtype=np.int64), list(used.values())
        knows = np.array([one.since > 0 for one in told])
        shares, masses = self.importance[cohort], (self.masses * self.left())[cohort]
        lost = np.where(knows, 0.0, masses)
        trust, given = self.trust, not np.isnan(self.constants["trust"])
        # If trust is learnt, nothing replaces clients never seen; see `_memory`.
        missing = 0.0 if given else max(1.0 - self.heard - float(shares @ (1.0 - masses)), 0.0)
        part = 1.0 - trust * (1.0 - self.constants["share"])
        weights = shares + (part * (1.0 - shares.sum() - missing) + missing) * weigh(cohort)
        hidden = lost if not given else 1.0 - np.where(knows, masses, 0.0)
        stands = (1.0 if given else self.heard) - float(weights @ hidden)
        parts = [(trust * stands, self.mean)]
        for weight, one in zip(weights.tolist(), told, strict=True):
            parts.append((weight, one.innovation))
            if one.memory is not None:
                parts.append((weight * (1.0 - trust), one.memory))
        keeps = np.array([one.keeps for one in told])
        absence = np.where(knows, self.rounds + 1 - self.accepted[cohort], 0)
        gains, absences, trusted, alike = self._learnt(
            shares, absence, np.array([one.products for one in told])
        )
        mean = self._mean_with(
            shares * np.where(keeps, gains, 0.0), masses, lost, [one.innovation for one in told]
        )
        rate = 0.0 if given or not absence.any() else _fading(absences, alike)
        mean = total((float(np.exp(-rate)), mean)) if rate else mean
        after = masses + gains * (1.0 - masses)
        return Step(
            total(*parts),
            weights,
            cohort[keeps],
            gains[keeps],
            after[keeps],
            mean,
            rate,
            absences,
            trusted,
            alike,
        )

    def accept(self, step: Step | None) -> None:
        """End the round, with this step or without any."""
        if step is not None and step.begins_anew:
            vars(self).update(vars(self._without_memories()))
        self.rounds += 1
        if step is not None:
            self.accepted[step.cohort] = self.rounds
            self.gains[step.cohort], self.masses[step.cohort] = step.gains, step.masses
            self.written[step.cohort] = self.faded
            self.faded += step.rate
            self.mean, self.absences = step.mean, step.absences
            self.trusted, self.alike = step.trusted, step.alike

    def is_forgotten(self, since: Mapping[int, int]) -> bool:
        """Return whether enough clients have lost their memories to conclude that all have.

        Clients are given with the round of their memory, 0 if they have none.
        """
        known = [client for client in since if client < self.accepted.size]
        lost = sum(bool(self.accepted[client]) and not since[client] for client in known)
        return lost >= LOST and not any(since.values())

    def _without_memories(self) -> Self:
        """Return this state without any memories; what was learnt from them is kept."""
        names = ("accepted", "gains", "masses", "written")
        blank: dict[str, Any] = {name: np.zeros_like(getattr(self, name)) for name in names}
        return replace(self, mean=[np.zeros_like(array) for array in self.mean], **blank)

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
        if not np.isfinite([*reply.products, *(product(one, one) for one in models)]).all():
            raise RuleError(f"the reply of client {client} is not finite; exclude it")
        return True

    def _learnt(self, shares: Floats, absence: Integers, products: Floats) -> tuple[Floats, ...]:
        """Return all gains, and the evidence updated with that of the returning clients."""
        back = absence > 0
        absences = self.absences + np.array([absence[back].sum(), back.sum()])
        damping = self._given("damping", RETURNS * _ratio(*absences))
        gains = np.where(back, absence / np.where(back, absence + damping, 1.0), 1.0)
        if not back.any():
            return gains, absences, self.trusted, self.alike
        counted = (shares * gains)[back] @ products[back]
        trusted = FORGETTING * self.trusted + counted[[0, 2]]
        return gains, absences, trusted, FORGETTING * self.alike + products[back].sum(axis=0)

    def _mean_with(self, counts: Floats, masses: Floats, lost: Floats, news: list[Model]) -> Model:
        """Return the mean updated with what the clients will add to their memories."""
        after = self.heard + float(counts @ (1.0 - masses))
        if after <= 0.0:
            return self.mean
        # The innovation of a client that lost its memory is its update minus what replaces it.
        stays = self.heard - float(counts @ lost)
        return total((stays / after, self.mean), *zip((counts / after).tolist(), news, strict=True))


def _fading(absences: Floats, alike: Floats) -> float:
    """Return the rate at which memories fade, as `_evidence.fading` does."""
    _, new, old = alike
    if new >= old:
        return 0.0
    shrunk = float(np.log(old / new)) if new > 0 else FASTEST * absences[0]
    return min(shrunk / max(_ratio(*absences), 1.0), FASTEST)


def _ratio(over: float, under: float) -> float:
    return float(over / under) if under > 0 else 0.0
