"""Small tasks, and federated averaging on them as plain NumPy loops.

The regression is trained for real; the fragile task is built to break: its only parameter counts
the rounds, and a client's gradient or loss is no longer finite once the count reaches its limit.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedavot import rules, training
from fedavot.rules import Asked, Rule
from fedavot.rules._rule import add_updates
from fedavot.training.local import batch_key, batch_positions

N_CLIENTS, N_EXAMPLES, N_FEATURES = 4, 5, 2
P = np.array([0.4, 0.3, 0.2, 0.1])
SEEDS = (3, 11)
BATCH = 2
STEP = training.constant(0.05)
AGREE = 1e-12
"""Room for sums taken in another order; models are of order one."""

_rng = np.random.default_rng(5)
FEATURES = _rng.normal(size=(N_CLIENTS, N_EXAMPLES, N_FEATURES))
TARGETS = _rng.normal(size=(N_CLIENTS, N_EXAMPLES)) + np.arange(N_CLIENTS)[:, None]


def square_loss(params, batch):
    features, targets = batch
    return jnp.mean((features @ params["slope"] + params["level"] - targets) ** 2)


def drawn_model(key):
    level, slope = jax.random.split(key)
    return {"level": jax.random.normal(level, ()), "slope": jax.random.normal(slope, (N_FEATURES,))}


def zero_model(key):
    return {"level": jnp.zeros(()), "slope": jnp.zeros(N_FEATURES)}


def everybody(rng, rounds):
    return [np.arange(N_CLIENTS)] * rounds


def some(rng, rounds):
    """Draw each client with probability .6; now and then nobody comes."""
    present = rng.random((rounds, N_CLIENTS)) < 0.6
    present[0, 0] = True
    return [np.flatnonzero(row) for row in present]


TASK = training.Task("regression", (FEATURES, TARGETS), square_loss, drawn_model)
PROBLEM = training.Problem(TASK, P, some)
SHARES = rules.importance_average(P)
"""A rule without memory."""


def options(rounds=6, **given):
    """Return a training; runs of less than twenty rounds share one compiled program."""
    return training.Training(rounds, **{"step": STEP, "seeds": SEEDS, "batch_size": BATCH} | given)


def asking(weigh, name="given"):
    """Return a plain rule: ``weigh`` gives a round's members and weights, from (number, cohort)."""

    def choose(cohorts, rng):
        return [Asked(*weigh(number, cohort)) for number, cohort in enumerate(cohorts, start=1)]

    return Rule(name, "nothing", "nothing", choose, add_updates)


def flat(params):
    """Return a model, or one a seed, as one vector: the level, then the slope."""
    level, slope = np.asarray(params["level"]), np.asarray(params["slope"])
    return np.concatenate([level[..., None], slope], axis=-1)


def start_of(seed):
    """Return the first model of a seed."""
    with jax.enable_x64(True):
        return flat(drawn_model(jax.random.key(seed)))


def cohorts_of(seed, rounds):
    return some(np.random.default_rng([seed, 0]), rounds)


def slope_of_square(theta, features, targets):
    errors = features @ theta[1:] + theta[0] - targets
    return 2 / targets.size * np.concatenate([[errors.sum()], features.T @ errors])


def objective(theta, clients, shares=P):
    """Return Σ p_i f_i, over clients' own arrays."""
    means = [np.mean((x @ theta[1:] + theta[0] - y) ** 2) for x, y in clients]
    return float(np.dot(shares, means))


def average_plainly(theta, clients, cohorts, *, seed, step, local_steps=1, batch_size=None):
    """Play federated averaging by normalised importance; return the model after every round."""
    room = max(targets.size for _, targets in clients)
    models = []
    for number, cohort in enumerate(cohorts, start=1):
        ends = []
        for client in cohort:
            features, targets = clients[client]
            local = theta
            for turn in range(local_steps):
                rows = np.arange(targets.size)
                if batch_size is not None:
                    key = batch_key(jax.random.key(seed), number, client, turn)
                    rows = np.asarray(batch_positions(key, room, targets.size, batch_size))
                local = local - step * slope_of_square(local, features[rows], targets[rows])
            ends.append(local)
        if len(cohort):
            weights = P[cohort] / P[cohort].sum()
            theta = sum(weight * end for weight, end in zip(weights, ends, strict=True))
        models.append(theta)
    return np.array(models)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=AGREE, atol=AGREE)


def assert_as_in_a_plain_loop(run, clients, cohorts_of, **options):
    """Check the models of every seed, their averages and records, against `average_plainly`."""
    for at, seed in enumerate(run.seeds):
        start, cohorts = start_of(seed), cohorts_of(seed)
        models = average_plainly(start, clients, cohorts, seed=seed, step=0.05, **options)
        losses = [objective(model, clients) for model in models]
        found = (flat(run.params)[at], flat(run.average)[at], run.losses[at])
        for one, expected in zip(found, (models[-1], models.mean(axis=0), losses), strict=True):
            assert_close(one, expected)


CLIENTS = list(zip(FEATURES, TARGETS, strict=True))


def fragile_loss(params, batch):
    """Return −x, whose gradient step of size 1 adds 1 to x, until x reaches the limit.

    From there on the loss is infinite, and unless the client is silent its gradient NaN.
    """
    limit, silent = batch
    broken = params["x"] >= limit
    slope = jnp.where(broken & ~silent, jnp.nan, 1.0)
    return jnp.mean(-slope * params["x"] + jnp.where(broken, jnp.inf, 0.0))


def fragile(limits, importance, *, silent=False, availability=some):
    """Return a problem whose clients break when the model has come to their limits."""
    data = (np.array(limits, float)[:, None], np.full((N_CLIENTS, 1), silent))
    task = training.Task("fragile", data, fragile_loss, lambda key: {"x": jnp.zeros(())})
    return training.Problem(task, importance, availability)


def first_break(limits, importance, cohorts_by_seed, *, silent=False):
    """Play the fragile task with plain means, up to the first break.

    Returns its round, kind (update or loss) and seed. Within a round, seeds are looked at in order.
    """
    counts = dict.fromkeys(cohorts_by_seed, 0.0)
    n_rounds = len(next(iter(cohorts_by_seed.values())))
    for number in range(1, n_rounds + 1):
        for seed, cohorts in cohorts_by_seed.items():
            cohort = cohorts[number - 1]
            if not silent and any(counts[seed] >= limits[client] for client in cohort):
                return number, "update", seed
            counts[seed] += bool(len(cohort))
            if any(counts[seed] >= limit for limit, p in zip(limits, importance, strict=True) if p):
                return number, "loss", seed
    return None
