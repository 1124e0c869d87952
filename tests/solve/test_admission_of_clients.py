"""Clients without weight rise to where they get what they are wanted for, and never beyond."""

import numpy as np
from attacks.convergence import add_up, projection
from hypothesis import assume, given
from hypothesis import strategies as st

from agreement import close
from fedavot._incidence import Incidence
from fedavot.solve.quadratic import Projections, admit
from strategies import enumerate_cohorts, explicit_laws, normalised, potentials

SHARE = 1e-9
"""Rounding of a weight, relative to what is wanted."""


def point_of(cohorts, chances, x):
    sizes = [len(cohort) for cohort in cohorts]
    members = np.concatenate([np.asarray(cohort, dtype=np.int32) for cohort in cohorts])
    incidence = Incidence(members, np.concatenate(([0], np.cumsum(sizes))), x.size)
    return Projections(incidence, np.asarray(chances)).at(x)


def marginal_of(cohorts, chances, x):
    """Return the mean projection, by code that shares nothing with the library."""
    level = np.zeros(x.size, dtype=int)
    cohorts = [np.asarray(cohort) for cohort in cohorts]
    return add_up(cohorts, chances, [projection(c, x, level) for c in cohorts], x.size)


def test_a_client_alone_without_weight_gets_what_it_is_wanted_for():
    cohorts, chances = [[0, 1], [1, 2], [0, 2, 3], [1, 3]], [0.4, 0.3, 0.2, 0.1]
    x, target = np.array([0.0, 0.1, 0.2, -5.0]), np.array([0.3, 0.3, 0.3, 1e-6])
    raised = admit(point_of(cohorts, chances, x), target, np.zeros(4), x)
    assert close(raised.potentials[:3], x[:3])
    found = marginal_of(cohorts, chances, raised.potentials)[3]
    assert abs(found - target[3]) <= SHARE * target[3]


def test_a_client_rises_only_as_far_as_its_centre_lets_it():
    cohorts, chances, target = [[0, 1]], [1.0], np.array([0.9, 0.1])
    x = np.array([0.0, -1.5])
    point = point_of(cohorts, chances, x)
    stiff = admit(point, target, np.full(2, 10.0), x)
    # The threshold −1 is half a unit above: the pull of 5 is more than a target of 0.1.
    assert stiff is point
    ridge = np.full(2, 0.1)
    mild = admit(point, target, ridge, x)
    # w/2 of weight for a rise of w above the threshold, against a pull of (w + 1/2)/10.
    rise = (0.1 - 0.05) / (0.5 + 0.1)
    assert close(mild.potentials, [0.0, -1.0 + rise])


def test_who_has_weight_or_wants_none_stays():
    cohorts, chances, x = [[0, 1], [1, 2]], [0.5, 0.5], np.array([0.0, 0.0, -9.0])
    point = point_of(cohorts, chances, x)
    assert admit(point, np.array([0.4, 0.6, 0.0]), np.zeros(3), x) is point
    raised = admit(point, np.array([0.4, 0.5, 0.1]), np.zeros(3), x)
    assert np.flatnonzero(raised.potentials != x).tolist() == [2]


@given(explicit_laws(7), st.data())
def test_however_many_rise_nobody_gets_more_than_it_is_wanted_for(law, data):
    x = data.draw(potentials(law.n_clients, (1.0, 5.0)))
    cohorts = {c: float(q) for c, q in enumerate_cohorts(law).items() if q > 0 and len(c) > 1}
    assume(cohorts)
    members, chances = [sorted(cohort) for cohort in cohorts], list(cohorts.values())
    wanted = data.draw(st.lists(st.floats(1e-9, 1.0), min_size=x.size, max_size=x.size))
    point = point_of(members, chances, x)
    # As in an alignment, nobody is wanted for more than the probability of taking part.
    target = np.minimum(normalised(wanted), point.projections.inclusion)
    raised = admit(point, target, np.zeros(x.size), x)
    idle = marginal_of(members, chances, x) <= 0
    after = marginal_of(members, chances, raised.potentials)
    assert np.all(after[idle] <= target[idle] * (1 + SHARE) + SHARE**2)
    assert np.all(raised.potentials[~idle] == x[~idle])
    assert np.all(raised.potentials >= x)


def test_a_probability_beneath_normal_floats_sends_nobody_to_infinity():
    x, target = np.array([0.0, -3.0]), np.array([0.0, 5e-324])
    raised = admit(point_of([[0, 1]], [5e-324], x), target, np.zeros(2), x)
    assert np.all(np.isfinite(raised.potentials))
