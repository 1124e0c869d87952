"""What a plain average really optimises.

Six sites should count by their number of examples. The larger a site is, the less often it takes
part. The expected weights of the plain average define the objective that it optimises.
"""

import numpy as np

import fedavot as fa

importance = fa.importance.by_examples([900, 700, 500, 300, 200, 100])
law = fa.IndependentClients([0.5, 0.5, 0.6, 0.7, 0.8, 0.9])

plain = law.expected_weights(np.zeros(6))  # equal potentials are equal weights
aligned = fa.align(importance, law)

print("site  meant  plain  aligned")
for site, row in enumerate(zip(importance, plain, aligned.attained, strict=True)):
    print(f"{site:4}" + "".join(f"{share:7.1%}" for share in row))
print(f"gap of the plain average {np.abs(plain - importance).sum() / 2:.1%}")
print(f"gap of the aligned weights {aligned.gap:.1%}, status {aligned.status}")

# Prints:
# site  meant  plain  aligned
#    0  33.3%  11.8%  33.3%
#    1  25.9%  11.8%  25.9%
#    2  18.5%  14.5%  18.5%
#    3  11.1%  17.4%  11.1%
#    4   7.4%  20.5%   7.4%
#    5   3.7%  23.9%   3.7%
# gap of the plain average 39.7%
# gap of the aligned weights 0.0%, status exact
