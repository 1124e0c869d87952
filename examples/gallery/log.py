"""From a log of who took part to weights, judged on rounds that they have not seen.

The first 100 rounds of a log give two laws: the list of its cohorts, and independent clients with
the same participation rates. The 900 rounds after them show how well the weights generalise.
"""

import numpy as np

import fedavot as fa

rng = np.random.default_rng(0)
rates = np.linspace(0.05, 0.4, 40)
rounds = fa.IndependentClients(rates).sample(rng, 1_000)
past, future = rounds[:100], rounds[100:]

number = np.repeat(np.arange(100), [len(cohort) for cohort in past])
listed = fa.Cohorts.from_log(number, np.concatenate(past), n_clients=40)
counted = fa.IndependentClients(listed.inclusion())

importance = fa.importance.uniform(40)
for name, law in (("the list of cohorts", listed), ("independent clients", counted)):
    alignment = fa.align(importance, law)
    mean = np.zeros(40)
    for cohort in future:
        mean[cohort] += alignment.weights(cohort) / len(future)
    gap = np.abs(mean - importance).sum() / 2
    print(f"{name}: gap on its own rounds {alignment.gap:.1%}, on later ones {gap:.1%}")
plain = fa.Cohorts(future, n_clients=40).expected_weights(np.zeros(40))
print(f"plain average: gap on the later rounds {np.abs(plain - importance).sum() / 2:.1%}")

# Prints:
# the list of cohorts: gap on its own rounds 0.0%, on later ones 9.4%
# independent clients: gap on its own rounds 0.0%, on later ones 9.1%
# plain average: gap on the later rounds 20.7%
