"""Memories on the clients: the server's side, one mean and three numbers per client.

Train messages carry what a client needs to keep its memory in sync: which of its replies was last
accepted, and with which gain; trust and correction; and the mean, if the client corrects. Replies
carry θ + u_i and the memory, or θ + d_i alone if trust is 1; see `wire`.

The server computes what it can instead of trusting a client's claims: it computes the products if
both arrays are there; otherwise the claimed products have to be consistent with the innovation. A
memory is a mean of accepted updates, so a memory larger than any of them excludes the reply, as
does a damaged one.
"""

import contextlib
import logging
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from fedavot._checks import enumerated
from fedavot._files import write_whole
from fedavot.errors import OptionError
from fedavot.flower.memory.steady import SteadyMemory
from fedavot.flower.memory.wire import Told, minus, put_request, take_reply
from fedavot.flower.options import Memory
from fedavot.flower.who.saying import of_clients
from fedavot.flower.worth.records import arrays_of, brief
from fedavot.flower.worth.weigher import Weigher
from fedavot.rules._held_client import Model, product, reply_of
from fedavot.rules.held import Reply

_log = logging.getLogger("flwr")

TRAINING = "training.txt"
"""File with the name of the training, under which clients keep their memories."""
AGREE = 1e-3
"""Relative tolerance for sums of squares in single precision on two machines."""

REMEDY = "call fedavot.flower.introduce(app, memory=True) in the ClientApp, or use memory='server'"
KEEP = (
    "give clients a folder, as fedavot-folder in the node configuration or, in simulation, as "
    "fedavot-folder under [tool.flwr.app.config] in pyproject.toml, or use memory='server' or a "
    "half_life"
)


class OnClients(SteadyMemory):
    """Memories that clients keep themselves.

    Parameters
    ----------
    model, options, weigher
        As for `SteadyMemory`.
    folder : Path or None
        Folder of the run, if it has one.
    resume : bool
        Whether clients continue with their memories of a run that was begun in this folder.
    """

    def __init__(
        self,
        model: ArrayRecord,
        options: Memory,
        weigher: Weigher,
        folder: Path | None = None,
        *,
        resume: bool = False,
    ) -> None:
        super().__init__(model, options, weigher)
        self._training = _name(folder, resume=resume)
        self._corrects = np.zeros(0, np.bool_)
        self._told: dict[int, Told | str | None] = {}
        self._forgetful: set[str] = set()
        self._lost: set[str] = set()
        self._largest = 0.0
        self._sizes: list[float] = []

    def prepare(self, number: int, messages: Mapping[str, Message]) -> None:
        """Add a request to every message."""
        super().prepare(number, messages)
        mean: ArrayRecord | None = None
        for name, message in messages.items():
            client = self._weigher.index(name)
            request = self.rule.request(client)
            about = {"training": self._training, "client": name, **vars(request)}
            del about["mean"]
            needed = request.accepted > 0 and bool(self._corrects[client])
            if needed and mean is None:
                mean = self.layout.record(self.rule.mean)
            put_request(message, about, mean if needed else None)

    def receive(self, replies: Iterable[Message]) -> list[Message]:
        """Take the records of the memory out of the replies."""
        listed, self._told = list(replies), {}
        for reply in listed:
            if reply.has_content():
                try:
                    self._told[id(reply)] = take_reply(reply)
                except ValueError as cause:
                    self._told[id(reply)] = str(cause)
        return listed

    def unusable(self, usable: Mapping[str, Message]) -> dict[str, str]:
        """Return what is wrong with the memories of replies whose updates can be used."""
        refused: dict[str, str] = {}
        since: dict[str, int] = {}
        silent = set()
        for name, reply in usable.items():
            told = self._told[id(reply)]
            if told is None:
                silent.add(name)
            elif isinstance(told, str):
                refused[name] = told
            elif wrong := self._wrong(name, told):
                refused[name] = wrong
            else:
                since[name] = told.since
        if silent and not since:
            raise OptionError(
                f"memory='clients', but no client that replied keeps a memory "
                f"({enumerated(map(repr, sorted(silent)), 3)}); {REMEDY}"
            )
        if new := silent - self._forgetful:
            _log.warning(
                "FedAVOT: %s; %s",
                of_clients(
                    new,
                    one="keeps no memory and counts only while it is present",
                    several="keep no memory and count only while they are present",
                ),
                REMEDY,
            )
            self._forgetful |= new
        self._report_lost({name: since[name] for name in since.keys() - self._forgetful})
        return refused

    def _report_lost(self, since: Mapping[str, int]) -> None:
        """Log, once per client, that its memory is lost for good but still in the mean.

        ``since`` has the rounds of the clients' memories, 0 if they have none.
        """
        lost = {name for name, known in since.items() if not known and self._accepted(name)}
        indexed = {self._weigher.index(name): known for name, known in since.items()}
        if self.rule.is_forgotten({i: known for i, known in indexed.items() if i is not None}):
            _log.warning(
                "FedAVOT: all clients of this round have lost their memory (%s), so all memories "
                "begin anew; %s",
                enumerated(map(repr, sorted(lost)), 3),
                KEEP,
            )
        elif self._options.half_life is None and (new := lost - self._lost):
            _log.warning(
                "FedAVOT: %s said before stays in the mean and biases the model; %s",
                of_clients(
                    new,
                    one="has lost its memory; what it",
                    several="have lost their memories; what they",
                ),
                KEEP,
            )
            self._lost |= new

    def _accepted(self, name: str) -> int:
        """Return the round of a client's last accepted reply; 0 if there is none."""
        client = self._weigher.index(name)
        known = self.rule.accepted
        return 0 if client is None or client >= known.size else int(known[client])

    def settle(self, *, accepted: bool) -> None:
        """End the round."""
        if accepted:
            self._largest = max([self._largest, *self._sizes])
        super().settle(accepted=accepted)
        self._told, self._sizes = {}, []

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        own = {"corrects": self._corrects, "largest": self._largest}
        return {**super().state_dict(), "training": self._training, **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a checkpoint."""
        super().load_state_dict(state)
        self._training = str(state["training"])
        self._corrects = np.array(state["corrects"], np.bool_)
        self._largest = float(state["largest"])

    def _wrong(self, name: str, told: Told) -> str | None:
        """Return what is wrong with a client's claims about its memory."""
        known = self._accepted(name)
        if told.round != self.rule.rounds + 1 or told.since not in (0, known):
            return (
                f"it replies to round {told.round} with the memory of round {told.since}; the "
                f"server knows round {self.rule.rounds + 1} and the memory of round {known}"
            )
        if not np.isfinite(told.products).all():
            return "the products of its update and its memory are not finite"
        return self._wrong_memory(told) if told.since and self.rule.trust != 1.0 else None

    def _wrong_memory(self, told: Told) -> str | None:
        """Return what is wrong with a memory that the server needs."""
        if told.memory is None:
            return "it does not send its memory, which the server needs unless trust is 1"
        try:
            held = self.layout.take(told.memory)
        except Exception as cause:  # arbitrary bytes from a client can raise anything
            return f"its memory cannot be read: {brief(str(cause))}"
        size = float(np.sqrt(product(held, held)))
        if size <= self._largest * (1.0 + AGREE):
            return None
        return (
            f"the norm of its memory is {size:.3g}, and no update that was accepted is larger than "
            f"{self._largest:.3g}"
        )

    def _replies(
        self, usable: Mapping[str, Message], clients: Sequence[int], start: Model
    ) -> list[Reply]:
        """Return what the clients sent, and note which clients correct."""
        more = max(max(clients, default=-1) + 1 - self._corrects.size, 0)
        self._corrects = np.pad(self._corrects, (0, more))
        found = []
        for client, reply in zip(clients, usable.values(), strict=True):
            told = self._told[id(reply)]
            assert not isinstance(told, str)
            sent = minus(self.layout.take(arrays_of(reply)), start)
            found.append(self._reply(client, told, sent))
            said = float(np.sqrt(found[-1].products[1]))
            self._sizes.append(min(said, float(np.sqrt(product(sent, sent))) + self._largest))
            self._corrects[client] = told is not None and told.corrects
        return found

    def _reply(self, client: int, told: Told | None, sent: Model) -> Reply:
        """Return a reply from the update or the innovation that was sent."""
        request = self.rule.request(client)
        if told is None:
            return Reply(request.round, 0, sent, None, (0.0, product(sent, sent), 0.0), keeps=False)
        if not told.since:
            return reply_of(request, 0, sent, None)
        if told.memory is not None and request.trust != 1.0:
            held = self.layout.take(told.memory)
            return reply_of(request, told.since, minus(sent, held), held)
        return Reply(request.round, told.since, sent, None, self._credible(told, sent))

    def _credible(self, told: Told, sent: Model) -> tuple[float, float, float]:
        """Return the products that a client claims, or no evidence if they are inconsistent."""
        mixed, new, old = told.products
        apart = abs(new - 2.0 * mixed + old - product(sent, sent))
        fits = min(new, old) >= 0 and mixed**2 <= new * old * (1 + AGREE)
        return (mixed, new, old) if fits and apart <= AGREE * (new + old) else (0.0, 0.0, 0.0)


def _name(folder: Path | None, *, resume: bool) -> str:
    """Return the name of a training; it is written to disk before any client is asked.

    So a run that is killed before its first checkpoint continues with the files that its clients
    have, and no orphaned files are left behind.
    """
    drawn = uuid.uuid4().hex
    if folder is None:
        return drawn
    path = folder / TRAINING
    if resume:
        with contextlib.suppress(OSError, ValueError):
            if re.fullmatch("[0-9a-f]{32}", found := path.read_text("ascii")):
                return found
    write_whole(path, lambda stream: stream.write(drawn.encode()))
    return drawn
