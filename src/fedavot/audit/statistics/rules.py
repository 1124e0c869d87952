"""The rules that an audit compares, by their names in `fedavot.rules`.

Three are the audit's own: ``as-applied``, the weights that the log says were used; ``by-examples``,
FedAvg with weights in proportion to the number of examples that each participant trained on,
according to the log; and ``fedavot-online-soft``, weights learned by a `SoftOnlineAligner`.
"""

from fedavot.rules.names import RuleName, label_of

FEDAVG, HORVITZ_THOMPSON = RuleName.FEDAVG.value, RuleName.HORVITZ_THOMPSON.value
SELF_NORMALISED_IPW = RuleName.SELF_NORMALISED_IPW.value
FEDAVOT, SOFT = RuleName.FEDAVOT.value, RuleName.SOFT.value
ONLINE, SELECT, STEADY = RuleName.ONLINE.value, RuleName.SELECT.value, RuleName.STEADY.value
MEMORY, FEDAVGM, FULL = RuleName.MEMORY.value, RuleName.FEDAVGM.value, RuleName.FULL.value
IMPORTANCE_AVERAGE = RuleName.IMPORTANCE_AVERAGE.value
AS_APPLIED, BY_EXAMPLES, SOFT_ONLINE = "as-applied", "by-examples", "fedavot-online-soft"
_LABELS = {
    AS_APPLIED: "as applied",
    BY_EXAMPLES: "average by examples",
    SOFT_ONLINE: "FedAVOT, online and soft",
}


def label(rule: str) -> str:
    """Return a rule's label, or its name if this version does not know the rule.

    >>> label("fedavg"), label("of-another-version")
    ('plain average', 'of-another-version')
    """
    return _LABELS.get(rule) or label_of(rule)
