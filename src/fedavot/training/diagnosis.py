"""What went wrong in a run that is no longer finite: in which round, and with whom.

A piece in which a model or a record of the objective is not finite is played again. Its records
say which block of rounds went wrong first: the blocks before it are kept, and its rounds are played
one by one, up to the first that leaves a model or the objective not finite.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.training.course import Course, Piece
from fedavot.training.rounds import Carry, compiled
from fedavot.training.task import leaves


def diagnose(course: Course, failed: Piece) -> tuple[int, str]:
    """Keep the rounds of a failed piece that went well, and name the first that did not.

    Parameters
    ----------
    course : Course
        The run, which has come as far as the piece began; afterwards, as far as it went well.
    failed : Piece
        The piece.

    Returns
    -------
    number : int
        The round, counted from 1.
    what : str
        What is not finite in it, of which client and seed.
    """
    _keep_good_blocks(course, failed)
    every, last = course.training.record_every, failed.recorded[-1]
    carry, number = course.carry, course.done
    good: dict[int, Floats] = {}
    while True:
        number += 1
        after = course.advance(number - 1, number, carry)
        if not after.finite or number == last:
            break
        carry, good[number] = after.carry, after.losses[:, 0]
    what = _culprit(course, carry, after)
    kept = [known for known in good if known % every == 0 or known == number - 1]
    if kept:
        course.keep(Piece(carry, np.array([good[known] for known in kept]).T, kept))
    return number, what


def _keep_good_blocks(course: Course, failed: Piece) -> None:
    """Play the blocks before the first bad record again, and keep them."""
    bad = np.flatnonzero(~np.isfinite(failed.losses).all(axis=0))
    good = int(bad[0]) if bad.size else len(failed.recorded)
    if good:
        again = course.advance(course.done, failed.recorded[good - 1])
        # A model may fail where the objective does not depend on it.
        if again.finite:
            course.keep(again)


def _culprit(course: Course, carry: Carry, after: Piece) -> str:
    """Return what is not finite after one round from a carry, in the first seed it happens to."""
    number = after.recorded[0]
    program, clients, seeds = course.program, course.clients, course.training.seeds
    turns = course.turns(number - 1, number, (1,))
    _, answers = compiled()[1](program, clients, course.keys, carry, turns)
    losses = np.asarray(compiled()[2](program.local, clients, after.carry.params))
    counted = np.asarray(clients.importance) > 0
    for at in range(course.played):
        if not all(np.isfinite(leaf[at]).all() for leaf in map(np.asarray, leaves(after.carry[0]))):
            members = course.members[at, number - 1][~np.asarray(answers)[at, 0]]
            who = f"client {members[0]}'s update" if members.size else "the aggregate"
            return f"{who} is not finite (seed {seeds[at]})"
        bad = np.flatnonzero(~np.isfinite(losses[at]) & counted)
        if bad.size:
            return f"client {bad[0]}'s loss is {losses[at, bad[0]]} (seed {seeds[at]})"
    return "the objective is not finite, though every client's loss is"
