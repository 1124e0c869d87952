"""Data of the apps, from scikit-learn's own files or drawn at random: nothing is downloaded."""

import functools

import numpy as np
from sklearn.datasets import load_digits


@functools.cache
def _digits():
    found = load_digits()
    return found.data / 16.0, found.target


def digits(node_config):
    """Return a client's digits for training and testing.

    Client i of n has i + 1 of n (n + 1) / 2 parts of all digits, so that numbers of examples
    differ; or, if its node has "digits", an equal part of those.
    """
    images, labels = _digits()
    client, clients = node_config["partition-id"], node_config["num-partitions"]
    order = np.random.default_rng(0).permutation(len(labels))
    parts = np.arange(1, clients + 1)
    if "digits" in node_config:
        order = order[np.isin(labels[order], [int(digit) for digit in node_config["digits"]])]
        parts = np.ones(clients, dtype=int)
    ends = np.concatenate([[0], np.cumsum(parts)]) * len(order) // parts.sum()
    own = order[ends[client] : ends[client + 1]]
    test, train = own[::5], np.delete(own, np.s_[::5])
    return {"train": (images[train], labels[train]), "test": (images[test], labels[test])}


def incomes(node_config):
    """Return a client's people, fourteen numbers each, and whether they earn much."""
    client = node_config["partition-id"]
    rng = np.random.default_rng([7, client])
    people = rng.normal(size=(60 + 40 * client, 14)) + 0.3 * client
    chance = 1 / (1 + np.exp(-people @ np.linspace(-1, 1, 14) + 0.5 * client))
    return people.astype(np.float32), (rng.random(len(people)) < chance).astype(np.float32)
