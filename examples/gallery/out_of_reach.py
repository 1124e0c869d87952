"""Train for an importance that no weights can attain.

Clients take part one at a time, and one of them has 60 % of the importance. Weights that sum to one
can give it at most a fifth, whatever the rule. Rules that remember absent clients reach the
optimum.

Needs the extra `training`.
"""

import numpy as np

import fedavot as fa
from fedavot import rules, training
from fedavot.training.tasks.linear import linear_task, optimum

importance = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
law = fa.Cohorts([[client] for client in range(5)])  # one at a time
print("feasible:", fa.certify(importance, law).feasible)

rng = np.random.default_rng(0)
features = rng.standard_normal((5, 10, 2))
targets = np.stack([x @ [1.0, client] for client, x in enumerate(features)])
task = linear_task("one at a time", list(zip(features, targets, strict=True)))
problem = training.Problem(task, importance, law.sample)
how = training.Training(2000, training.constant(0.01), seeds=range(3))
least = optimum(task, importance)[1]

aligned = rules.fedavot(fa.align(importance, law))
for rule in (rules.fedavg(), aligned, rules.mifa(importance), rules.steady(importance)):
    run = training.train(problem, rule, how)
    print(f"{rule.name:15} loss above the least {(run.tail_loss(200) - least).mean():.4f}")

# Prints:
# feasible: False
# fedavg          loss above the least 0.2918
# fedavot         loss above the least 0.2918
# mifa            loss above the least 0.0000
# fedavot-steady  loss above the least 0.0000
