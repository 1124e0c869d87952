"""Federations drawn from laws whose truth is known, for the tests of findings."""

import numpy as np

import fedavot as fa
from fedavot._incidence import Incidence
from fedavot.audit.federation import Federation
from fedavot.audit.participation import Participation


def compressed(rows, n_clients):
    """Return sets of clients in compressed form."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = np.concatenate([np.sort(np.asarray(row, dtype=np.int64)) for row in rows])
    return Incidence(flat.astype(np.int32), offsets, n_clients)


def log_of(cohorts, n_clients, **more):
    """Return a log of cohorts given by client numbers, like the available and the unknown."""
    found = compressed(cohorts, n_clients)
    for key in more.keys() & {"available", "unknown"}:
        more[key] = compressed(more[key], n_clients)
    names = tuple(f"client-{i}" for i in range(n_clients))
    return Participation(names, found.offsets, found.members, **more)


def drawn(law, importance, rounds, seed, **more):
    """Return a federation whose rounds are drawn from a law."""
    cohorts = law.sample(np.random.default_rng(seed), rounds)
    return Federation(log_of(cohorts, law.n_clients, **more), np.asarray(importance))


def plain_gap(law, importance):
    """Return the true gap of the plain average."""
    return float(np.abs(law.expected_weights(np.zeros(law.n_clients)) - importance).sum() / 2)


def scarce(n_clients=30, held=0.4, rate=0.06):
    """Return a law and an importance in which four clients matter and are seldom there."""
    rates = np.random.default_rng(5).uniform(0.1, 0.4, n_clients)
    rates[:4] = rate
    importance = np.full(n_clients, (1 - held) / (n_clients - 4))
    importance[:4] = held / 4
    return fa.IndependentClients(rates), importance


def slack(n_clients=30):
    """Return a law under which an even importance is attainable with room to spare."""
    rates = np.random.default_rng(7).uniform(0.1, 0.6, n_clients)
    return fa.IndependentClients(rates), fa.importance.uniform(n_clients)
