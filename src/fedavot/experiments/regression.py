"""The paper's regression: 100 clients, cohorts of two, restricted availability.

* ``code``: what the authors' script does. IID data, constant step: variance decides, not bias.
* ``text``: what the paper describes. Heterogeneous clients, and an importance out of reach.
* ``feasible``: the same clients under uniform pairs, where the importance is attainable.

The paper's steps are those of the gradient Xᵀ(Xθ − y)/n of half the mean square; the loss recorded
is the mean square itself. Clients of ``text`` and ``feasible`` are drawn anew with each seed, and
their step decays, so that bias shows.
"""

from collections.abc import Sequence

from fedavot.experiments.settings import Setting, feasible, regression_code, regression_text
from fedavot.experiments.study import Case, Instance
from fedavot.rules import Rule
from fedavot.rules.catalogue import Known, build
from fedavot.training import Problem, Task, Training, constant, decaying
from fedavot.training.tasks.linear import (
    heterogeneous_regression,
    iid_regression,
    least_squares_optimum,
)

HALF = 0.5
"""From a step on half the mean square to one on the mean square."""

LOCAL_STEPS = 5

RULES = (
    *("full", "fedavot", "fedavot-variance", "fedavot-soft", "fedavot-online", "fedavot-memory"),
    *("fedavg", "importance-average", "self-normalised-ipw", "horvitz-thompson", "fedavg-k"),
)


CAPTIONS = {
    "code": "IID, constant step",
    "text": "heterogeneous, p out of reach",
    "feasible": "heterogeneous, p in reach",
}


def cases(seeds: Sequence[int], *, quick: bool = False) -> list[Case]:
    """Return the settings code, text and feasible.

    Parameters
    ----------
    seeds : sequence of int
        One run each.
    quick : bool
        A tenth of the rounds: for a look at the figures, not for their numbers.
    """
    shorter = 10 if quick else 1
    iid = iid_regression()
    code = regression_code()
    shared = (_instance(iid, code, tuple(seeds)),)
    constant_step = Training(2000 // shorter, constant(0.01 * HALF), local_steps=LOCAL_STEPS)
    falling_step = Training(
        4000 // shorter, decaying(0.02 * HALF, 1000 / shorter), local_steps=LOCAL_STEPS
    )
    found = [_case("code", code, shared, constant_step)]
    for name, setting in (("text", regression_text()), ("feasible", feasible())):
        drawn = tuple(
            _instance(heterogeneous_regression(seed=seed), setting, (seed,)) for seed in seeds
        )
        found.append(_case(name, setting, drawn, falling_step))
    return found


def rules_for(setting: Setting) -> tuple[Rule, ...]:
    """Return the rules compared on a setting whose law is known."""
    known = Known(setting.importance, setting.law)
    return tuple(build(name, known) for name in RULES)


def _instance(task: Task, setting: Setting, seeds: tuple[int, ...]) -> Instance:
    problem = Problem(task, setting.importance, setting.law.sample)
    return Instance(problem, seeds, least_squares_optimum(task, setting.importance)[1])


def _case(name: str, setting: Setting, instances: tuple[Instance, ...], training: Training) -> Case:
    return Case(
        name,
        instances,
        rules_for(setting),
        training,
        tail=training.rounds // 4 if name == "code" else training.rounds // 8,
        inclusion=setting.law.inclusion(),
        caption=CAPTIONS[name],
    )
