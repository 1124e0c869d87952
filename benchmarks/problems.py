"""The five problems that everybody solves, with fixed seeds.

Nothing here asks the library for a number: cohorts, probabilities and importance come from
NumPy, so that a mistake in the library cannot make its own exercise easier.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import fedavot as fa
from benchmarks import evaluate

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ExplicitProblem:
    """An importance and a list of cohorts of one size.

    Attributes
    ----------
    importance : float array, shape (n_clients,)
        What is wanted of each client.
    members : int array, shape (n_cohorts, size)
        The cohorts, members ascending.
    probabilities : float array, shape (n_cohorts,)
        Of each cohort.
    tol : float
        L1 distance of the marginal to the importance at which a contender may stop.
    """

    importance: Floats
    members: Integers
    probabilities: Floats
    tol: float = 1e-9

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        return self.importance.size

    @cached_property
    def columns(self) -> Integers:
        """The members, contiguous by place in the cohort, shape (size, n_cohorts)."""
        return np.ascontiguousarray(self.members.T)

    @cached_property
    def matrix(self):
        """The cohorts as a 0/1 CSR matrix of float64, shape (n_cohorts, n_clients)."""
        from scipy import sparse

        count, size = self.members.shape
        offsets = np.arange(0, count * size + 1, size, dtype=np.int32)
        flat = self.members.ravel().astype(np.int32)
        return sparse.csr_array((np.ones(flat.size), flat, offsets), shape=(count, self.n_clients))

    @property
    def matrix_bytes(self) -> int:
        """What the CSR matrix takes: data, indices and row offsets."""
        return self.matrix.data.nbytes + self.matrix.indices.nbytes + self.matrix.indptr.nbytes

    def laid_out(self) -> "ExplicitProblem":
        """Return the problem with the layouts that peers want already made."""
        _ = self.columns, self.matrix
        return self

    def law(self) -> fa.Cohorts:
        """Return a new law, so that nothing kept from the last run helps the next."""
        return fa.Cohorts(self.members, self.probabilities, n_clients=self.n_clients)


@dataclass(frozen=True, eq=False)
class IndependentProblem:
    """An importance and independent clients.

    Attributes
    ----------
    importance, probabilities : float arrays, shape (n_clients,)
        What is wanted of each client, and how often it is available.
    tol : float
        L1 distance at which a contender may stop; a gap, half of it, of 1e-9.
    """

    importance: Floats
    probabilities: Floats
    tol: float = 2e-9

    def law(self) -> fa.IndependentClients:
        """Return a new law, so that nothing kept from the last run helps the next."""
        return fa.IndependentClients(self.probabilities)


def linear_pairs(n_clients: int = 100) -> ExplicitProblem:
    """P1: all pairs equally likely, importance falling linearly: p_i ∝ N + 1 − i."""
    return _uniform(_pairs(n_clients), n_clients - np.arange(n_clients, dtype=np.float64))


def smooth_pairs(n_clients: int = 1_000) -> ExplicitProblem:
    """P2: all pairs equally likely, p_i ∝ exp(−i/N)."""
    return _uniform(_pairs(n_clients), np.exp(-np.arange(1, n_clients + 1) / n_clients))


def many_cohorts(
    n_clients: int = 100_000, n_cohorts: int = 1_000_000, size: int = 10
) -> ExplicitProblem:
    """P3: random cohorts, p the marginal of potentials drawn from Normal(0, 0.5)."""
    rng = np.random.default_rng(3)
    members = np.sort(rng.integers(0, n_clients, (n_cohorts, size)), axis=1)
    while (repeated := (members[:, 1:] == members[:, :-1]).any(axis=1)).any():
        drawn = rng.integers(0, n_clients, (int(repeated.sum()), size))
        members[repeated] = np.sort(drawn, axis=1)
    probabilities = np.full(n_cohorts, 1.0 / n_cohorts)
    potentials = rng.normal(0.0, 0.5, n_clients)
    importance = evaluate.marginal_of_cohorts(members, probabilities, potentials)
    return ExplicitProblem(importance / importance.sum(), members, probabilities)


def million_clients(n_clients: int = 1_000_000) -> IndependentProblem:
    """P4: probabilities ∝ lognormal(0, 0.5), 5 clients a cohort on average; p as in P3."""
    rng = np.random.default_rng(4)
    probabilities = rng.lognormal(0.0, 0.5, n_clients)
    probabilities *= 5.0 / probabilities.sum()
    potentials = rng.normal(0.0, 0.5, n_clients)
    importance = evaluate.marginal_of_independent(probabilities, potentials)
    return IndependentProblem(importance / importance.sum(), probabilities)


def paper_regression(n_clients: int = 100) -> ExplicitProblem:
    """P5: the paper's regression as its text has it, infeasible.

    Two clients drawn without replacement by rates r_i ∝ i, importance p_i ∝ N + 1 − i.
    """
    members = _pairs(n_clients)
    rates = np.arange(1.0, n_clients + 1)
    rates /= rates.sum()
    first, second = rates[members].T
    probabilities = first * second * (1.0 / (1.0 - first) + 1.0 / (1.0 - second))
    importance = rates[::-1].copy()
    return ExplicitProblem(importance, members, probabilities / probabilities.sum())


def _pairs(n_clients: int) -> Integers:
    return np.column_stack(np.triu_indices(n_clients, 1))


def _uniform(members: Integers, importance: Floats) -> ExplicitProblem:
    probabilities = np.full(len(members), 1.0 / len(members))
    return ExplicitProblem(importance / importance.sum(), members, probabilities)
