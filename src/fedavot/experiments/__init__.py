"""The paper's settings and the studies built on them."""
