"""Compute weights once, use them on a server.

The file includes the clients' names, and numbers are restored bit for bit. A file that was damaged
or edited is refused.
"""

import json
from pathlib import Path

import fedavot as fa

law = fa.IndependentClients([0.3, 0.6, 0.9], clients=["ann", "bob", "cy"])
alignment = fa.align({"ann": 0.3, "bob": 0.4, "cy": 0.3}, law)
alignment.save("alignment.json")

loaded = fa.Alignment.load("alignment.json")
print(loaded)
print(loaded.weights(["cy", "ann"]).round(3), loaded.weights(["bob"]))
print("bit for bit:", (loaded.potentials == alignment.potentials).all())

content = json.loads(Path("alignment.json").read_text(encoding="utf-8"))
content["importance"][0] = 0.9
Path("alignment.json").write_text(json.dumps(content), encoding="utf-8")
try:
    fa.Alignment.load("alignment.json")
except fa.errors.FileFormatError as error:
    print("refused:", type(error).__name__)

# Prints:
# Alignment(3 clients, exact, gap 0.00%, residual 1.1e-16)
# [0.005 0.995] [1.]
# bit for bit: True
# refused: FileFormatError
