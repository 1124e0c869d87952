"""Rules are compared on runs so small that compiling them takes most of the time."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly():
    """Compile without optimising."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
