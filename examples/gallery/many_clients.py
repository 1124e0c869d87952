"""Fifty thousand clients.

A law of independent clients has 2^N cohorts, and none of them is ever listed. A certificate takes
one sort, and expected weights take one quadrature. The cost of a cohort's weights depends only on
the size of the cohort.
"""

import numpy as np

import fedavot as fa

rng = np.random.default_rng(0)
n_clients = 50_000
law = fa.IndependentClients(rng.uniform(0.001, 0.01, n_clients))
importance = fa.importance.by_examples(rng.lognormal(sigma=1.0, size=n_clients))

print("feasible:", fa.certify(importance, law).feasible)
alignment = fa.align(importance, law)
print(alignment.status, "gap below 1e-9:", alignment.gap < 1e-9)
plain = law.expected_weights(np.zeros(n_clients))
print(f"gap of the plain average {np.abs(plain - importance).sum() / 2:.1%}")
cohort = law.sample(rng, 1)[0]
weights = alignment.weights(cohort)
print(f"a cohort of {len(cohort)}: the largest weight is {weights.max():.3f}")

# Prints:
# feasible: True
# exact gap below 1e-9: True
# gap of the plain average 42.6%
# a cohort of 309: the largest weight is 0.069
