"""A server that never waits: it steps at every K arrivals, of clients of very different speed.

Softmax regression on scikit-learn's digits, 40 clients with a digit or two each; slow clients take
ten times as long as fast ones, and digits go with speed. Each update is made from the model at its
dispatch; the steady rule and full participation have their better step of two.
"""

import heapq

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedavot as fa

N_CLIENTS, LOCAL_STEPS, BATCH, RIDGE = 40, 5, 8, 1e-2
ARRIVALS, FULL_ROUNDS = 4_000, 400
SLOWNESS = np.linspace(1, 10, N_CLIENTS)
IMPORTANCE = {
    "uniform": np.full(N_CLIENTS, 1 / N_CLIENTS),
    "on the slow": SLOWNESS / SLOWNESS.sum(),
}
STEPS = {1: (0.003, 0.006), 4: (0.01, 0.02), 10: (0.02, 0.04), "full": (0.02, 0.04)}
CLOSE = 1.02
"""As near as the requirement: two per cent of full participation's loss."""
BIASED = 1.1
"""How far an average of the arrivals is from it at least, so that the problem is one."""


@pytest.fixture(scope="module")
def clients():
    """Return features, one-hot labels and examples per client, sorted by digit."""
    features, labels = load_digits(return_X_y=True)
    order = np.argsort(labels, kind="stable")[: 44 * N_CLIENTS].reshape(N_CLIENTS, 44)
    scaled = (features - features.mean()) / features.std()
    return np.pad(scaled, ((0, 0), (0, 1)), constant_values=1.0)[order], np.eye(10)[labels[order]]


def shares(scores):
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def objective(model, clients, importance):
    features, labels = clients
    right = (shares(features @ model) * labels).sum(axis=-1)
    return -importance @ np.log(right).mean(axis=1) + RIDGE / 2 * (model**2).sum()


def trained(model, clients, who, step, rng):
    """Return the models of clients after their local steps from ``model``, stacked."""
    features, labels = clients
    models = np.repeat(model[None], len(who), axis=0)
    for _ in range(LOCAL_STEPS):
        batch = rng.integers(features.shape[1], size=(len(who), BATCH))
        x, y = features[np.asarray(who)[:, None], batch], labels[np.asarray(who)[:, None], batch]
        slope = np.einsum("cbi,cbj->cij", x, shares(x @ models) - y) / BATCH
        models -= step * (slope + RIDGE * models)
    return models


def full_participation(clients, importance, step):
    rng, model, records = np.random.default_rng(0), np.zeros((65, 10)), []
    for number in range(FULL_ROUNDS):
        models = trained(model, clients, range(N_CLIENTS), step, rng)
        model = np.tensordot(importance, models, axes=1)
        if number >= 0.75 * FULL_ROUNDS:
            records.append(objective(model, clients, importance))
    return np.mean(records)


def asynchronous(clients, importance, step, buffer, apply):
    """Return the mean loss over the last quarter of the rounds, each of ``buffer`` arrivals."""
    rng, model, records = np.random.default_rng(1), np.zeros((65, 10)), []
    sent = dict.fromkeys(range(N_CLIENTS), model)
    arrivals = [(SLOWNESS[i] * rng.exponential(), i) for i in range(N_CLIENTS)]
    heapq.heapify(arrivals)
    rounds = ARRIVALS // buffer
    for number in range(rounds):
        updates = {}
        while len(updates) < buffer:
            now, client = heapq.heappop(arrivals)
            (end,) = trained(sent[client], clients, [client], step, rng)
            updates[client] = end - sent[client]
        model = apply(model, updates)
        for client in updates:
            sent[client] = model
            heapq.heappush(arrivals, (now + SLOWNESS[client] * rng.exponential(), client))
        if number >= 0.75 * rounds and number % 5 == 0:
            records.append(objective(model, clients, importance))
    return np.mean(records)


def plain(model, updates):
    return model + np.mean(list(updates.values()), axis=0)


@pytest.mark.parametrize("which", IMPORTANCE)
def test_the_objective_is_that_of_full_participation_when_the_server_never_waits(clients, which):
    importance = IMPORTANCE[which]
    full = min(full_participation(clients, importance, step) for step in STEPS["full"])
    for buffer in (1, 4, 10):
        ours = []
        for step in STEPS[buffer]:
            aggregator = fa.Aggregator(dict(enumerate(importance)))
            ours.append(asynchronous(clients, importance, step, buffer, aggregator.apply))
        average = asynchronous(clients, importance, STEPS[buffer][0], buffer, plain)
        assert min(ours) < CLOSE * full
        assert average > BIASED * full
