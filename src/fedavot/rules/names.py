"""Every rule by name, in one table: what it is called, which function makes it, and its source.

`RuleName` is the table. To add a rule, write its function in the module of its family, with its
equation and source, and add a line here and the function's name to `fedavot.rules`. `build` makes
a rule from what the server knows: a function takes what its positional parameters name, and the
rest are the rule's options. If something that a rule needs is not known, the error says what.
"""

import difflib
import enum
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedavot._checks import Floats, quoted, shown
from fedavot.alignment import Alignment
from fedavot.errors import RuleError
from fedavot.laws._law import Law
from fedavot.rules._rule import Rule
from fedavot.rules._weights import as_shares
from fedavot.rules.averages import fedavg, fedavg_k, fedprox, full, importance_average
from fedavot.rules.fairness import afl, qffl
from fedavot.rules.inverse_probability import f3ast, fedau, horvitz_thompson, self_normalised_ipw
from fedavot.rules.memories import area, fedstale, fedvarp, focus, mifa, scaffold
from fedavot.rules.optimisers import fedadam, fedavgm, with_server
from fedavot.rules.ours import fedavot, fedavot_online, fedavot_select, steady
from fedavot.rules.participation import amplified_fedavg, amplified_scaffold, ca_fed, fedawe
from fedavot.solve import align

SOFTNESS = 0.1
"""Default of fedavot-soft: part of the way towards equal weights 1/|A|, for less variance."""

_SERVER = {"server_step": "step", "server_momentum": "momentum"}
"""The options of `with_server`, under the names that they have for every rule."""


@dataclass(frozen=True, eq=False)
class Known:
    """What the server knows.

    Attributes
    ----------
    importance : array-like of shape (n_clients,), or mapping from name to float
        Importance of each client in the objective. A mapping needs a law with client names.
    law : Law, optional
        The availability law.
    inclusion : array-like of shape (n_clients,), optional
        The probability that each client takes part in a round; the law's if not given.
    allow_unconverged : bool
        Whether to accept alignments that missed their tolerance.
    """

    importance: ArrayLike | Mapping[str, float]
    law: Law | None = None
    inclusion: ArrayLike | None = None
    allow_unconverged: bool = False

    @cached_property
    def shares(self) -> Floats:
        """The importance in client order, checked."""
        return as_shares(self.importance, getattr(self.law, "clients", None))

    @cached_property
    def chances(self) -> ArrayLike | None:
        """The inclusion probabilities, if they or the law are known."""
        if self.inclusion is not None or self.law is None:
            return self.inclusion
        return self.law.inclusion()

    @cached_property
    def entropic(self) -> Alignment:
        """The maximum-entropy alignment."""
        return self.aligned("fedavot", softness=0.0)

    def aligned(self, rule: str, **options: Any) -> Alignment:
        """Return an alignment with the options of `align`; without any, the shared one."""
        if self.law is None:
            raise RuleError(
                f"rule {rule!r} needs an availability law, and none was given; give one, or "
                "use fedavot-online, which learns from the cohorts as they come"
            )
        return align(self.shares, self.law, **options) if options else self.entropic


_PARTS = {"importance": "shares", "inclusion": "chances"}
"""What functions take from what is known, by the names of their parameters, in order."""


def _fedavot(known: Known) -> Rule:
    return fedavot(known.aligned("fedavot"), allow_unconverged=known.allow_unconverged)


def _variance(known: Known) -> Rule:
    aligned = known.aligned("fedavot-variance", objective="variance")
    return fedavot(aligned, allow_unconverged=known.allow_unconverged)


def _soft(known: Known, *, softness: float = SOFTNESS) -> Rule:
    aligned = known.aligned("fedavot-soft", softness=softness)
    return fedavot(aligned, allow_unconverged=known.allow_unconverged)


def _select(known: Known, *, cohort_size: int) -> Rule:
    aligned = known.aligned("fedavot-select")
    return fedavot_select(aligned, cohort_size, allow_unconverged=known.allow_unconverged)


def _fedprox(known: Known, *, proximal: float = 1.0, by_importance: bool = False) -> Rule:
    return fedprox(known.shares if by_importance else None, proximal=proximal)


class _Entry(NamedTuple):
    """A line of the table: the name in code, the name for people, the function, and the source."""

    name: str
    label: str
    make: Callable[..., Rule]
    source: str


class RuleName(enum.StrEnum):
    """A rule's name, in the order in which tables list the rules.

    A name is what code, configurations and saved files use; its label is for tables, figures and
    reports. The source is the paper, whose details are in the module of the function.
    """

    label: str
    make: Callable[..., Rule]
    source: str

    def __new__(cls, value: str, *line: Any) -> "RuleName":
        """Make a member from a line of the table."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label, member.make, member.source = line
        return member

    def __repr__(self) -> str:
        return repr(self.value)

    FULL = _Entry("full", "full participation", full, "McMahan et al. 2017")
    STEADY = _Entry("fedavot-steady", "FedAVOT, steady", steady, "docs/steady.md")
    FEDAVOT = _Entry("fedavot", "FedAVOT", _fedavot, "the FedAVOT paper")
    VARIANCE = _Entry("fedavot-variance", "FedAVOT, least variance", _variance, "docs/theory.md")
    SOFT = _Entry("fedavot-soft", "FedAVOT, soft", _soft, "docs/theory.md")
    ONLINE = _Entry("fedavot-online", "FedAVOT, online", fedavot_online, "docs/theory.md")
    SELECT = _Entry("fedavot-select", "FedAVOT, server selects", _select, "docs/theory.md")
    FEDAVG = _Entry("fedavg", "plain average", fedavg, "McMahan et al. 2017")
    IMPORTANCE_AVERAGE = _Entry(
        "importance-average", "average by importance", importance_average, "McMahan et al. 2017"
    )
    SELF_NORMALISED_IPW = _Entry(
        "self-normalised-ipw", "self-normalised IPW", self_normalised_ipw, "Hájek 1971"
    )
    HORVITZ_THOMPSON = _Entry(
        "horvitz-thompson", "Horvitz–Thompson", horvitz_thompson, "Horvitz & Thompson 1952"
    )
    FEDAVG_K = _Entry("fedavg-k", "FedAvg(K)", fedavg_k, "the FedAVOT paper")
    FEDAVGM = _Entry("fedavgm", "FedAvgM", fedavgm, "Hsu, Qi & Brown 2019")
    FEDADAM = _Entry("fedadam", "FedAdam", fedadam, "Reddi et al. 2021")
    FEDAU = _Entry("fedau", "FedAU", fedau, "Wang & Ji 2024")
    F3AST = _Entry("f3ast", "F3AST", f3ast, "Ribero, Vikalo & de Veciana 2023")
    MIFA = _Entry("mifa", "MIFA", mifa, "Gu et al. 2021")
    FEDVARP = _Entry("fedvarp", "FedVARP", fedvarp, "Jhunjhunwala et al. 2022")
    FEDSTALE = _Entry("fedstale", "FedStale", fedstale, "Rodio & Neglia 2024")
    FOCUS = _Entry("focus", "FOCUS", focus, "Ying, Li & Yang 2025")
    FEDAWE = _Entry("fedawe", "FedAWE", fedawe, "Xiang et al. 2024")
    AREA = _Entry("area", "AREA", area, "Iakovidou & Kim 2024")
    FEDPROX = _Entry("fedprox", "FedProx", _fedprox, "Li et al. 2020")
    SCAFFOLD = _Entry("scaffold", "SCAFFOLD", scaffold, "Karimireddy et al. 2020")
    AMPLIFIED_FEDAVG = _Entry(
        "amplified-fedavg", "amplified FedAvg", amplified_fedavg, "Wang & Ji 2022"
    )
    AMPLIFIED_SCAFFOLD = _Entry(
        "amplified-scaffold", "amplified SCAFFOLD", amplified_scaffold, "Crawshaw & Liu 2024"
    )
    CA_FED = _Entry("ca-fed", "CA-Fed", ca_fed, "Rodio et al. 2023")
    QFFL = _Entry("qffl", "q-FFL", qffl, "Li et al. 2020")
    AFL = _Entry("afl", "AFL", afl, "Mohri, Sivek & Suresh 2019")


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


def build(name: str, known: Known, **options: Any) -> Rule:
    """Return a rule by name.

    Parameters
    ----------
    name : str
        A `RuleName`, or its name or label in any case, with hyphens, underscores or spaces.
    known : Known
        What the server knows.
    **options
        The rule's own options, such as ``cohort_size`` for fedavot-select, and for every rule that
        moves the model by a change ``server_step`` and ``server_momentum``, as in `with_server`.
    """
    rule = as_rule_name(name)
    if not isinstance(known, Known):
        raise RuleError(
            f"known is {shown(known)}; give rules.Known(importance, law), or "
            "rules.Known(importance) where the law is not known"
        )
    own = dict(inspect.signature(rule.make).parameters)
    inputs: list[Any] = [known] if own.pop("known", None) else []
    inputs += [getattr(known, part) for name, part in _PARTS.items() if own.pop(name, None)]
    names = list(dict.fromkeys([*own, *_SERVER]))
    for option in options:
        if option not in names:
            # Low enough for "size" to suggest "cohort_size".
            close = difflib.get_close_matches(option.lower(), names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}? " if close else ""
            listed = f"its options: {', '.join(names)}"
            raise RuleError(f"rule {rule.value!r} has no option {quoted(option)}; {hint}{listed}")
    for option, parameter in own.items():
        if parameter.default is parameter.empty and option not in options:
            raise RuleError(f"rule {rule.value!r} needs the option {option!r}; add {option}=...")
    outer = [name for name in _SERVER if name in options and name not in own]
    server = {_SERVER[name]: options.pop(name) for name in outer}
    inner = rule.make(*inputs, **options)
    return with_server(inner, **server) if server else inner


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
    text = _spelling(name) if isinstance(name, str) else ""
    if text in spelt:
        return spelt[text]
    spelt |= _OTHER_NAMES
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
