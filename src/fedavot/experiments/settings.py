"""The paper's experimental settings: an importance and an availability law each.

N = 100 clients, cohorts of two. *text* is what the paper says, *code* what the authors' scripts do:

* regression, text: p ∝ 101 − i; two draws without replacement by rates r ∝ i.
* regression, code: p ∝ (101 − i)^0.8; two draws with replacement by r ∝ i^0.8, a repeated client
  drawn again until the two differ, so q{a, b} ∝ r_a r_b.
* MNIST, text: p ∝ exp(−i/10); uniform pairs.
* MNIST, code: p ∝ (101 − i)^4; uniform pairs.
* feasible, ours: p ∝ 101 − i; uniform pairs, or larger cohorts.

Not one of the paper's four is attainable (`fedavot reproduce alignment`); ours is.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws
from fedavot.laws.uniform import UniformCohorts

N_CLIENTS = 100
COHORT_SIZE = 2


@dataclass(frozen=True, eq=False)
class Setting:
    """An importance and the law it has to be reached under."""

    name: str
    importance: Floats
    law: Law


def regression_text() -> Setting:
    """Return the restricted-availability setting as the paper describes it."""
    client = _numbers()
    return Setting(
        "regression, text",
        _share(N_CLIENTS + 1 - client),
        SuccessiveDraws(client, COHORT_SIZE),
    )


def regression_code() -> Setting:
    """Return the restricted-availability setting as the authors' script draws it."""
    client = _numbers()
    rates = _share(client**0.8)
    first, second = np.triu_indices(N_CLIENTS, 1)
    law = Cohorts(np.column_stack((first, second)), _share(rates[first] * rates[second]))
    return Setting("regression, code", _share((N_CLIENTS + 1 - client) ** 0.8), law)


def mnist_text() -> Setting:
    """Return the coordinated setting as the paper describes it."""
    law = UniformCohorts(N_CLIENTS, COHORT_SIZE)
    return Setting("MNIST, text", _share(np.exp(-_numbers() / 10)), law)


def mnist_code() -> Setting:
    """Return the coordinated setting as the authors' script has it."""
    law = UniformCohorts(N_CLIENTS, COHORT_SIZE)
    return Setting("MNIST, code", _share((N_CLIENTS + 1 - _numbers()) ** 4), law)


def feasible(size: int = COHORT_SIZE) -> Setting:
    """Return a setting that is attainable: linear importance, uniform cohorts of a size."""
    law: Law = UniformCohorts(N_CLIENTS, size)
    if size == 2:
        # The same law as a list, which the plan of least variance needs.
        law = Cohorts(np.column_stack(np.triu_indices(N_CLIENTS, 1)))
    return Setting("feasible", _share(N_CLIENTS + 1 - _numbers()), law)


def paper_settings() -> tuple[Setting, ...]:
    """Return the paper's four."""
    return regression_text(), regression_code(), mnist_text(), mnist_code()


def _numbers() -> Floats:
    """Return the paper's client numbers, from 1."""
    return np.arange(1.0, N_CLIENTS + 1)


def _share(values: Floats) -> Floats:
    return np.asarray(values / values.sum())
