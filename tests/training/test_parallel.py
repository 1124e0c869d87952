"""Clients that train in parallel, as on an accelerator, end where those trained in turn do."""

import jax
import numpy as np
import pytest
import small

from fedavot import rules, training

ROUNDING = 1e-12


@pytest.mark.parametrize(
    "rule", [small.SHARES, rules.scaffold(small.P)], ids=lambda rule: rule.name
)
def test_clients_in_parallel_end_where_clients_in_turn_do(monkeypatch, rule):
    options = training.Training(12, small.STEP, local_steps=2, batch_size=2, seeds=small.SEEDS)
    in_turn = training.train(small.PROBLEM, rule, options)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    parallel = training.train(small.PROBLEM, rule, options)
    np.testing.assert_allclose(parallel.losses, in_turn.losses, rtol=ROUNDING)
    for one, other in zip(
        jax.tree.leaves(parallel.params), jax.tree.leaves(in_turn.params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=ROUNDING, atol=ROUNDING)
