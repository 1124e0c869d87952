"""Schedules of step sizes: each gives one local step size per round."""

from collections.abc import Callable

import numpy as np

from fedavot._checks import Floats, as_amount

StepSchedule = Callable[[int, int], Floats]
"""A function of (rounds, local_steps) that gives the step size of every round."""


def constant(step: float) -> StepSchedule:
    """Return η_t = step.

    Parameters
    ----------
    step : float
        The step size of every round, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    return lambda rounds, local_steps: np.full(rounds, size)


def inverse_root(step: float) -> StepSchedule:
    """Return η_t = step/√(T H): the step of the O(1/√T) theorem, T rounds of H local steps.

    Parameters
    ----------
    step : float
        The step size of a single round of one local step, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    return lambda rounds, local_steps: np.full(rounds, size / np.sqrt(rounds * local_steps))


def decaying(step: float, halved_after: float) -> StepSchedule:
    """Return η_t = step/(1 + t/τ), with τ = ``halved_after`` rounds.

    Parameters
    ----------
    step : float
        The step size of the first round, above 0.
    halved_after : float
        Number of rounds after which the step size is half of that, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    scale = as_amount(halved_after, what="halved_after", positive=True)
    return lambda rounds, local_steps: size / (1.0 + np.arange(rounds) / scale)


def cosine(step: float) -> StepSchedule:
    """Return η_t = step (1 + cos(π t/T))/2, decreasing from step to nearly zero.

    Parameters
    ----------
    step : float
        The step size of the first round, above 0.
    """
    size = as_amount(step, what="step", positive=True)
    return lambda rounds, local_steps: (
        size * (1.0 + np.cos(np.pi * np.arange(rounds) / rounds)) / 2.0
    )
