"""Find the round and the client at which a run diverged.

A piece in which a model or a record of the objective is not finite is run again. Its records show
which block of rounds failed first: the blocks before it are kept, and its rounds are run one by
one, up to the first after which a model or the objective is not finite.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.training.active_run import ActiveRun, is_finite
from fedavot.training.checkpoint import Piece
from fedavot.training.rounds import Carry, client_losses, finite_updates
from fedavot.training.task import leaves


def diagnose(run: ActiveRun, failed: Piece) -> tuple[int, str]:
    """Keep the finite rounds of a failed piece.

    Return the number of the first round that is not finite, and a description of what is not finite
    and for which client and seed.
    """
    _keep_good_blocks(run, failed)
    every, last = run.training.record_every, failed.recorded[-1]
    carry, number = run.carry, run.done
    good: dict[int, Floats] = {}
    while True:
        number += 1
        after = run.advance(number - 1, number, carry)
        if not is_finite(after) or number == last:
            break
        carry, good[number] = after.carry, after.losses[:, 0]
    what = _culprit(run, carry, after)
    kept = [known for known in good if known % every == 0 or known == number - 1]
    if kept:
        run.keep(Piece(carry, np.array([good[known] for known in kept]).T, kept))
    return number, what


def _keep_good_blocks(run: ActiveRun, failed: Piece) -> None:
    """Run the blocks before the first bad record again, and keep them."""
    bad = np.flatnonzero(~np.isfinite(failed.losses).all(axis=0))
    good = int(bad[0]) if bad.size else len(failed.recorded)
    if good:
        again = run.advance(run.done, failed.recorded[good - 1])
        # A model may fail in entries that the objective does not depend on.
        if is_finite(again):
            run.keep(again)


def _culprit(run: ActiveRun, carry: Carry, after: Piece) -> str:
    """Return what is not finite after one round from a carry, for the first such seed."""
    number = after.recorded[0]
    program, clients, seeds = run.program, run.clients, run.training.seeds
    turn = run.turns(number - 1, number, ())
    answers = np.asarray(finite_updates(program, clients, run.keys, carry, turn))
    losses = np.asarray(client_losses(program.local, clients, after.carry.params))
    counted = np.asarray(clients.importance) > 0
    for at in range(run.played):
        if not all(np.isfinite(leaf[at]).all() for leaf in map(np.asarray, leaves(after.carry[0]))):
            members = run.members[at, number - 1][~answers[at]]
            if not members.size:
                return (
                    f"the aggregate is not finite (seed {seeds[at]}), though every update is: "
                    "check the rule's aggregate and weights"
                )
            who = run.task.label(members[0])
            return f"the update of client {who} is not finite (seed {seeds[at]})"
        bad = np.flatnonzero(~np.isfinite(losses[at]) & counted)
        if bad.size:
            return (
                f"the loss of client {run.task.label(bad[0])} is {losses[at, bad[0]]} "
                f"(seed {seeds[at]})"
            )
    return "the objective is not finite, though every client's loss is"
