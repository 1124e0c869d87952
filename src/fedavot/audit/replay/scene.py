"""The part of a log that is replayed: all of it, or a smaller federation drawn from it.

A large log is reduced in three ways, each only as far as necessary. Clients are sampled. If that
would make cohorts much smaller, consecutive rounds are merged, so that cohorts keep their size and
clients still return after about as many rounds, relative to their number. Finally, only the last
rounds are used.

A way is a rule with the weights it gives to every round. Weights that are fitted are fitted to the
first part of the rounds; weights that are learned come from the rounds before.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.federation import Federation
from fedavot.audit.findings import LawName
from fedavot.audit.recommending import Need
from fedavot.audit.statistics import rules
from fedavot.audit.statistics.behaviour import lasting_direction
from fedavot.audit.statistics.case import FITTED, Case
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.price import fitted_rules
from fedavot.audit.statistics.window import Window
from fedavot.online import SOFTNESS

MOST_CLIENTS = 1_000
MOST_ROUNDS = 3_000
MOST_ENTRIES = 300_000
ENOUGH = 10
"""Cohorts with more clients than this may be made smaller than they are in the log."""
MOMENTUM = 0.9
"""Momentum of FedAvgM, as in `fedavot.rules.fedavgm`."""


@dataclass(frozen=True, eq=False)
class Scene:
    """Rounds to train on, in order.

    Attributes
    ----------
    window : Window
        The rounds, with the importance of their clients.
    fitting : Fitting
        The first part of them, which weights are fitted to.
    group_of : int array, shape (n_clients,), or None
        The group of each client.
    available : Incidence or None
        The clients that could have taken part in each round, if the server has a choice.
    examples, applied : float array, shape (n_entries,), or None
        The number of examples and the weight of every entry, if the log has them.
    clients : int array, shape (n_clients,)
        The positions of the clients in the log.
    """

    window: Window
    fitting: Fitting
    group_of: Integers | None
    available: Incidence | None
    examples: Floats | None
    applied: Floats | None
    clients: Integers

    @property
    def fitted_rounds(self) -> int:
        """Number of rounds in the first part."""
        return self.fitting.window.n_rounds

    def groupings(self) -> tuple[Integers | None, ...]:
        """Return which clients may be alike: those of a group or, if no groups are known, none.

        Without groups there is a second possibility: clients with similar participation, about as
        often and at the same times, may be alike. It is then not known how clients differ, and what
        matters most to training is whether their differences correlate with when they take part.
        """
        if self.group_of is not None:
            return (self.group_of,)
        window = self.window
        often = _above_median(window.taken.astype(np.float64))
        together = _above_median(lasting_direction(window.incidence))
        return None, 2 * often + together


def _above_median(values: Floats) -> Integers:
    return (np.argsort(np.argsort(values, kind="stable")) * 2 // values.size).astype(np.int64)


def scene_of(case: Case, rng: np.random.Generator) -> Scene:
    """Return the part of a log that is replayed."""
    federation, log = case.federation, case.federation.participation
    available = case.available(case.window) if case.has_choice else None
    n_clients, sizes = case.window.n_clients, case.window.incidence.sizes
    kept = _sample(federation, rng) if n_clients > MOST_CLIENTS else np.arange(n_clients)
    share = kept.size / n_clients
    merged = max(1, round(min(ENOUGH, sizes.mean()) / (share * sizes.mean())))
    mean_size = share * merged * float(sizes.mean())
    rounds = min(MOST_ROUNDS, max(1, int(MOST_ENTRIES / mean_size)))
    first = max(0, sizes.size - rounds * merged)
    chosen = np.arange(first, sizes.size)
    thinning = _Thinning(kept, n_clients, (chosen - first) // merged)
    cohorts, entries = thinning(case.window.incidence.rows(chosen))
    entries += case.window.incidence.offsets[first]
    places = chosen[::merged]
    # Empty rounds change nothing in training, and no weights are defined for them.
    filled = np.flatnonzero(cohorts.sizes)
    window = Window(
        cohorts.rows(filled), case.window.rounds[places][filled], _shares(federation, kept), None
    )
    cut = max(1, min(round(FITTED * filled.size), filled.size - 1))
    return Scene(
        window=window,
        fitting=case.fitting(window.part(np.arange(cut))),
        group_of=None if federation.group_of is None else federation.group_of[kept],
        available=None if available is None else thinning(available.rows(chosen))[0].rows(filled),
        examples=None if log.examples is None else log.examples[entries],
        applied=None if log.applied is None else log.applied[entries],
        clients=kept,
    )


def _sample(federation: Federation, rng: np.random.Generator) -> Integers:
    """Return evenly spaced clients in the order of group and importance, sorted by position."""
    group = np.zeros(federation.n_clients) if federation.group_of is None else federation.group_of
    order = np.lexsort((federation.importance, group))
    stride = federation.n_clients / MOST_CLIENTS
    places = (np.arange(MOST_CLIENTS) + rng.random()) * stride
    return np.sort(order[places.astype(np.int64)])


def _shares(federation: Federation, kept: Integers) -> Floats:
    """Return the importance of some clients, which sums to one; equal if they have none."""
    shares = federation.importance[kept]
    total = float(shares.sum())
    return shares / total if total > 0 else np.full(kept.size, 1.0 / kept.size)


class _Thinning(NamedTuple):
    """Which clients are kept, out of how many, and the new number of each round."""

    kept: Integers
    n_clients: int
    number: Integers

    def __call__(self, rounds: Incidence) -> tuple[Incidence, Integers]:
        """Return the thinned rounds, and the previous position of each of their entries."""
        if self.kept.size == self.n_clients and self.number[-1] + 1 == self.number.size:
            return rounds, np.arange(rounds.members.size)
        place = np.full(self.n_clients, -1)
        place[self.kept] = np.arange(self.kept.size)
        new = place[rounds.members]
        number = rounds.spread_over_members(self.number)
        there = np.flatnonzero(new >= 0)
        keys, firsts = np.unique(number[there] * self.kept.size + new[there], return_index=True)
        n_rounds = int(self.number[-1]) + 1
        return Incidence.of_keys(keys, n_rounds, self.kept.size), there[firsts]


@dataclass(frozen=True, eq=False)
class Way:
    """A rule over the rounds of a scene.

    Attributes
    ----------
    rule : str
        Its name.
    cohorts : Incidence
        The clients that train in each round.
    weights : float array, shape (n_entries,)
        The weight of each.
    need : Need or None
        What it needs beyond weights.
    momentum : float
        Momentum on the server.
    softness : float
        Softness of its alignment.
    """

    rule: str
    cohorts: Incidence
    weights: Floats
    need: Need | None = None
    momentum: float = 0.0
    softness: float = 0.0

    @property
    def remembers(self) -> bool:
        """Whether it is the steady rule, which has memory besides its weights."""
        return self.need == "memory"


def ways_of(
    scene: Scene, *, law: LawName, softness: float, rng: np.random.Generator
) -> tuple[Way, ...]:
    """Return every rule for which the log has the required data.

    Parameters
    ----------
    scene : Scene
        The rounds.
    law : LawName
        The law that FedAVOT is fitted with.
    softness : float
        Softness of the soft alignment.
    rng : Generator
        Generator for server selection.
    """
    window = scene.window
    cohorts = window.incidence
    by_importance = rules.normalised(window, window.importance[cohorts.members])
    fitted = {
        rule: Way(rule, cohorts, weigh(scene.fitting, window))
        for rule, weigh in fitted_rules(law, softness).items()
    }
    learned = rules.softly_learned(window)
    ways = [
        fitted[rules.FEDAVG],
        Way(rules.IMPORTANCE_AVERAGE, cohorts, by_importance),
        Way(rules.FEDAVGM, cohorts, by_importance, momentum=MOMENTUM),
        Way(rules.ONLINE, cohorts, rules.learned(window)),
        Way(rules.SOFT_ONLINE, cohorts, learned, softness=SOFTNESS),
        fitted[rules.FEDAVOT],
        replace(fitted[rules.SOFT], softness=softness),
        fitted[rules.SELF_NORMALISED_IPW],
        fitted[rules.HORVITZ_THOMPSON],
        Way(rules.STEADY, cohorts, learned, "memory"),
    ]
    if scene.examples is not None:
        ways.append(Way(rules.BY_EXAMPLES, cohorts, rules.normalised(window, scene.examples)))
    if scene.applied is not None:
        ways.append(Way(rules.AS_APPLIED, cohorts, scene.applied))
    if scene.available is not None:
        asked, weights = rules.chosen(window, scene.available, rng)
        ways.append(Way(rules.SELECT, asked.incidence, weights, "select"))
    return tuple(ways)
