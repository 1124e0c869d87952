"""Many step sizes at once: the same rounds with every choice of local step, server step, momentum.

One compiled program trains all choices and seeds side by side, which on an accelerator takes little
longer than one of them. A run that diverges does not affect the others.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedavot._checks import Floats
from fedavot.errors import OptionError
from fedavot.rules._rule import Rule
from fedavot.rules.optimisers import with_server
from fedavot.training.engine import precision, prepare
from fedavot.training.options import StepSchedule, Training
from fedavot.training.rounds import Carry, ClientData, Own, Program, Turn, advance
from fedavot.training.task import Problem, leaves

MEMORY = 2**31
"""Largest number of bytes of models and memories that are trained side by side."""
WIDTH = 8
"""The number of places in a padded round is a multiple of this."""


class Steps(NamedTuple):
    """A choice: the schedule of local steps, and the server's step and momentum."""

    local: StepSchedule
    server: float = 1.0
    momentum: float = 0.0


def sweep(problem: Problem, rule: Rule, training: Training, choices: Sequence[Steps]) -> Floats:
    """Train with every choice of steps and return the objective as it was recorded.

    Parameters
    ----------
    problem : Problem
        Task, importance and availability.
    rule : Rule
        The rule. It must move the model by a change if a choice has a server step or momentum; see
        `with_server`.
    training : Training
        Rounds, batches and seeds; its step is not used. ``record_every`` must divide the rounds.
    choices : sequence of Steps
        The choices, at least one.

    Returns
    -------
    ndarray of shape (n_choices, n_seeds, n_records)
        The recorded objective; infinite or NaN where a run diverged.
    """
    if not choices or training.rounds % training.record_every:
        raise OptionError(
            f"a sweep of {len(choices)} choices over {training.rounds} rounds with records every "
            f"{training.record_every}; give at least one choice, and records that end with a round"
        )
    if not rule.moves and all(choice[1:] == (1.0, 0.0) for choice in choices):
        rules = [rule] * len(choices)
    else:
        # Step and momentum are part of the state: one program serves all choices.
        rules = [with_server(rule, step=step, momentum=momentum) for _, step, momentum in choices]
    n_clients, dtype = problem.task.n_clients, problem.task.dtype
    trainings = [dataclasses.replace(training, step=choice.local) for choice in choices]
    first = prepare(problem, rules[0], trainings[0])
    blocks = (training.rounds // training.record_every, training.record_every)
    steps = np.stack([one.step_sizes(dtype) for one in trainings]).reshape(len(choices), *blocks)
    shared, own = first.turns(0, training.rounds, blocks)
    if first.program.padded:
        # To a length that other seeds share, so that one compiled program serves all.
        room = [(0, 0)] * (own.members.ndim - 1) + [(0, -own.members.shape[-1] % WIDTH)]
        members = np.pad(own.members, room, constant_values=n_clients)
        own = Own(members, np.pad(own.weights, room))
    start = first.carry.params
    together = max(1, MEMORY // max(1, sum(leaf.nbytes for leaf in leaves(first.carry))))
    losses = []
    with precision(problem.task):
        for at in range(0, len(choices), together):
            states = [
                jax.vmap(lambda params, one=one: one.init(params, n_clients))(start)
                for one in rules[at : at + together]
            ]
            state = jax.tree.map(lambda *leaf: jnp.stack(leaf), *states)
            some = (state, steps[at : at + together])
            inputs = (first.program, first.clients, first.keys, start, some, (shared, own))
            losses.append(np.asarray(_side_by_side(*inputs), dtype=np.float64))
    all_losses = np.concatenate(losses)
    return np.broadcast_to(all_losses, (len(choices), len(training.seeds), all_losses.shape[2]))


@functools.partial(jax.jit, static_argnums=0)
def _side_by_side(
    program: Program, clients: ClientData, keys: Any, start: Any, choices: Any, turns: Turn
) -> Any:
    """Return the objective of every choice, of states and steps, and seed after each block."""

    def one(state: Any, steps: Any) -> Any:
        own_turns = turns[0]._replace(step=steps), turns[1]
        return advance(program, clients, keys, Carry(start, start, state), own_turns)[1]

    return jax.vmap(one)(*choices)
