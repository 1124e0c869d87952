"""findings.json of versions 1 and 2, whose keys were not yet those of `Findings`.

Only what a comparison with a later audit needs is carried over.
"""

from collections.abc import Mapping
from typing import Any

from fedavot.audit.decision.rules import (
    AS_APPLIED,
    FEDAVG,
    FEDAVOT,
    HORVITZ_THOMPSON,
    ONLINE,
    SELECT,
    SELF_NORMALISED_IPW,
    SOFT,
    VARIANCE,
)

_RULES = {
    "plain average": FEDAVG,
    "IPW": HORVITZ_THOMPSON,
    "self-normalised IPW": SELF_NORMALISED_IPW,
    "FedAVOT": FEDAVOT,
    "FedAVOT, soft": SOFT,
    "least variance": VARIANCE,
    "online": ONLINE,
    "online selection": SELECT,
    "as applied": AS_APPLIED,
}
"""What rules are called now, by what they were called."""


def from_version_2(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 or 2 in the form of version 3.

    Parameters
    ----------
    old : mapping
        The document as it was read; its values are checked by the caller.

    Raises
    ------
    KeyError, TypeError, ValueError
        If it is not such a document.
    """
    grouped = old["groups"]
    return {
        "importance_digest": old.get("importance_digest", ""),
        "source": old["source"],
        "clients": old["client_names"],
        "groups": [row["group"] for row in grouped],
        "by_group": {
            "importance": [row["importance"] for row in grouped],
            "implied": [row["plain_average"] for row in grouped],
        }
        if grouped
        else None,
        "rounds": old["rounds"],
        "empty_rounds": old["empty_rounds"],
        "entries": round((old["mean_cohort"] or 0.0) * old["rounds"]),
        "unknown_share": old["unknown_share"],
        "tolerance": old["tolerance"],
        "gap": _estimate(old, "gap_fedavg"),
        "reach": {
            "feasible": old["feasible"],
            "sure": old["feasible_sure"],
            "deficiency": _estimate(old, "deficiency"),
            "hall_ratio": {"value": old["hall_ratio"], "low": None, "high": None},
            "deficient": {"clients": old["deficient"]},
            "never_seen": old["never_seen"],
        },
        "fit": {"law": old["law"]},
        "price": {
            "standings": [
                {
                    "rule": _RULES.get(old["rule"], old["rule"]),
                    "gap": old["gap_attained"],
                    "effective_cohort_size": old["effective_cohort_size"],
                }
            ]
        },
        "advice": {
            "action": old["recommendation"],
            "reason": old["reason"],
            "rule": _RULES.get(old["rule"], old["rule"]),
            "softness": old["softness"],
            "online": old["online"],
        },
    }


def _estimate(old: Mapping[str, Any], key: str) -> dict[str, Any]:
    low, high = old[f"{key}_interval"]
    return {"value": old[key], "low": low, "high": high}
