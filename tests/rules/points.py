"""Points on a line: f_i(θ) = (θ − target_i)², small enough to work rules out by hand."""

import itertools

import numpy as np

import fedavot as fa
from fedavot import rules, training

EXACT = 1e-12
"""Room for the rounding of short sums."""


N = 5
UNEVEN = np.array([0.3, 0.1, 0.25, 0.2, 0.15])
TARGETS = np.array([0.7, -1.2, 0.4, 2.1, -0.5])
THREES = fa.Cohorts(list(itertools.combinations(range(N), 3)))
NEEDED = {"fedavot-select": {"cohort_size": 2}}
"""The options that rules must be given."""


def built(name, importance=UNEVEN, law=THREES, **options):
    """Return a rule by name."""
    return rules.build(name, rules.Known(importance, law), **NEEDED.get(name, {}) | options)


def choose(rule, *cohorts):
    """Return whom a rule asks in each of these rounds."""
    return rule.choose([np.array(c, dtype=np.int64) for c in cohorts], np.random.default_rng(1))


def point_task(targets):
    """Return a task with f_i(θ) = (θ − target_i)², one example a client."""
    data = np.asarray(targets, dtype=np.float64)[:, None]
    return training.Task("points", data, distance, start_at_zero)


def distance(params, batch):
    return ((params - batch) ** 2).mean()


def curved_task():
    """Return a task of two clients with curvatures 1 and 4, whose mean is least at 4/5."""

    def curved(params, batch):
        return (batch[..., 0] * (params - batch[..., 1]) ** 2).mean()

    data = np.array([[[1.0, 0.0]], [[4.0, 1.0]]])
    return training.Task("curved", data, curved, start_at_zero)


def start_at_zero(key):
    return np.zeros(())


def run_points(rule, targets, cohorts, *, importance=None, step=0.1, local_steps=2):
    """Train on points with given cohorts; return the last model, a number."""
    task = point_task(targets)
    shares = np.full(task.n_clients, 1 / task.n_clients) if importance is None else importance
    rows = [np.array(cohort, dtype=np.int64) for cohort in cohorts]
    problem = training.Problem(task, shares, lambda rng, rounds: rows)
    plan = training.Training(
        len(rows), training.constant(step), local_steps=local_steps, record_every=len(rows)
    )
    return float(training.train(problem, rule, plan).params[0])
