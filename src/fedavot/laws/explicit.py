"""Explicit lists of cohorts, of the laws that have one."""

from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws


def explicit_cohorts(law: Law | None) -> Cohorts | None:
    """Return a law as an explicit list of cohorts, or None if it has no such list."""
    if isinstance(law, SuccessiveDraws):
        return law.cohorts
    return law if isinstance(law, Cohorts) else None
