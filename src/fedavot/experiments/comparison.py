"""Rules that are each at their own best steps, compared over many settings.

A rule's loss on a setting is its tail loss, or the excess over the optimum where that is known. It
is divided by the best rule's, where full participation does not count: it asks clients that the
others cannot. Two rules are compared seed by seed, as they see the same cohorts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments import summary
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.summary import ROUNDING
from fedavot.rules.names import RuleName

OURS = summary.OURS[0]
"""The rule that is compared with the best of the others."""
SOLVED = 1e-9
"""Ratios do not tell smaller losses apart."""
MOST = 100.0
"""Larger ratios count as this in a rule's rank: a failure is one, however far the loss went."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The losses of rules on settings.

    Attributes
    ----------
    settings : tuple of str
        In the order of the study.
    rules : tuple of str
        Full participation first, then by the geometric mean of the ratios to the best. Rules that
        were run on less than half of the settings are last.
    losses : dict of (setting, rule) to float array, shape (n_seeds,), or None
        One per seed; None if a run diverged. Absent if the rule was not run.
    """

    settings: tuple[str, ...]
    rules: tuple[str, ...]
    losses: dict[tuple[str, str], Floats | None]

    def mean(self, setting: str, rule: str) -> float:
        """Return the mean loss over seeds: infinite if a run diverged, NaN if there is none."""
        if (setting, rule) not in self.losses:
            return np.nan
        values = self.losses[setting, rule]
        return np.inf if values is None else float(values.mean())

    def ratio(self, setting: str, rule: str) -> float:
        """Return a mean loss over the best rule's, full participation not counted."""
        best = self.best(setting)
        if best is None:
            return np.nan
        ours, least = self.mean(setting, rule), self.mean(setting, best)
        return float(np.maximum(ours, SOLVED) / max(least, SOLVED))

    def best(self, setting: str, *, but: str = RuleName.FULL) -> str | None:
        """Return the best rule on a setting but full participation and another, if there is one."""
        means = {
            rule: self.mean(setting, rule)
            for rule in self.rules
            if rule not in (RuleName.FULL, but)
        }
        finite = {rule: mean for rule, mean in means.items() if np.isfinite(mean)}
        return min(finite, key=lambda rule: finite[rule], default=None)

    def errors(self, setting: str, first: str, second: str) -> float:
        """Return by how many standard errors the first rule's loss is above the second's.

        The standard error is that of the difference by seed; NaN with one seed, or if a run
        diverged.
        """
        ours, theirs = (self.losses.get((setting, rule)) for rule in (first, second))
        if ours is None or theirs is None or ours.size < 2:
            return np.nan
        difference = ours - theirs
        mean = float(difference.mean())
        error = float(difference.std(ddof=1) / np.sqrt(difference.size))
        if not error:
            return float(np.copysign(np.inf, mean)) if mean else 0.0
        return mean / error


def compared(outcomes: Sequence[Outcome]) -> Comparison:
    """Return the comparison of outcomes with one per setting and rule."""
    settings = tuple(dict.fromkeys(one.setting for one in outcomes))
    known = {one.setting for one in outcomes if "excess" in one.metrics}
    losses: dict[tuple[str, str], Floats | None] = {}
    for one in outcomes:
        values = one.values("excess" if one.setting in known else "tail_loss")
        if values is not None and one.setting in known:
            values = np.where(values < ROUNDING, 0.0, values)
        losses[one.setting, one.rule] = values
    rules = dict.fromkeys(one.rule for one in outcomes)
    found = Comparison(settings, tuple(rules), losses)
    ranks = {rule: _rank(found, rule) for rule in rules}
    return Comparison(settings, tuple(sorted(rules, key=lambda rule: ranks[rule])), losses)


def _rank(found: Comparison, rule: str) -> tuple[bool, bool, float]:
    """Return a key to sort by, with the ratios over the settings on which the rule was run."""
    ratios = np.array([found.ratio(setting, rule) for setting in found.settings])
    ratios = ratios[~np.isnan(ratios)]
    seldom = ratios.size < len(found.settings) / 2
    mean = np.log(np.clip(ratios, 1 / MOST, MOST)).mean() if ratios.size else np.inf
    return rule != RuleName.FULL, seldom, float(mean)
