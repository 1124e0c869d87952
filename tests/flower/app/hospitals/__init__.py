"""A Flower app whose every number can be computed again."""
