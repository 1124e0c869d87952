"""The steady rule in the replay: the library's own functions, for many small models at once.

One round is compiled, by JAX, for all step sizes and problems. Clients and places in a round are
added up to the next power of two, without anybody in them, so that most logs share one program.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats
from fedavot.audit.replay.problems import DIMENSION, Problems
from fedavot.rules._rule import Report
from fedavot.rules.steady import steady

CLIENTS, PLACES = 64, 8
"""Smallest number of clients, and of places in a round."""


class Memory:
    """What the rule keeps, for every step size and problem."""

    def __init__(self, importance: Floats, of: Problems) -> None:
        self._importance, self._of = importance, of
        self._n_clients = _rounded(importance.size, CLIENTS)
        rule = steady(np.pad(importance, (0, self._n_clients - importance.size)))
        self._hooks = (rule.aggregate, rule.correct)
        n_models = of.span.size * of.n_problems
        self._models = np.zeros((n_models, DIMENSION), dtype=np.float32)
        self._state = jax.tree.map(
            lambda leaf: np.broadcast_to(np.asarray(leaf), (n_models, *leaf.shape)),
            rule.init(self._models[0], self._n_clients),
        )
        # A round is one step of the whole span, as far as aggregation is concerned.
        self._spans = np.repeat(of.span[:, 0], of.n_problems).astype(np.float32)

    def round(self, cohort: NDArray[np.int32], updates: Floats) -> Floats:
        """Aggregate a round and return the models, shape (DIMENSION, n_steps, n_problems).

        Parameters
        ----------
        cohort : int array, shape (size,)
            The clients that train.
        updates : float array, shape (DIMENSION, n_steps, n_problems, size)
            What they return without the rule's correction.
        """
        counted = self._importance[cohort] > 0
        length = _rounded(cohort.size, PLACES)
        members = np.full(length, self._n_clients, dtype=np.int32)
        shares = np.zeros(length, dtype=np.float32)
        members[: cohort.size][counted] = cohort[counted]
        shares[: cohort.size][counted] = 1.0 / max(int(counted.sum()), 1)
        tables = [_by_model(table, length) for table in (updates, self._of.bend[..., cohort])]
        turn = (members, shares, *tables, self._spans)
        # Small arrays gain nothing on an accelerator.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            self._models, self._state = _round(self._hooks, self._models, self._state, turn)
        found = np.asarray(self._models, dtype=np.float64)
        return found.reshape(*updates.shape[1:3], DIMENSION).transpose(2, 0, 1)


def _rounded(size: int, least: int) -> int:
    """Return the next power of two, at least ``least``."""
    return max(least, 1 << (size - 1).bit_length())


def _by_model(table: Floats, length: int) -> NDArray[np.float32]:
    """Return entries by model, place and dimension, with empty places added."""
    room = [(0, 0)] * 3 + [(0, length - table.shape[3])]
    padded = np.pad(table, room).astype(np.float32).transpose(1, 2, 3, 0)
    return padded.reshape(-1, length, DIMENSION)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _round(hooks: Any, models: Any, state: Any, turn: Any) -> Any:
    aggregate, correct = hooks
    members, shares, updates, bends, spans = turn
    n_clients = jax.tree.leaves(state.last)[0].shape[1]

    def one(model: Any, own: Any, changes: Any, bend: Any, span: Any) -> Any:
        drift = jax.vmap(lambda client: correct(model, own, client))(members)
        moved = jnp.where((members < n_clients)[:, None], changes - bend * drift, 0.0)
        return aggregate(model, own, Report(members, shares, moved, None, span, 1))

    return jax.vmap(one)(models, state, updates, bends, spans)
