"""One Hypothesis profile for every run, so that a failure here is a failure everywhere."""

import gc
import logging
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Slow or choosy generation says nothing about the library, and a busy machine would trip over it.
_PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=_PATIENT,
)
settings.register_profile(
    "thorough", deadline=None, max_examples=2_000, suppress_health_check=_PATIENT
)
# Hypothesis tries constants of whatever modules are loaded, so that what it draws would depend on
# which tests ran before in the same process.
providers._get_local_constants = lambda: providers._local_constants
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Programs that tests and commands read, and that are not imported as modules of tests.
collect_ignore = ["flower/apps"]


def pytest_collection_finish():
    """Leave what was imported and collected out of every later search for garbage.

    Tracing and compiling make so many objects that one second in eight went into such searches.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope="module")
def optimised():
    """Compile as users do, where `make test` would compile quickly."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def _log_level_of_flower():
    """Attacks on Flower silence its logger for the whole process; no other test may notice."""
    logger = logging.getLogger("flwr")
    level = logger.level
    yield
    logger.setLevel(level)
