"""An alignment weighs any cohort, knows its plan, and survives a file bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
import fedavot as fa
from agreement import close
from fedavot import errors
from strategies import (
    any_law,
    enumerate_cohorts,
    explicit_laws,
    importances,
    levels,
    potentials,
)


def made_up(x, level=None, objective="entropy", law=None):
    """Return an alignment with these potentials, as if solved."""
    n_clients = len(x)
    return fa.Alignment(
        importance=np.full(n_clients, 1.0 / n_clients),
        potentials=np.asarray(x, dtype=np.float64),
        levels=np.zeros(n_clients, dtype=np.int64) if level is None else level,
        attained=np.full(n_clients, 1.0 / n_clients),
        residual=0.0,
        iterations=1,
        status=fa.Status.EXACT,
        objective=objective,
        law=law,
        saved_effective_size=1.0,
    )


def cases(objective_potentials=potentials):
    """Draw potentials, levels, and a cohort in some order."""
    return st.integers(1, 10).flatmap(
        lambda n: st.tuples(
            objective_potentials(n),
            levels(n),
            st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True),
        )
    )


def project_by_sorting(x):
    """Project onto the simplex by the textbook: sort, find the support, subtract."""
    ordered = np.sort(x)[::-1] - x.max()
    count = np.arange(1, x.size + 1)
    support = np.flatnonzero(1.0 + count * ordered > np.cumsum(ordered))[-1] + 1
    return np.maximum(x - x.max() - (ordered[:support].sum() - 1.0) / support, 0.0)


@given(cases())
def test_weights_are_the_lexicographic_softmax_of_the_cohort(case):
    x, level, cohort = case
    members = np.isin(np.arange(x.size), cohort)[None, :]
    wanted = brute.cohort_weights(members, x, level)[0]
    assert close(made_up(x, level).weights(cohort), wanted[cohort].astype(np.float64))


@given(cases(lambda n: potentials(n, (0.5, 3.0, 5000.0))))
def test_weights_of_least_variance_are_the_projection_of_the_lowest_level(case):
    x, level, cohort = case
    cohort = np.array(cohort)
    lowest = np.zeros(cohort.size) if level is None else level[cohort]
    wanted = np.zeros(cohort.size)
    wanted[lowest == lowest.min()] = project_by_sorting(x[cohort[lowest == lowest.min()]])
    assert close(made_up(x, level, "variance").weights(cohort), wanted)


@given(st.data())
def test_a_client_of_no_importance_gets_weight_only_from_its_like(data):
    law = data.draw(any_law(6))
    importance = data.draw(importances(law.n_clients))
    alignment = fa.align(importance, law)
    for cohort in enumerate_cohorts(law):
        members = np.array(sorted(cohort))
        idle = importance[members] == 0
        weights = alignment.weights(members)
        assert idle.all() or not weights[idle].any()


@pytest.mark.parametrize("objective", ["entropy", "variance"])
@given(law=explicit_laws(6), data=st.data())
def test_a_column_of_the_plan_is_the_weights_of_its_cohort(objective, law, data):
    x = data.draw(potentials(law.n_clients, (1.0, 30.0)))
    level = data.draw(levels(law.n_clients))
    alignment = made_up(x, level, objective, law)
    plan = alignment.plan().toarray()
    for column, chance in enumerate(law.probabilities):
        ends = law.incidence.offsets[column : column + 2]
        members = law.incidence.members[slice(*ends)]
        wanted = np.zeros(law.n_clients)
        wanted[members] = chance * alignment.weights(members)
        assert close(plan[:, column], wanted)


@given(st.data())
def test_the_effective_cohort_size_is_the_inverse_of_the_expected_squares(data):
    law = data.draw(any_law(6))
    alignment = fa.align(data.draw(importances(law.n_clients)), law)
    squares = brute.expected_squares(
        enumerate_cohorts(law), alignment.potentials, alignment.levels
    ).sum()
    assert alignment.effective_cohort_size == pytest.approx(1.0 / squares, rel=1e-10)


def test_the_effective_cohort_size_of_least_variance_comes_from_its_plan():
    law = fa.Cohorts([[0, 1], [1, 2], [0, 1, 2]])
    alignment = fa.align([0.5, 0.3, 0.2], law, objective="variance")
    plan = alignment.plan().toarray()
    squares = (plan**2 / law.probabilities).sum()
    assert alignment.effective_cohort_size == pytest.approx(1.0 / squares, rel=1e-12)


def test_a_loaded_alignment_has_no_plan(tmp_path):
    fa.align([0.4, 0.3, 0.3], fa.Cohorts([[0, 1], [1, 2]])).save(tmp_path / "a.json")
    with pytest.raises(errors.UnavailableError, match="no law.*align again"):
        fa.Alignment.load(tmp_path / "a.json").plan()


def test_a_law_without_a_list_has_no_plan():
    alignment = fa.align([0.4, 0.3, 0.3], fa.UniformCohorts(3, 2))
    with pytest.raises(errors.UnavailableError, match=r"UniformCohorts.*weights\(cohort\)"):
        alignment.plan()
