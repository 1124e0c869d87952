"""Phones that charge at night, in three time zones.

Availability depends on the hour, and clients of one zone are available together. A mixture has one
law for each part of the day. Weights fitted to the inclusion probabilities alone miss the
importance.
"""

import numpy as np

import fedavot as fa

zones = np.repeat([0, 1, 2], 10)  # Asia, Europe, America: ten phones each
states = [
    fa.IndependentClients([0.5 if zone == dark else 0.02 for zone in zones]) for dark in range(3)
]
law = fa.Mixture(states, [0.2, 0.3, 0.5])  # America's night is half of the rounds

importance = fa.importance.by_group(zones, {0: 0.2, 1: 0.4, 2: 0.4})
flat = fa.IndependentClients(law.inclusion() * law.nonempty)

for name, shares in {
    "meant": importance,
    "plain average": law.expected_weights(np.zeros(30)),
    "flat law's weights": law.expected_weights(fa.align(importance, flat).potentials),
    "mixture's weights": fa.align(importance, law).attained,
}.items():
    print(f"{name:18}", np.bincount(zones, shares).round(3))

# Prints:
# meant              [0.2 0.4 0.4]
# plain average      [0.214 0.303 0.483]
# flat law's weights [0.211 0.322 0.466]
# mixture's weights  [0.2 0.4 0.4]
