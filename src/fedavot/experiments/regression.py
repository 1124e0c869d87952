"""The paper's regression: 100 clients, cohorts of two, restricted availability.

* ``code``: as in the authors' script. IID data, constant step: variance decides, not bias.
* ``text``: as the paper describes it. Heterogeneous clients, and an importance out of reach.
* ``feasible``: the same clients under uniform pairs, where the importance is attainable.

The paper's step sizes are for the gradient Xᵀ(Xθ − y)/n of half the mean square; the loss recorded
is the mean square itself. Clients of ``text`` and ``feasible`` are drawn anew with each seed, and
the step decays, so that the bias shows.
"""

from collections.abc import Sequence

from fedavot.experiments.paper import Given, feasible, regression_code, regression_text
from fedavot.experiments.study import Instance, Setting
from fedavot.rules import Known, build
from fedavot.training import Problem, Task, Training, constant, decaying
from fedavot.training.tasks.linear import heterogeneous_regression, iid_regression, optimum

HALF = 0.5
"""Converts a step size for half the mean square to one for the mean square."""

LOCAL_STEPS = 5

RULES = (
    *("full", "fedavot-steady", "fedavot", "fedavot-variance", "fedavot-soft", "fedavot-online"),
    *("fedavg", "importance-average", "self-normalised-ipw", "horvitz-thompson", "fedavg-k"),
)


CAPTIONS = {
    "code": "IID, constant step",
    "text": "heterogeneous, p out of reach",
    "feasible": "heterogeneous, p in reach",
}


def settings(seeds: Sequence[int], *, quick: bool = False) -> list[Setting]:
    """Return the settings code, text and feasible."""
    shorter = 10 if quick else 1
    code = regression_code()
    shared = (_instance(iid_regression(), code, tuple(seeds)),)
    constant_step = Training(2000 // shorter, constant(0.01 * HALF), local_steps=LOCAL_STEPS)
    falling_step = Training(
        4000 // shorter, decaying(0.02 * HALF, 1000 / shorter), local_steps=LOCAL_STEPS
    )
    found = [_setting("code", code, shared, constant_step)]
    for name, given in (("text", regression_text()), ("feasible", feasible())):
        drawn = tuple(
            _instance(heterogeneous_regression(seed=seed), given, (seed,)) for seed in seeds
        )
        found.append(_setting(name, given, drawn, falling_step))
    return found


def _instance(task: Task, given: Given, seeds: tuple[int, ...]) -> Instance:
    importance, law = given
    problem = Problem(task, importance, law.sample)
    return Instance(problem, seeds, optimum(task, importance)[1])


def _setting(
    name: str, given: Given, instances: tuple[Instance, ...], training: Training
) -> Setting:
    known = Known(*given)
    return Setting(
        name,
        instances,
        tuple(build(rule, known) for rule in RULES),
        training,
        tail=training.rounds // 4 if name == "code" else training.rounds // 8,
        inclusion=given[1].inclusion(),
        caption=CAPTIONS[name],
    )
