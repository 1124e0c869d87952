"""Weights by client name: the known clients, their importance, and the aligner.

Clients are indexed in the order in which they join. With importance "uniform" a client joins when
it is first available; with "examples" when its first update arrives, and the number of examples
that it reports then is kept; a mapping or an alignment lists all clients from the start. Potentials
start at log p, so that the first weights are proportional to the importance, as FedAvg's are to the
example counts, and the aligner only learns how availability differs from uniform. The gap is
computed in the same way for weights from an aligner and from an alignment.
"""

import hashlib
import logging
import reprlib
from collections.abc import Mapping, Sequence
from os import PathLike as PathLikeType
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedavot._checks import Floats, as_amount, enumerated
from fedavot._files import PathLike
from fedavot._simplex import total_variation
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
"""Largest number of examples that a client may report."""


class Weigher:
    """Compute the weights of cohorts by client name, and learn from who replied.

    Parameters
    ----------
    importance : "uniform", "examples", mapping or path
        Importance of the clients in the objective.
    weighting : Weighting
        How weights are found.
    unlisted : float or None
        Importance of clients that are missing from a mapping, on the scale of the mapping; None
        refuses them.
    """

    def __init__(
        self, importance: Importance, weighting: Weighting, *, unlisted: float | None = None
    ) -> None:
        self.kind, listed = _listed(importance, weighting)
        self._weighting = weighting
        self._unlisted = None if unlisted is None else as_amount(unlisted, what="unlisted")
        if unlisted is not None and (self.kind != "listed" or weighting.alignment is not None):
            raise OptionError("unlisted requires importance given as a mapping or a file")
        self._aligner: Aligner | None = None
        self._indices: dict[str, int] = {}
        self._amounts: list[float] = []
        self._seen: set[str] = set()
        # Sums that an aligner keeps itself, for an alignment.
        self._given = np.zeros(0)
        self._rounds = 0
        self._resumed = False
        if listed:
            self._join(listed)
        if self._unlisted is not None and not self._unlisted < MOST_EXAMPLES * sum(self._amounts):
            raise OptionError(
                f"unlisted is {unlisted}, more than {MOST_EXAMPLES:g} times the total importance "
                "of the listed clients; give it on the scale of the mapping"
            )

    @property
    def clients(self) -> list[str]:
        """Names of the known clients, by index."""
        return list(self._indices)

    @property
    def importance(self) -> dict[str, float]:
        """Current importance by client name, summing to one."""
        total = sum(self._amounts)
        return {name: self._amounts[index] / total for name, index in self._indices.items()}

    @property
    def amounts(self) -> Floats:
        """Importance on the scale on which it was given, by index, shape (n_clients,)."""
        return np.array(self._amounts, dtype=np.float64)

    def indices(self, names: Sequence[str]) -> list[int]:
        """Return the indices of clients."""
        return [self._indices[name] for name in names]

    def unseen_message(self) -> str | None:
        """Return a message about clients with importance that were never available, if any."""
        unseen = {
            name: self._amounts[index]
            for name, index in self._indices.items()
            if self._amounts[index] > 0 and name not in self._seen
        }
        if not unseen:
            return None
        share = sum(unseen.values()) / sum(self._amounts)
        return (
            f"these clients, with {share:.3g} of the importance, were never available: "
            f"{enumerated(map(repr, unseen))}"
        )

    @property
    def gap(self) -> float:
        """Total variation distance between the importance and the mean weights so far."""
        owed, given, rounds = self._accounts()
        return float(total_variation(owed, given)) / max(rounds, 1)

    def admit(self, names: Sequence[str]) -> dict[str, str]:
        """Record which clients are available; return why some of them cannot be asked."""
        refused: dict[str, str] = {}
        new = [name for name in names if name not in self._indices]
        if self.kind == "uniform":
            self._join(dict.fromkeys(new, 1.0))
        elif self.kind == "listed":
            if self._unlisted is None:
                listed = enumerated(map(repr, self._indices), 3) if new else ""
                refused = {
                    name: f"client {name!r} has no importance and is not asked; the clients with "
                    f"importance are {listed}"
                    for name in new
                }
            else:
                self._join(dict.fromkeys(new, self._unlisted))
        if self._resumed and names and self._seen.isdisjoint(names):
            _flwr.warning(
                "FedAVOT: no client of the checkpoint is available, for example %r; is the "
                "checkpoint from another federation?",
                next(iter(self._indices)),
            )
        self._resumed = False
        self._seen.update(name for name in names if name not in refused)
        return refused

    def count(self, examples: Mapping[str, Any]) -> dict[str, str]:
        """Accept the example counts of new clients; return why some of them are refused."""
        if self.kind != "examples":
            return {}
        new = {name: value for name, value in examples.items() if name not in self._indices}
        wrong = {
            name: f"it reports {reprlib.repr(value)} examples; importance 'examples' needs a "
            f"number above 0 and at most {MOST_EXAMPLES:g}"
            for name, value in new.items()
            if not _is_count(value)
        }
        self._join({name: float(value) for name, value in new.items() if name not in wrong})
        return wrong

    def choose(
        self, names: Sequence[str], rng: np.random.Generator
    ) -> tuple[list[str], dict[str, float]]:
        """Choose ``cohort_size`` available clients; return them and their weights if all reply.

        Clients whose example count is not known yet get half of the places, so that it becomes
        known; in such a round the weights are empty.
        """
        size = self._weighting.cohort_size
        assert size is not None
        ordered = sorted(names)
        unknown = [name for name in ordered if name not in self._indices]
        if unknown:
            rest = [name for name in ordered if name in self._indices]
            # At most half (of one place, every other time): clients that always fail stay unknown.
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
        return source.weights(self.indices(names))

    def observe(self, names: Sequence[str], given: Floats) -> None:
        """Learn from a cohort that replied and was given these weights."""
        cohort = self.indices(names)
        if self._aligner is not None:
            self._aligner.observe(cohort, given)
        else:
            self._given[cohort] += given
            self._rounds += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON."""
        return {
            "kind": self.kind,
            "clients": self.clients,
            "amounts": self._amounts,
            "seen": sorted(self._seen),
            "aligner": None if self._aligner is None else self._aligner.state_dict(),
            "alignment": self._fingerprint(),
            "given": self._given.tolist(),
            "rounds": self._rounds,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a checkpoint."""
        self._indices = {name: index for index, name in enumerate(state["clients"])}
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
        """Return how the clients and weighting of a checkpoint differ from these; None if not."""
        if state["kind"] != self.kind:
            return f"its importance is {state['kind']!r}, and that of this run is {self.kind!r}"
        saved = dict(zip(state["clients"], state["amounts"], strict=True))
        for name, index in self._indices.items():
            if saved.get(name) != self._amounts[index]:
                return (
                    f"client {name!r} has importance {saved.get(name)} in it, and "
                    f"{self._amounts[index]} in this run"
                )
        extra = [name for name in saved if name not in self._indices]
        if self.kind == "listed" and self._unlisted is None and extra:
            return f"its client {extra[0]!r} has no importance in this run"
        return self._weighs_otherwise(state)

    def _weighs_otherwise(self, state: Mapping[str, Any]) -> str | None:
        learns = self._weighting.alignment is None
        if learns != (state["aligner"] is not None) and state["clients"]:
            return "its weights come from " + ("an alignment" if learns else "an online aligner")
        if state["alignment"] != self._fingerprint():
            return "its weights come from another alignment"
        for option in ("softness", "step") if state["aligner"] is not None else ():
            found, wanted = state["aligner"].get(option, 0.0), getattr(self._weighting, option)
            if found != wanted:
                return f"its {option} is {found}, and that of this run is {wanted}"
        return None

    def _fingerprint(self) -> str | None:
        """Return a digest of the alignment; None without one."""
        alignment = self._weighting.alignment
        if alignment is None:
            return None
        content = alignment.potentials.tobytes() + alignment.levels.tobytes()
        return hashlib.sha256(content + alignment.objective.encode()).hexdigest()

    def _accounts(self) -> tuple[Floats, Floats, int]:
        """Return importance and weights of each client summed over rounds, and the rounds."""
        if self._aligner is not None:
            rounds = self._aligner.rounds
            return self._aligner.owed, self._aligner.realised * rounds, rounds
        owed = self.amounts / (sum(self._amounts) or 1.0) * self._rounds
        return owed, self._given, self._rounds

    def _join(self, amounts: Mapping[str, float]) -> None:
        """Add clients here and to the aligner."""
        if not amounts:
            return
        for name in sorted(amounts) if self.kind != "listed" else amounts:
            self._indices[name] = len(self._indices)
            self._amounts.append(float(amounts[name]))
        added = np.array(self._amounts[-len(amounts) :])
        if self._weighting.alignment is not None:
            self._given = np.zeros(len(self._amounts))
        elif self._aligner is None:
            self._aligner = self._fresh(added)
        else:
            self._aligner.join(added / sum(self._amounts), self._beginnings(added))

    def _beginnings(self, added: Floats) -> Floats:
        """Return potentials of new clients: as far from log p as the others are on average."""
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
    """Return log a; 0 for clients of importance 0, whose potential is never used."""
    return np.log(np.where(amounts > 0, amounts, 1.0))


def _listed(importance: Importance, weighting: Weighting) -> tuple[str, dict[str, float]]:
    """Return the kind of importance, and the importance of clients known from the start."""
    if weighting.alignment is not None:
        if not isinstance(importance, str) or importance != "uniform":
            raise OptionError(
                "an alignment has its own importance; leave out either importance or the alignment"
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
            f"importance is 0 for all {len(amounts)} clients; at least one must be above 0"
        )
    return _relative(amounts)


def _relative(amounts: dict[str, float]) -> dict[str, float]:
    """Return amounts whose sum is finite: unchanged, or divided by the largest."""
    largest = max(amounts.values())
    if np.isfinite(largest * len(amounts)):
        return amounts
    return {name: amount / largest for name, amount in amounts.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value <= MOST_EXAMPLES
