"""Ask three of the clients that are available.

A server that may choose draws clients in proportion to their weights. The weights of their updates
then correct for what the draw has already accounted for. In expectation, every client counts by its
importance.
"""

import numpy as np

import fedavot as fa

importance = fa.importance.by_examples([50, 20, 10, 8, 6, 4, 2])
rng = np.random.default_rng(0)

total = np.zeros(7)
for _ in range(20_000):
    asked, weights = fa.select(importance, 3, rng)
    total[asked] += weights
print("importance ", importance.round(3))
print("mean weight", (total / 20_000).round(3))

uniform = fa.certify(importance, fa.UniformCohorts(7, 3))
print("with three drawn uniformly:", "feasible" if uniform.feasible else "not feasible")

asked, weights = fa.select(importance, 3, rng)
print("one draw:", asked, weights.round(3), "sum", weights.sum().round(12))

# Prints:
# importance  [0.5  0.2  0.1  0.08 0.06 0.04 0.02]
# mean weight [0.5   0.199 0.1   0.081 0.06  0.04  0.02 ]
# with three drawn uniformly: not feasible
# one draw: [0 1 2] [0.5  0.25 0.25] sum 1.0
