"""Rules by name, for studies and configurations: build a rule from what the server knows.

A name stands for a function and for the part of what is known that the function takes. Rules with
the same alignment share it. If something that a rule needs is not known, the error says what.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from fedavot._checks import Floats, quoted, shown
from fedavot.alignment import Alignment
from fedavot.errors import RuleError
from fedavot.laws._law import Law
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Rule
from fedavot.rules.afl import afl
from fedavot.rules.amplified_fedavg import amplified_fedavg
from fedavot.rules.amplified_scaffold import amplified_scaffold
from fedavot.rules.area import area
from fedavot.rules.ca_fed import ca_fed
from fedavot.rules.f3ast import f3ast
from fedavot.rules.fedau import fedau
from fedavot.rules.fedavg import fedavg
from fedavot.rules.fedavg_k import fedavg_k
from fedavot.rules.fedavot import fedavot
from fedavot.rules.fedawe import fedawe
from fedavot.rules.fedprox import fedprox
from fedavot.rules.fedstale import fedstale
from fedavot.rules.fedvarp import fedvarp
from fedavot.rules.focus import focus
from fedavot.rules.full import full
from fedavot.rules.horvitz_thompson import horvitz_thompson
from fedavot.rules.importance_average import importance_average
from fedavot.rules.mifa import mifa
from fedavot.rules.names import RuleName, as_rule_name
from fedavot.rules.online import fedavot_online
from fedavot.rules.qffl import qffl
from fedavot.rules.scaffold import scaffold
from fedavot.rules.select import fedavot_select
from fedavot.rules.self_normalised_ipw import self_normalised_ipw
from fedavot.rules.server import fedadam, fedavgm, with_server
from fedavot.rules.steady import steady
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
        return self.aligned(RuleName.FEDAVOT, softness=0.0)

    def aligned(self, rule: RuleName, **options: Any) -> Alignment:
        """Return an alignment with the options of `align`; without any, the shared one."""
        if self.law is None:
            raise RuleError(
                f"rule {rule.value!r} needs an availability law, and none was given; give one, or "
                "use fedavot-online, which learns from the cohorts as they come"
            )
        return align(self.shares, self.law, **options) if options else self.entropic


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
    make, takes = _MAKERS[rule]
    given = takes(known)
    accepted = list(inspect.signature(make).parameters.values())[len(given) :]
    own = {each.name for each in accepted}
    server = {name: options.pop(name) for name in _SERVER if name in options.keys() - own}
    _refuse_options(rule, accepted, options)
    made = make(*given, **options)
    if not server:
        return made
    return with_server(made, **{_SERVER[name]: value for name, value in server.items()})


def _refuse_options(
    rule: RuleName, accepted: list[inspect.Parameter], options: dict[str, Any]
) -> None:
    """Refuse options that a rule does not have, and rules without an option that they need."""
    names = list(dict.fromkeys([*(each.name for each in accepted), *_SERVER]))
    unknown = next((name for name in options if name not in names), None)
    if unknown is not None:
        # Low enough for "size" to suggest "cohort_size".
        close = difflib.get_close_matches(unknown.lower(), names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        listed = f"its options: {', '.join(names)}"
        raise RuleError(f"rule {rule.value!r} has no option {quoted(unknown)}; {hint}{listed}")
    needed = [each.name for each in accepted if each.default is each.empty]
    missing = next((name for name in needed if name not in options), None)
    if missing is not None:
        raise RuleError(f"rule {rule.value!r} needs the option {missing!r}; add {missing}=...")


def _everything(known: Known) -> tuple[Any, ...]:
    return (known,)


def _importance(known: Known) -> tuple[Any, ...]:
    return (known.shares,)


def _inclusion(known: Known) -> tuple[Any, ...]:
    return known.shares, known.chances


def _nothing(known: Known) -> tuple[Any, ...]:
    return ()


def _fedavot(known: Known) -> Rule:
    aligned = known.aligned(RuleName.FEDAVOT)
    return fedavot(aligned, allow_unconverged=known.allow_unconverged)


def _variance(known: Known) -> Rule:
    aligned = known.aligned(RuleName.VARIANCE, objective="variance")
    return fedavot(aligned, allow_unconverged=known.allow_unconverged)


def _soft(known: Known, *, softness: float = SOFTNESS) -> Rule:
    aligned = known.aligned(RuleName.SOFT, softness=softness)
    return fedavot(aligned, allow_unconverged=known.allow_unconverged)


def _select(known: Known, *, cohort_size: int) -> Rule:
    aligned = known.aligned(RuleName.SELECT)
    return fedavot_select(aligned, cohort_size, allow_unconverged=known.allow_unconverged)


def _fedprox(known: Known, *, proximal: float = 1.0, by_importance: bool = False) -> Rule:
    return fedprox(known.shares if by_importance else None, proximal=proximal)


_MAKERS: dict[RuleName, tuple[Callable[..., Rule], Callable[[Known], tuple[Any, ...]]]] = {
    RuleName.FULL: (full, _importance),
    RuleName.STEADY: (steady, _importance),
    RuleName.FEDAVOT: (_fedavot, _everything),
    RuleName.VARIANCE: (_variance, _everything),
    RuleName.SOFT: (_soft, _everything),
    RuleName.ONLINE: (fedavot_online, _importance),
    RuleName.SELECT: (_select, _everything),
    RuleName.FEDAVG: (fedavg, _nothing),
    RuleName.IMPORTANCE_AVERAGE: (importance_average, _importance),
    RuleName.SELF_NORMALISED_IPW: (self_normalised_ipw, _inclusion),
    RuleName.HORVITZ_THOMPSON: (horvitz_thompson, _inclusion),
    RuleName.FEDAVG_K: (fedavg_k, _importance),
    RuleName.FEDAVGM: (fedavgm, _importance),
    RuleName.FEDADAM: (fedadam, _importance),
    RuleName.FEDAU: (fedau, _importance),
    RuleName.F3AST: (f3ast, _importance),
    RuleName.MIFA: (mifa, _importance),
    RuleName.FEDVARP: (fedvarp, _importance),
    RuleName.FEDSTALE: (fedstale, _inclusion),
    RuleName.FOCUS: (focus, _importance),
    RuleName.FEDAWE: (fedawe, _nothing),
    RuleName.AREA: (area, _importance),
    RuleName.FEDPROX: (_fedprox, _everything),
    RuleName.SCAFFOLD: (scaffold, _importance),
    RuleName.AMPLIFIED_FEDAVG: (amplified_fedavg, _importance),
    RuleName.AMPLIFIED_SCAFFOLD: (amplified_scaffold, _importance),
    RuleName.CA_FED: (ca_fed, _importance),
    RuleName.QFFL: (qffl, _importance),
    RuleName.AFL: (afl, _nothing),
}
