"""Rules by name, for studies and configurations: what is known goes in, a rule comes out.

A name maps to a function of what is known and of the rule's own options. Alignments are computed
once for all the rules that share them. What a rule needs and is not given is an error that says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from fedavot._checks import Floats, shown
from fedavot.alignment import Alignment
from fedavot.errors import RuleError
from fedavot.laws._law import Law
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Rule
from fedavot.rules.afl import afl
from fedavot.rules.f3ast import f3ast
from fedavot.rules.fedau import fedau
from fedavot.rules.fedavg_k import fedavg_k
from fedavot.rules.fedavot import fedavot
from fedavot.rules.fedawe import fedawe
from fedavot.rules.fedprox import fedprox
from fedavot.rules.fedvarp import fedvarp
from fedavot.rules.full import full
from fedavot.rules.ht import ht
from fedavot.rules.memory import fedavot_memory
from fedavot.rules.mifa import mifa
from fedavot.rules.online import fedavot_online
from fedavot.rules.p_normalised import p_normalised
from fedavot.rules.qffl import qffl
from fedavot.rules.scaffold import scaffold
from fedavot.rules.select import fedavot_select
from fedavot.rules.snipw import snipw
from fedavot.rules.uniform import uniform
from fedavot.solve import align

SOFTNESS = 0.1
"""Of fedavot-soft unless given: some way towards 1/|A|, for steadier weights."""


@dataclass(frozen=True, eq=False)
class Known:
    """What the server knows.

    Attributes
    ----------
    importance : array-like of shape (n_clients,)
        What the objective gives each client.
    law : Law, optional
        How available clients are.
    inclusion : array-like of shape (n_clients,), optional
        How often each takes part; the law's if not given.
    allow_unconverged : bool
        Whether alignments that miss their tolerance are accepted.
    """

    importance: ArrayLike
    law: Law | None = None
    inclusion: ArrayLike | None = None
    allow_unconverged: bool = False

    @cached_property
    def shares(self) -> Floats:
        """The importance, checked."""
        return as_shares(self.importance)

    @cached_property
    def chances(self) -> ArrayLike | None:
        """The inclusion probabilities, where anything tells them."""
        if self.inclusion is not None or self.law is None:
            return self.inclusion
        return self.law.inclusion()

    @cached_property
    def entropic(self) -> Alignment:
        """The alignment of greatest entropy."""
        return align(self.shares, self._needed_law("fedavot"))

    def aligned(self, rule: str, **options: Any) -> Alignment:
        """Return an alignment with the options of `align`."""
        law = self._needed_law(rule)
        return align(self.shares, law, **options) if options else self.entropic

    def _needed_law(self, rule: str) -> Law:
        if self.law is None:
            raise RuleError(
                f"rule {rule!r} needs an availability law, and none was given; give one, or use "
                "fedavot-online, which learns from the cohorts as they come"
            )
        return self.law


def build(name: str, known: Known, **options: Any) -> Rule:
    """Return a rule by name.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    known : Known
        What the server knows.
    **options
        The rule's own, such as ``size`` for fedavot-select.
    """
    if not isinstance(name, str) or name not in _BUILDERS:
        raise RuleError(f"rule {shown(name)} is unknown; it must be one of {', '.join(NAMES)}")
    try:
        return _BUILDERS[name](known, **options)
    except TypeError as cause:
        # Of our constructors only a wrong keyword raises this.
        raise RuleError(f"rule {name!r}: {_in_words(cause)}") from None


def _in_words(cause: TypeError) -> str:
    return str(cause).partition("() ")[2] or str(cause)


def _aligned(known: Known, rule: str, **options: Any) -> Rule:
    aligned = known.aligned(rule, **options)
    return fedavot(aligned, allow_unconverged=known.allow_unconverged)


def _memory(known: Known, *, softness: float = 0.0) -> Rule:
    chosen = {"softness": softness} if softness else {}
    aligned = known.aligned("fedavot-memory", **chosen)
    return fedavot_memory(aligned, allow_unconverged=known.allow_unconverged)


def _select(known: Known, *, size: int) -> Rule:
    aligned = known.aligned("fedavot-select")
    return fedavot_select(aligned, size, allow_unconverged=known.allow_unconverged)


def _soft(known: Known, *, softness: float = SOFTNESS) -> Rule:
    return _aligned(known, "fedavot-soft", softness=softness)


_BUILDERS: dict[str, Callable[..., Rule]] = {
    "full": lambda known: full(known.shares),
    "fedavg-k": lambda known: fedavg_k(known.shares),
    "uniform": lambda known: uniform(),
    "p-normalised": lambda known: p_normalised(known.shares),
    "ht": lambda known: ht(known.shares, known.chances),
    "snipw": lambda known: snipw(known.shares, known.chances),
    "fedavot": lambda known: _aligned(known, "fedavot"),
    "fedavot-variance": lambda known: _aligned(known, "fedavot-variance", objective="variance"),
    "fedavot-soft": _soft,
    "fedavot-online": lambda known, **options: fedavot_online(known.shares, **options),
    "fedavot-memory": _memory,
    "fedavot-select": _select,
    "fedau": lambda known, **options: fedau(known.shares, **options),
    "f3ast": lambda known, **options: f3ast(known.shares, **options),
    "mifa": lambda known: mifa(known.shares),
    "fedvarp": lambda known: fedvarp(known.shares),
    "fedawe": lambda known: fedawe(),
    "fedprox": lambda known, **options: fedprox(**options),
    "scaffold": lambda known: scaffold(known.shares),
    "qffl": lambda known, **options: qffl(known.shares, **options),
    "afl": lambda known, **options: afl(**options),
}

NAMES = tuple(_BUILDERS)
"""Every rule's name."""
