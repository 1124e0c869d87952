"""The paper's experimental settings: in each, the importance and the availability law.

N = 100 clients, cohorts of two. *text* is what the paper says, *code* what the authors' scripts do:

* regression, text: p ∝ 101 − i; two draws without replacement by rates r ∝ i.
* regression, code: p ∝ (101 − i)^0.8; two draws with replacement by r ∝ i^0.8, repeated until the
  two differ, so q{a, b} ∝ r_a r_b.
* MNIST, text: p ∝ exp(−i/10); uniform pairs.
* MNIST, code: p ∝ (101 − i)^4; uniform pairs.
* feasible, our own: p ∝ 101 − i; uniform pairs, or larger cohorts.

None of the paper's four is attainable (`fedavot reproduce alignment`); our own is.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws
from fedavot.laws.uniform import UniformCohorts

N_CLIENTS = 100
COHORT_SIZE = 2
_NUMBERS = np.arange(1.0, N_CLIENTS + 1)
"""The paper's client numbers, from 1."""
_FALLING = N_CLIENTS + 1 - _NUMBERS
Given = tuple[Floats, Law]
"""An importance, and the availability law under which it is to be reached."""


def regression_text() -> Given:
    """Return the restricted-availability setting as the paper describes it."""
    return (_share(_FALLING), SuccessiveDraws(_NUMBERS, COHORT_SIZE))


def regression_code() -> Given:
    """Return the restricted-availability setting as the authors' script draws it."""
    rates = _share(_NUMBERS**0.8)
    first, second = np.triu_indices(N_CLIENTS, 1)
    law = Cohorts(np.column_stack((first, second)), _share(rates[first] * rates[second]))
    return (_share(_FALLING**0.8), law)


def mnist_text() -> Given:
    """Return the coordinated setting as the paper describes it."""
    return (_share(np.exp(-_NUMBERS / 10)), UniformCohorts(N_CLIENTS, COHORT_SIZE))


def mnist_code() -> Given:
    """Return the coordinated setting as the authors' script has it."""
    return (_share(_FALLING**4), UniformCohorts(N_CLIENTS, COHORT_SIZE))


def feasible(size: int = COHORT_SIZE) -> Given:
    """Return an attainable setting: linear importance, uniform cohorts of one size."""
    law: Law = UniformCohorts(N_CLIENTS, size)
    if size == 2:
        # The same law as explicit cohorts, which the plan of least variance needs.
        law = Cohorts(np.column_stack(np.triu_indices(N_CLIENTS, 1)))
    return (_share(_FALLING), law)


def paper_settings() -> dict[str, Given]:
    """Return the paper's four settings by name."""
    return {
        "regression, text": regression_text(),
        "regression, code": regression_code(),
        "MNIST, text": mnist_text(),
        "MNIST, code": mnist_code(),
    }


def _share(values: Floats) -> Floats:
    return np.asarray(values / values.sum())
