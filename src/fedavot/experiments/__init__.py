"""The paper's settings and the studies built on them."""

from fedavot._checks import require

require("experiments", "jax", "matplotlib", by="fedavot.experiments")
