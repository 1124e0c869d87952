"""The rules that an audit compares, by their names in `fedavot.rules`.

``as-applied`` is the audit's own: the weights that the log says were used.
"""

from fedavot.audit.findings import Advice
from fedavot.rules.names import RuleName, label_of

FEDAVG, HORVITZ_THOMPSON = RuleName.FEDAVG.value, RuleName.HORVITZ_THOMPSON.value
SELF_NORMALISED_IPW = RuleName.SELF_NORMALISED_IPW.value
FEDAVOT, SOFT, VARIANCE = RuleName.FEDAVOT.value, RuleName.SOFT.value, RuleName.VARIANCE.value
ONLINE, SELECT, AS_APPLIED = RuleName.ONLINE.value, RuleName.SELECT.value, "as-applied"


def label(rule: str) -> str:
    """Return a rule's label, or its name if this version does not know the rule.

    >>> label("fedavg"), label("of-another-version")
    ('plain average', 'of-another-version')
    """
    return "as applied" if rule == AS_APPLIED else label_of(rule)


def recommended(advice: Advice) -> str | None:
    """Return the rule that is recommended; None if the log is too short to recommend one."""
    return None if advice.action == "collect more rounds" else advice.rule
