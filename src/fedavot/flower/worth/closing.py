"""Warnings at the end of a run: clients that did not contribute, and why none did."""

from fedavot._checks import enumerated
from fedavot.flower.kept.log import Round
from fedavot.flower.who.saying import of_clients
from fedavot.flower.worth.weigher import Weigher


def warnings_of(weigher: Weigher) -> list[str]:
    """Return warnings on clients that were never available or never sent a usable update."""
    found = []
    importance = weigher.importance
    if unseen := [name for name, it in importance.items() if it > 0 and name not in weigher.seen]:
        share = sum(importance[name] for name in unseen)
        found.append(
            f"these clients, with {share:.3g} of the importance, were never available: "
            f"{enumerated(map(repr, unseen))}"
        )
    if weigher.unknown:
        silent = weigher.seen - importance.keys()
        found.append(
            f"{of_clients(silent, one='was', several='were')} available but never sent a usable "
            "update; with importance 'examples' they do not count, and the gap leaves them out: "
            "give importance as a mapping"
        )
    return found


def nothing_used(last: Round) -> str:
    """Return why a run trained nothing, from the last round in which any client was asked."""
    reasons: dict[str, list[str]] = {}
    late = dict.fromkeys(last.late, "no reply in time")
    for name, reason in (last.excluded | last.failed | late).items():
        reasons.setdefault(reason, []).append(name)
    found = [
        of_clients(names, one=f"({reason})", several=f"({reason})")
        for reason, names in reasons.items()
    ]
    return (
        f"no update was usable in any round up to round {last.round}, so that the model is still "
        f"the first one; nothing usable came from {enumerated(found, 3)}"
    )
