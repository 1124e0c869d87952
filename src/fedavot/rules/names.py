"""The name of every rule, and its label for people.

A name is what code, configurations and saved files use; its label is for tables, figures and
reports.
"""

import difflib
import enum
import re
from typing import Any

from fedavot._checks import shown
from fedavot.errors import RuleError


class RuleName(enum.StrEnum):
    """A rule's name, in the order in which tables list the rules."""

    label: str
    """The name for people."""

    def __new__(cls, value: str, label: str = "") -> "RuleName":
        """Make a member from a name and its label."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    def __repr__(self) -> str:
        return repr(self.value)

    FULL = "full", "full participation"
    STEADY = "fedavot-steady", "FedAVOT, steady"
    FEDAVOT = "fedavot", "FedAVOT"
    VARIANCE = "fedavot-variance", "FedAVOT, least variance"
    SOFT = "fedavot-soft", "FedAVOT, soft"
    ONLINE = "fedavot-online", "FedAVOT, online"
    SELECT = "fedavot-select", "FedAVOT, server selects"
    FEDAVG = "fedavg", "plain average"
    IMPORTANCE_AVERAGE = "importance-average", "average by importance"
    SELF_NORMALISED_IPW = "self-normalised-ipw", "self-normalised IPW"
    HORVITZ_THOMPSON = "horvitz-thompson", "Horvitz–Thompson"
    FEDAVG_K = "fedavg-k", "FedAvg(K)"
    FEDAVGM = "fedavgm", "FedAvgM"
    FEDADAM = "fedadam", "FedAdam"
    FEDAU = "fedau", "FedAU"
    F3AST = "f3ast", "F3AST"
    MIFA = "mifa", "MIFA"
    FEDVARP = "fedvarp", "FedVARP"
    FEDSTALE = "fedstale", "FedStale"
    FOCUS = "focus", "FOCUS"
    FEDAWE = "fedawe", "FedAWE"
    AREA = "area", "AREA"
    FEDPROX = "fedprox", "FedProx"
    SCAFFOLD = "scaffold", "SCAFFOLD"
    AMPLIFIED_FEDAVG = "amplified-fedavg", "amplified FedAvg"
    AMPLIFIED_SCAFFOLD = "amplified-scaffold", "amplified SCAFFOLD"
    CA_FED = "ca-fed", "CA-Fed"
    QFFL = "qffl", "q-FFL"
    AFL = "afl", "AFL"


_OTHER_NAMES = {
    "uniform": RuleName.FEDAVG,
    "p-normalised": RuleName.IMPORTANCE_AVERAGE,
    "snipw": RuleName.SELF_NORMALISED_IPW,
    "hajek": RuleName.SELF_NORMALISED_IPW,
    "ht": RuleName.HORVITZ_THOMPSON,
    "ipw": RuleName.HORVITZ_THOMPSON,
    "qfedavg": RuleName.QFFL,
    "q-fedavg": RuleName.QFFL,
}
"""Names of rules in other places: not accepted, but the error suggests the right name."""

_LIKENESS = 0.7
"""Smallest `difflib` ratio of a suggestion: changing one letter in three is too much."""


def as_rule_name(name: Any) -> RuleName:
    """Return the rule that a name or label means.

    Parameters
    ----------
    name : str
        Name or label, in upper or lower case, with hyphens, underscores or spaces between words.
    """
    if isinstance(name, RuleName):
        return name
    spelt = {_spelling(text): rule for rule in RuleName for text in (rule.label, rule.value)}
    if isinstance(name, str) and _spelling(name) in spelt:
        return spelt[_spelling(name)]
    spelt |= _OTHER_NAMES
    text = _spelling(name) if isinstance(name, str) else ""
    close = difflib.get_close_matches(text, spelt, n=1, cutoff=_LIKENESS)
    hint = f"; did you mean {spelt[close[0]].value!r}?" if close else ""
    raise RuleError(
        f"there is no rule {shown(name)}{hint or '; the rules are ' + ', '.join(RuleName)}"
    )


def label_of(name: str) -> str:
    """Return a rule's label; for a rule that is not the library's own, return its name."""
    return RuleName(name).label if name in list(RuleName) else name


def _spelling(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name.casefold()).strip("-")
