"""Weights by client name: the known clients, their importance, and the aligner.

Clients are indexed in the order in which they join. With importance "uniform" a client joins when
it is first available; with "examples" when its first update arrives, and the number of examples
that it reports then is kept; a mapping or an alignment lists all clients from the start.

Weights are in proportion to p_i exp(x_i) over the cohort, where x starts at 0: the first weights
are the importance divided by that of the cohort, as in FedAvg with example counts, and the aligner
only learns how availability differs between clients. A penalty on the spread of x (softness) keeps
weights near these. The gap is computed in the same way for weights from an aligner and from an
alignment.

The weight that an aligner would give a client after a long absence is limited (`limited`); the
aligner counts the weights actually given, so the gap includes the effect of the limit. Example
counts that dwarf all others are limited too, as soon as there are others to compare them with.

The state is one number per client and its name, in arrays, so that the cost of a round is
proportional to its cohort.
"""

import logging
import reprlib
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import numpy as np

from fedavot._checks import Floats, as_amount, enumerated
from fedavot._simplex import total_variation
from fedavot.errors import CheckpointError, OptionError
from fedavot.flower.kept.packing import as_array, packed, unpacked
from fedavot.flower.options import MOST_EXAMPLES, Importance, Weighting, listed_by
from fedavot.flower.worth.learning import fingerprint, limited, plausible
from fedavot.online import OnlineAligner
from fedavot.selection import select

_flwr = logging.getLogger("flwr")


class Weigher:
    """Compute the weights of cohorts by client name, and learn from which clients replied.

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
        self.kind, listed = listed_by(importance, weighting)
        self.weighting = weighting
        self._unlisted = None if unlisted is None else as_amount(unlisted, what="unlisted")
        if unlisted is not None and (self.kind != "listed" or weighting.alignment is not None):
            raise OptionError("unlisted requires importance given as a mapping or a file")
        self._aligner: OnlineAligner | None = None
        self._indices: dict[str, int] = {}
        self._packed = bytearray()  # the names, as a checkpoint has them
        # By index: the importance as given, and as used after the limits.
        self._stated = np.zeros(0)
        self._amounts = np.zeros(0)
        self._total = 0.0
        self._seen: set[str] = set()
        self._was_seen = np.zeros(0, dtype=bool)  # the same by index, as a checkpoint has it
        # Sums that an aligner keeps itself, for an alignment.
        self._given = np.zeros(0)
        self._rounds = 0
        self._resumed = False
        # Clients of a checkpoint that have no importance in this run, and what else changed.
        self._left: set[str] = set()
        self.events: list[str] = []
        if listed:
            self._join(listed)
        if self._unlisted is not None and not self._unlisted < MOST_EXAMPLES * self._total:
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
        shares = self._amounts / (self._total or 1.0)
        return dict(zip(self._indices, shares.tolist(), strict=True))

    @property
    def amounts(self) -> Floats:
        """Importance on the scale on which it was given, by index, shape (n_clients,)."""
        return self._amounts

    def index(self, name: str) -> int | None:
        """Return the index of a client; None before it is known."""
        return self._indices.get(name)

    def indices(self, names: Sequence[str]) -> list[int]:
        """Return the indices of clients."""
        return [self._indices[name] for name in names]

    @property
    def seen(self) -> Set[str]:
        """Names of the clients that were available."""
        return self._seen

    @property
    def unknown(self) -> int:
        """Number of clients that were available but whose number of examples is not known."""
        return len(self._seen) - int(self._was_seen.sum()) if self.kind == "examples" else 0

    @property
    def rounds(self) -> int:
        """Number of rounds in which weights were applied."""
        return self._rounds if self._aligner is None else self._aligner.rounds

    @property
    def gap(self) -> float:
        """Total variation distance between the importance and the mean weights so far."""
        rounds = self.rounds
        if self._aligner is not None:
            owed, given = self._aligner.owed, self._aligner.realised * rounds
        else:
            owed, given = self._amounts / (self._total or 1.0) * rounds, self._given
        return float(total_variation(owed, given)) / max(rounds, 1)

    def admit(self, names: Collection[str]) -> dict[str, str]:
        """Record which clients are available; return why some of them cannot be asked."""
        if self._resumed and names and self._seen.isdisjoint(names):
            _flwr.warning(
                "FedAVOT: no client of the checkpoint is available, for example %r; is the "
                "checkpoint from another federation?",
                next(iter(self._indices)),
            )
        self._resumed = False
        if self._seen.issuperset(names):
            return {}
        unseen = set(names) - self._seen
        new = sorted(it for it in unseen if it not in self._indices or it in self._left)
        refused: dict[str, str] = {}
        if self.kind == "uniform":
            self._join(dict.fromkeys(new, 1.0))
        elif self.kind == "listed" and self._unlisted is not None:
            self._join(dict.fromkeys(new, self._unlisted))
        elif self.kind == "listed":
            present = (it for it in self._indices if it not in self._left)
            listed = enumerated(map(repr, present), 3) if new else ""
            refused = {
                name: f"client {name!r} has no importance and is not asked; the clients with "
                f"importance are {listed}"
                for name in new
            }
        unseen -= refused.keys()
        self._seen |= unseen
        self._was_seen[[self._indices[name] for name in unseen if name in self._indices]] = True
        return refused

    def count(self, examples: Mapping[str, Any], metric: str = "num-examples") -> dict[str, str]:
        """Accept the example counts of new clients; return why some of them are refused."""
        if self.kind != "examples":
            return {}
        new = {name: value for name, value in examples.items() if name not in self._indices}
        wrong = {
            name: (
                f"its metrics have no {metric!r}"
                if value is None
                else f"its metric {metric!r} is {reprlib.repr(value)}"
            )
            + f"; importance 'examples' needs a number above 0 and at most {MOST_EXAMPLES:g}"
            for name, value in new.items()
            if not (isinstance(value, int | float) and 0 < value <= MOST_EXAMPLES)
        }
        before = set(np.flatnonzero(self._amounts != self._stated))
        self._join({name: float(value) for name, value in new.items() if name not in wrong})
        for index in set(np.flatnonzero(self._amounts != self._stated)) - before:
            _flwr.warning(
                "FedAVOT: client %r reports %g examples, far more than the others; it counts as "
                "%g. If the number is right, give importance as a mapping.",
                self.clients[index],
                self._stated[index],
                self._amounts[index],
            )
        return wrong

    def choose(
        self, names: Sequence[str], rng: np.random.Generator
    ) -> tuple[list[str], dict[str, float]]:
        """Choose ``cohort_size`` available clients; return them and their weights if all reply.

        Clients whose example count is not known yet get half of the places, so that it becomes
        known; in such a round the weights are empty.
        """
        size = self.weighting.cohort_size
        assert size is not None
        ordered = sorted(names)
        unknown = [name for name in ordered if name not in self._indices]
        if unknown:
            rest = [name for name in ordered if name in self._indices]
            # At most half the places (one place: half the time), as failing clients stay unknown.
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
        cohort, limit = self.indices(names), self.weighting.weight_limit
        if self.weighting.alignment is not None:
            return self.weighting.alignment.weights(cohort)
        assert self._aligner is not None
        amounts = self._amounts[cohort]
        if not amounts.sum() > 0:
            return np.full(len(cohort), 1.0 / len(cohort))
        weights = self._aligner.weights(cohort)
        return weights if limit is None else limited(weights, amounts / amounts.sum(), limit)

    def observe(self, names: Sequence[str], given: Floats) -> None:
        """Learn from a cohort that replied and was given these weights."""
        cohort = self.indices(names)
        if self._aligner is not None:
            self._aligner.observe(cohort, given)
        else:
            self._given[cohort] += given
            self._rounds += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: plain data and arrays."""
        uncounted = sorted(self._seen - self._indices.keys()) if self.unknown else []
        return {
            "kind": self.kind,
            "clients": as_array(self._packed),
            "amounts": self._stated,
            "seen": self._was_seen,
            "uncounted": as_array(packed(uncounted)),
            "aligner": None if self._aligner is None else self._aligner.state_dict(arrays=True),
            "alignment": fingerprint(self.weighting.alignment),
            "given": self._given,
            "rounds": self._rounds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a checkpoint, with the importance of this run."""
        listed = dict(zip(self._indices, self._stated.tolist(), strict=True))
        names = unpacked(state["clients"])
        self._indices = {name: index for index, name in enumerate(names)}
        self._packed = bytearray(state["clients"].tobytes())
        self._state_amounts(np.array(state["amounts"], dtype=np.float64))
        self._was_seen = np.array(state["seen"], dtype=bool)
        self._seen = {name for name, seen in zip(names, self._was_seen, strict=True) if seen}
        self._resumed = bool(self._seen)
        if "uncounted" in state:  # checkpoints of earlier versions do not have it
            self._seen.update(unpacked(state["uncounted"]))
        self._given = np.array(state["given"], dtype=np.float64)
        self._rounds = int(state["rounds"])
        if state["aligner"] is not None:
            self._aligner = OnlineAligner.from_state(state["aligner"], source="the checkpoint")
        self._refuse_uneven()
        if self.kind != "examples" and self.weighting.alignment is None:
            self._adopt(listed)

    def _refuse_uneven(self) -> None:
        """Refuse a state whose arrays do not have one proper number for every client."""
        n_clients = len(self._indices)
        sizes = {"importance": self._stated.shape}
        if self._aligner is not None:
            sizes["aligner"] = (self._aligner.n_clients,)
        if self.weighting.alignment is not None:
            sizes["weights given"] = self._given.shape
        for what, shape in sizes.items():
            if shape != (n_clients,):
                raise CheckpointError(
                    f"the checkpoint has {what} of shape {shape} for {n_clients} clients; start in "
                    "another folder"
                )
        bad = np.flatnonzero(~((self._stated >= 0) & (self._stated < np.inf)))
        if bad.size:
            raise CheckpointError(
                f"the checkpoint gives client {self.clients[bad[0]]!r} the importance "
                f"{self._stated[bad[0]]}; start in another folder"
            )

    def differs(self, state: Mapping[str, Any]) -> str | None:
        """Return why a checkpoint cannot be continued with this weighting; None if it can."""
        if state["kind"] != self.kind == "examples":
            return f"its importance is {state['kind']!r}, and that of this run is {self.kind!r}"
        weighting, learnt = self.weighting, state["aligner"]
        learns = weighting.alignment is None
        if not learns and unpacked(state["clients"]) != self.clients:
            return "its clients are not those of the alignment"
        if learns != (learnt is not None) and state["clients"].size:
            return "its weights come from " + ("an alignment" if learns else "an online aligner")
        if state["alignment"] != fingerprint(weighting.alignment):
            return "its weights come from another alignment"
        options = {"softness": weighting.price, "step": weighting.step}
        for option, wanted in options.items() if learnt is not None else ():
            if (found := learnt.get(option, 0.0)) != wanted:
                return f"its {option} is {found}, and that of this run is {wanted}"
        return None

    def _adopt(self, listed: Mapping[str, float]) -> None:
        """Replace the importance of a checkpoint by that of this run, and report what changed."""
        other = 1.0 if self.kind == "uniform" else self._unlisted
        known = dict(zip(self._indices, self._stated.tolist(), strict=True))
        wanted = {name: listed.get(name, other) for name in known}
        self._left = {name for name, amount in wanted.items() if amount is None}
        joined = {name: amount for name, amount in listed.items() if name not in known}
        changed = {name: amount or 0.0 for name, amount in wanted.items() if amount != known[name]}
        for what, clients in (
            ("clients joined", joined),
            ("clients left", self._left),
            ("importance changed", changed.keys() - self._left),
        ):
            if clients:
                self.events.append(f"{what}: {enumerated(map(repr, sorted(clients)))}")
        self._seen -= self._left
        self._join(joined)
        if changed and self._aligner is not None:
            stated = [changed.get(name, amount) for name, amount in (known | joined).items()]
            self._state_amounts(np.array(stated, dtype=np.float64))
            self._aligner.reweigh(self._amounts / self._amounts.sum())

    def _join(self, amounts: Mapping[str, float]) -> None:
        """Add clients here and to the aligner."""
        if not amounts:
            return
        names = sorted(amounts) if self.kind != "listed" else list(amounts)
        known = len(self._indices)
        self._indices |= {name: known + place for place, name in enumerate(names)}
        self._packed += (b"," if known else b"") + packed(names)
        self._was_seen = np.append(self._was_seen, [name in self._seen for name in names])
        before = self._amounts
        stated = np.array([amounts[name] for name in names], dtype=np.float64)
        self._state_amounts(np.concatenate([self._stated, stated]))
        if self.weighting.alignment is not None:
            self._given = np.zeros(len(self._indices))
        elif self._aligner is None:
            self._aligner = OnlineAligner(
                self._amounts / self._amounts.sum(),
                softness=self.weighting.price,
                step=self.weighting.step,
            )
        else:
            if not np.array_equal(self._amounts[:known], before):
                old = self._amounts[:known]
                self._aligner.reweigh(old / old.sum())
            self._aligner.join(self._amounts[known:] / self._amounts.sum())

    def _state_amounts(self, stated: Floats) -> None:
        """Set the importance that was given, and compute what is used after the limits."""
        self._stated = stated
        self._amounts = plausible(stated) if self.kind == "examples" else stated
        self._total = float(self._amounts.sum())
