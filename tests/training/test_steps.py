"""Step schedules by their formulas, and what is no step."""

import math

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from fedavot.errors import OptionError
from fedavot.training import Training, constant, cosine, decaying, inverse_root, train

ROUNDING = 1e-12
"""Room for the order of a few operations."""

sizes = st.floats(1e-6, 1e3)
lengths = st.integers(1, 60)

FORMULAS = {
    "constant": (constant, lambda a, t, rounds, steps: a),
    "inverse root": (inverse_root, lambda a, t, rounds, steps: a / math.sqrt(rounds * steps)),
    "cosine": (cosine, lambda a, t, rounds, steps: a * math.cos(math.pi * t / (2 * rounds)) ** 2),
    "decaying": (lambda a: decaying(a, 7.5), lambda a, t, rounds, steps: 7.5 * a / (7.5 + t)),
}


@pytest.mark.parametrize("kind", FORMULAS)
@given(sizes, lengths, st.integers(1, 9))
def test_a_schedule_is_its_formula(kind, size, rounds, local_steps):
    make, formula = FORMULAS[kind]
    expected = [formula(size, t, rounds, local_steps) for t in range(rounds)]
    found = make(size)(rounds, local_steps)
    np.testing.assert_allclose(found, expected, rtol=ROUNDING)
    assert (found > 0).all()


def test_the_decay_halves_when_it_says():
    assert decaying(0.8, 5)(6, 1)[5] == pytest.approx(0.4)


@pytest.mark.parametrize("make", [constant, inverse_root, cosine, lambda size: decaying(size, 3)])
@pytest.mark.parametrize("size", [0.0, -1.0, np.nan, np.inf])
def test_a_step_that_is_not_positive_and_finite_is_refused(make, size):
    with pytest.raises(OptionError, match="step is .*; it must be finite and above 0"):
        make(size)


@pytest.mark.parametrize("scale", [0.0, -2.0, np.nan, np.inf])
def test_a_decay_needs_a_time_scale(scale):
    with pytest.raises(OptionError, match="halved_after is .*; it must be finite and above 0"):
        decaying(0.1, scale)


def test_a_step_that_is_no_number_is_refused():
    with pytest.raises(OptionError, match="step must be a number, found 'fast'"):
        constant("fast")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda rounds, local_steps: np.linspace(0, 1, rounds), "of round 1 is 0.0; in float64"),
        (lambda rounds, local_steps: [0.1, -0.1, 0.1], "step size of round 2 is -0.1"),
        (lambda rounds, local_steps: [0.1, 0.1, np.nan], "step size of round 3 is nan"),
        (lambda rounds, local_steps: [0.1], "gives 1 step sizes for 3 rounds"),
        (lambda rounds, local_steps: np.full(4, 0.1), "gives 4 step sizes for 3 rounds"),
        (lambda rounds, local_steps: np.full((3, 1), 0.1), r"one dimension, found shape \(3, 1\)"),
        (lambda rounds, local_steps: "fast", "schedule must be a sequence of numbers"),
    ],
)
def test_a_schedule_of_ones_own_is_checked(step, message):
    with pytest.raises(OptionError, match=message):
        train(small.PROBLEM, small.SHARES, small.options(3, step=step))


def test_a_step_that_vanishes_in_single_precision_is_refused():
    training = Training(2, constant(1e-60))
    assert training.step_sizes(np.dtype(np.float64)).tolist() == [1e-60, 1e-60]
    with pytest.raises(OptionError, match="round 1 is 1e-60; in float32 it must be .* above 0"):
        training.step_sizes(np.dtype(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"rounds": 2.5}, "rounds must be an integer, found 2.5"),
        ({"step": 0.1}, "step is 0.1; give a schedule, such as constant"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"record_every": 0}, "record_every is 0"),
        ({"seeds": ()}, r"seeds are \[\]; give at least one, each once"),
        ({"seeds": (1, 2, 1)}, r"seeds are \[1, 2, 1\]; give at least one, each once"),
        ({"seeds": 5}, "seeds are 5; give a sequence of integers"),
        ({"seeds": (-1,)}, "seed is -1; it must be at least 0 and at most 2147483647"),
        ({"seeds": (2**31,)}, "seed is 2147483648"),
        ({"seeds": ({"a": 1},)}, "seed must be an integer, found {'a': 1}"),
        ({"seeds": (0.5,)}, "seed must be an integer, found 0.5"),
    ],
)
def test_an_option_outside_its_range_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        Training(**{"rounds": 3, "step": constant(0.1)} | options)
