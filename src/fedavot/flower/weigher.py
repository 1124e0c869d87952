"""Weights by client name: the roster, its importance, and the aligner behind it.

Clients are numbered in the order they join. With importance "uniform" a client joins when it is
first available; with "examples" when its first update arrives, and the count it reports then is
kept for good; a mapping or an alignment is a roster that is known from the start. Potentials begin
at log p, so that the first weights are the importance's shares in the cohort, as FedAvg's are by
example counts, and what is learnt is only how far availability is from even. What each client
is owed and was given is counted whatever the weights come from.
"""

import hashlib
import logging
import reprlib
from collections.abc import Mapping, Sequence
from os import PathLike as PathLikeType
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedavot._checks import Floats, as_amount
from fedavot._files import PathLike
from fedavot.errors import ImportanceError, OptionError
from fedavot.flower.options import Weighting
from fedavot.importance import read_mapping
from fedavot.online import OnlineAligner
from fedavot.selection import select
from fedavot.soft_online import SoftOnlineAligner

_flwr = logging.getLogger("flwr")

Importance = Literal["uniform", "examples"] | Mapping[str, float] | PathLike
Aligner = OnlineAligner | SoftOnlineAligner

MOST_EXAMPLES = 1e12
"""A count past this is a client's mistake, or its wish to be the whole objective."""


class Weigher:
    """Give cohorts of named clients their weights, and learn from who came.

    Parameters
    ----------
    importance : "uniform", "examples", mapping or path
        What the objective weighs clients by.
    weighting : Weighting
        How weights are found.
    unlisted : float or None
        Importance, on the mapping's scale, of clients that a mapping does not name; None refuses
        them.
    """

    def __init__(
        self, importance: Importance, weighting: Weighting, *, unlisted: float | None = None
    ) -> None:
        self.kind, listed = _listed(importance, weighting)
        self._weighting = weighting
        self._unlisted = None if unlisted is None else as_amount(unlisted, what="unlisted")
        if unlisted is not None and (self.kind != "listed" or weighting.alignment is not None):
            raise OptionError("unlisted goes with importance given as a mapping or a file")
        self._aligner: Aligner | None = None
        self._numbers: dict[str, int] = {}
        self._amounts: list[float] = []
        self._seen: set[str] = set()
        # With a fixed alignment, what the aligner would otherwise count.
        self._given = np.zeros(0)
        self._rounds = 0
        self._resumed = False
        if listed:
            self._join(listed)
        if self._unlisted is not None and not self._unlisted < MOST_EXAMPLES * sum(self._amounts):
            raise OptionError(
                f"unlisted is {unlisted}, more than {MOST_EXAMPLES:g} times what all listed have "
                "together; it is on the mapping's scale"
            )

    @property
    def names(self) -> list[str]:
        """The roster, in order of joining."""
        return list(self._numbers)

    @property
    def importance(self) -> dict[str, float]:
        """Importance now by name, summing to one."""
        total = sum(self._amounts)
        return {name: self._amounts[number] / total for name, number in self._numbers.items()}

    @property
    def amounts(self) -> Floats:
        """Importance on the scale it was given on, in order of joining, shape (n_clients,)."""
        return np.array(self._amounts, dtype=np.float64)

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Return clients' places in the roster."""
        return [self._numbers[name] for name in names]

    def unseen_in_words(self) -> str | None:
        """Say which clients with importance were never available; None if all were."""
        unseen = {
            name: self._amounts[number]
            for name, number in self._numbers.items()
            if self._amounts[number] > 0 and name not in self._seen
        }
        if not unseen:
            return None
        share = sum(unseen.values()) / sum(self._amounts)
        shown = ", ".join(map(repr, list(unseen)[:5])) + " and others" * (len(unseen) > 5)
        many = "1 client that was" if len(unseen) == 1 else f"{len(unseen)} clients that were"
        return f"{many} never available, with {share:.3g} of the importance: {shown}"

    @property
    def gap(self) -> float:
        """Total variation distance between what clients are owed and were given so far."""
        owed, given, rounds = self._accounts()
        return float(np.abs(owed - given).sum() / 2 / max(rounds, 1))

    def admit(self, names: Sequence[str]) -> dict[str, str]:
        """Note who is available; return why some cannot be asked."""
        refused: dict[str, str] = {}
        new = [name for name in names if name not in self._numbers]
        if self.kind == "uniform":
            self._join(dict.fromkeys(new, 1.0))
        elif self.kind == "listed":
            if self._unlisted is None:
                few = ", ".join(map(repr, list(self._numbers)[:3]))
                refused = {
                    name: f"client {name!r} has no importance and is not asked; there is one for "
                    f"{len(self._numbers)}, such as {few}"
                    for name in new
                }
            else:
                self._join(dict.fromkeys(new, self._unlisted))
        if self._resumed and names and self._seen.isdisjoint(names):
            _flwr.warning(
                "FedAVOT: none of the clients of the checkpoint is available, %r for one; is it of "
                "another federation?",
                next(iter(self._numbers)),
            )
        self._resumed = False
        self._seen.update(name for name in names if name not in refused)
        return refused

    def count(self, examples: Mapping[str, Any]) -> dict[str, str]:
        """Take the example counts of those who reply for the first time; say what is wrong."""
        if self.kind != "examples":
            return {}
        new = {name: value for name, value in examples.items() if name not in self._numbers}
        wrong = {
            name: f"it reports {reprlib.repr(value)} examples; importance by examples needs a "
            f"count above 0 and at most {MOST_EXAMPLES:g}"
            for name, value in new.items()
            if not _is_count(value)
        }
        self._join({name: float(value) for name, value in new.items() if name not in wrong})
        return wrong

    def choose(
        self, names: Sequence[str], rng: np.random.Generator
    ) -> tuple[list[str], dict[str, float]]:
        """Choose ``cohort_size`` of the available; return them and the weights they would get.

        Clients whose example count is not known yet are drawn for half of the places, to learn it;
        in such a round nothing is said of the weights.
        """
        size = self._weighting.cohort_size
        assert size is not None
        ordered = sorted(names)
        unknown = [name for name in ordered if name not in self._numbers]
        if unknown:
            rest = [name for name in ordered if name in self._numbers]
            # Half, and of one place every other time: they may be unknown because they fail.
            half = size // 2 + int(size % 2 and rng.random() < 0.5)
            half = max(half, size - len(rest))
            first = [unknown[place] for place in rng.permutation(len(unknown))[:half]]
            others = [rest[place] for place in rng.permutation(len(rest))[: size - len(first)]]
            return first + others, {}
        places, shares = select(self.weights(ordered), size, rng)
        chosen = [ordered[place] for place in places]
        return chosen, dict(zip(chosen, shares.tolist(), strict=True))

    def weights(self, names: Sequence[str]) -> Floats:
        """Return the weights of a cohort, in its order, summing to one."""
        source = self._weighting.alignment or self._aligner
        assert source is not None
        return source.weights(self.numbers(names))

    def observe(self, names: Sequence[str], given: Floats) -> None:
        """Learn from a cohort that was given these weights."""
        cohort = self.numbers(names)
        if self._aligner is not None:
            self._aligner.observe(cohort, given)
        else:
            self._given[cohort] += given
            self._rounds += 1

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs, as numbers, lists and text."""
        return {
            "kind": self.kind,
            "names": self.names,
            "amounts": self._amounts,
            "seen": sorted(self._seen),
            "aligner": None if self._aligner is None else self._aligner.state_dict(),
            "alignment": self._fingerprint(),
            "given": self._given.tolist(),
            "rounds": self._rounds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self._numbers = {name: number for number, name in enumerate(state["names"])}
        self._amounts = list(state["amounts"])
        self._seen = set(state["seen"])
        self._resumed = bool(self._seen)
        self._given = np.array(state["given"], dtype=np.float64)
        self._rounds = int(state["rounds"])
        if state["aligner"] is not None:
            soft = self._weighting.softness > 0
            kind: type[Aligner] = SoftOnlineAligner if soft else OnlineAligner
            self._aligner = kind.from_state(state["aligner"], source="the checkpoint")

    def differs(self, state: Mapping[str, Any]) -> str | None:
        """Say how a checkpoint's roster differs from this one, which has just been made."""
        if state["kind"] != self.kind:
            return f"its importance is {state['kind']!r}, not {self.kind!r}"
        saved = dict(zip(state["names"], state["amounts"], strict=True))
        for name, number in self._numbers.items():
            if saved.get(name) != self._amounts[number]:
                return (
                    f"client {name!r} has importance {saved.get(name)}, not {self._amounts[number]}"
                )
        extra = [name for name in saved if name not in self._numbers]
        if self.kind == "listed" and self._unlisted is None and extra:
            return f"it names client {extra[0]!r}, who has no importance now"
        return self._weighs_otherwise(state)

    def _weighs_otherwise(self, state: Mapping[str, Any]) -> str | None:
        learns = self._weighting.alignment is None
        if learns != (state["aligner"] is not None) and state["names"]:
            return "its weights come from " + ("an alignment" if learns else "an online aligner")
        if state["alignment"] != self._fingerprint():
            return "its weights come from another alignment"
        for option in ("softness", "step") if state["aligner"] is not None else ():
            found, wanted = state["aligner"].get(option, 0.0), getattr(self._weighting, option)
            if found != wanted:
                return f"its {option} is {found}, not {wanted}"
        return None

    def _fingerprint(self) -> str | None:
        """Return what tells alignments apart; None without one."""
        alignment = self._weighting.alignment
        if alignment is None:
            return None
        content = alignment.potentials.tobytes() + alignment.levels.tobytes()
        return hashlib.sha256(content + alignment.objective.encode()).hexdigest()

    def _accounts(self) -> tuple[Floats, Floats, int]:
        """Return what each client is owed and was given, and over how many rounds."""
        if self._aligner is not None:
            rounds = self._aligner.rounds
            return self._aligner.owed, self._aligner.realised * rounds, rounds
        owed = self.amounts / (sum(self._amounts) or 1.0) * self._rounds
        return owed, self._given, self._rounds

    def _join(self, amounts: Mapping[str, float]) -> None:
        """Add clients to the roster and to the aligner."""
        if not amounts:
            return
        for name in sorted(amounts) if self.kind != "listed" else amounts:
            self._numbers[name] = len(self._numbers)
            self._amounts.append(float(amounts[name]))
        added = np.array(self._amounts[-len(amounts) :])
        if self._weighting.alignment is not None:
            self._given = np.zeros(len(self._amounts))
        elif self._aligner is None:
            self._aligner = self._fresh(added)
        else:
            self._aligner.join(added / sum(self._amounts), self._beginnings(added))

    def _beginnings(self, added: Floats) -> Floats:
        """Return where newcomers start: as far from log p as the others are on average."""
        assert self._aligner is not None
        amounts = self.amounts[: -added.size]
        learnt = self._aligner.effective_potentials - _log(amounts)
        return _log(added) + self._aligner.importance @ learnt

    def _fresh(self, amounts: Floats) -> Aligner:
        shares, start = amounts / amounts.sum(), _log(amounts)
        step, softness = self._weighting.step, self._weighting.softness
        if softness > 0:
            return SoftOnlineAligner(shares, softness=softness, step=step, potentials=start)
        return OnlineAligner(shares, step=step, potentials=start)


def _log(amounts: Floats) -> Floats:
    """Return log a; 0 for clients of none, whose potential never counts."""
    return np.log(np.where(amounts > 0, amounts, 1.0))


def _listed(importance: Importance, weighting: Weighting) -> tuple[str, dict[str, float]]:
    """Return the kind of importance, and the roster where it is known from the start."""
    if weighting.alignment is not None:
        if not isinstance(importance, str) or importance != "uniform":
            raise OptionError(
                "an alignment has its own importance; leave importance out, or the alignment"
            )
        assert weighting.clients is not None
        shares = weighting.alignment.importance.tolist()
        return "listed", dict(zip(weighting.clients, shares, strict=True))
    if isinstance(importance, Mapping):
        return "listed", _checked(importance)
    if isinstance(importance, str) and importance in ("uniform", "examples"):
        return importance, {}
    if not isinstance(importance, str | PathLikeType) or not Path(importance).suffix:
        raise ImportanceError(
            f"importance is {importance!r}; it must be 'uniform', 'examples', a mapping from "
            "client name to number, or a .csv or .json file"
        )
    return "listed", _relative(read_mapping(importance))


def _checked(mapping: Mapping[str, float]) -> dict[str, float]:
    amounts = {}
    for name, value in mapping.items():
        if not isinstance(name, str) or not name:
            raise ImportanceError(f"client names must be non-empty text, found {name!r}")
        try:
            amounts[name] = as_amount(value, what=f"importance of client {name!r}")
        except OptionError as cause:
            raise ImportanceError(str(cause)) from None
    if not any(amounts.values()):
        raise ImportanceError(
            f"importance is 0 for all of {len(amounts)} clients; one at least must be above 0"
        )
    return _relative(amounts)


def _relative(amounts: dict[str, float]) -> dict[str, float]:
    """Return amounts whose sum is finite: as they are, or relative to the largest."""
    largest = max(amounts.values())
    if np.isfinite(largest * len(amounts)):
        return amounts
    return {name: amount / largest for name, amount in amounts.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value <= MOST_EXAMPLES
