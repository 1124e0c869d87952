"""The rules that an audit compares: their names, as in `fedavot.rules`, and labels for people.

Importing `fedavot.rules` needs JAX, which an audit does without, so the names are repeated here; a
test compares them. ``as-applied`` is the audit's own: the weights that the log says were used.
"""

FEDAVG, HORVITZ_THOMPSON, SELF_NORMALISED_IPW = "fedavg", "horvitz-thompson", "self-normalised-ipw"
FEDAVOT, SOFT, VARIANCE = "fedavot", "fedavot-soft", "fedavot-variance"
ONLINE, SELECT, AS_APPLIED = "fedavot-online", "fedavot-select", "as-applied"

LABELS = {
    FEDAVG: "plain average",
    HORVITZ_THOMPSON: "Horvitz–Thompson",
    SELF_NORMALISED_IPW: "self-normalised IPW",
    FEDAVOT: "FedAVOT",
    SOFT: "FedAVOT, soft",
    VARIANCE: "FedAVOT, least variance",
    ONLINE: "FedAVOT, online",
    SELECT: "FedAVOT, server selects",
    AS_APPLIED: "as applied",
}
"""Labels for tables, pictures and sentences."""


def label(rule: str) -> str:
    """Return a rule's label, or its name if this version does not know the rule.

    >>> label("fedavg"), label("of-another-version")
    ('plain average', 'of-another-version')
    """
    return LABELS.get(rule, rule)
