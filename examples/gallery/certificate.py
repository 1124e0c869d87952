"""Prove that an importance is out of reach.

Each of three hospitals is online often enough by itself, but they share a network connection, so
they are online together or not at all. The certificate names them, and anyone can check it without
the solver.
"""

import fedavot as fa

clients = ["north", "east", "west", "clinic", "lab"]
together = fa.Cohorts([["north", "east", "west"], ["clinic", "lab"]], [0.4, 0.6], clients=clients)
importance = {"north": 0.25, "east": 0.2, "west": 0.15, "clinic": 0.25, "lab": 0.15}

certificate = fa.certify(importance, together)
print("feasible:", certificate.feasible)
print("deficient:", *certificate.deficient_clients)
print(f"their coverage {together.coverage(certificate.deficient):.2f}, their importance 0.60")
print(f"deficiency {certificate.deficiency:.2f}, Hall ratio {certificate.hall_ratio:.2f}")
print("verified:", certificate.verify(importance, together))
print("verified in integers:", certificate.verify(importance, together, exact=True))

# If the sites are online independently, the same importance is attainable.
apart = fa.IndependentClients([0.4, 0.4, 0.4, 0.6, 0.6], clients=clients)
print("feasible if they come one by one:", fa.certify(importance, apart).feasible)

# Prints:
# feasible: False
# deficient: north east west
# their coverage 0.40, their importance 0.60
# deficiency 0.20, Hall ratio 1.50
# verified: True
# verified in integers: True
# feasible if they come one by one: True
