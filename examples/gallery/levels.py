"""The nearest importance, when the one you want is out of reach.

Clients at level 0 get all the weight of every round that any of them is in. The next level gets
the weight of the rounds without them, and so on. Within a level, all clients attain the same
fraction of the importance they should have.
"""

import numpy as np

import fedavot as fa

importance = fa.importance.by_examples([40, 30, 10, 10, 5, 5])
law = fa.IndependentClients([0.1, 0.2, 0.3, 0.5, 0.7, 0.9])

nearest = fa.align(importance, law)
print(nearest.status, f"gap {nearest.gap:.1%}")
print("client  level  wanted  attained  attained/wanted")
for client in range(6):
    wanted, attained = nearest.importance[client], nearest.attained[client]
    row = f"{client:6} {nearest.levels[client]:6} {wanted:7.1%} {attained:9.1%}"
    print(row, f"{attained / wanted:16.2f}")

for cohort in ([0, 3, 5], [1, 4], [3, 4, 5]):
    print(cohort, np.round(nearest.weights(cohort), 3))

# Prints:
# nearest gap 41.8%
# client  level  wanted  attained  attained/wanted
#      0      0   40.0%     10.1%             0.25
#      1      1   30.0%     18.1%             0.60
#      2      2   10.0%     21.8%             2.18
#      3      3   10.0%     25.0%             2.50
#      4      3    5.0%     12.5%             2.50
#      5      3    5.0%     12.5%             2.50
# [0, 3, 5] [1. 0. 0.]
# [1, 4] [1. 0.]
# [3, 4, 5] [0.981 0.013 0.007]
