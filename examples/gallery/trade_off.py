"""Exactness against variance.

Exact weights are uneven, and uneven weights average out less noise. Softness trades exactness for
less variance. The figure has one curve for each cohort size: as cohorts grow, exactness costs less.

Needs Matplotlib, which the extra `audit` installs.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedavot as fa

importance = fa.importance.by_examples(np.arange(50, 0, -1))
softness = np.geomspace(0.003, 30, 13)

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for size in (2, 5, 10):
    law = fa.UniformCohorts(50, size)
    found = [fa.align(importance, law, softness=rho) for rho in (0, *softness)]
    gaps = [100 * one.gap for one in found]
    efficiency = [100 * one.effective_cohort_size / size for one in found]
    axes.plot(gaps, efficiency, ".-", label=f"cohorts of {size}")
    print(f"cohorts of {size}: exact weights are worth {efficiency[0]:.0f} % of the cohort")
axes.set(xlabel="gap, %", ylabel="effective size, % of the cohort")
axes.legend()
figure.savefig("trade_off.png", dpi=120)

# Prints:
# cohorts of 2: exact weights are worth 56 % of the cohort
# cohorts of 5: exact weights are worth 71 % of the cohort
# cohorts of 10: exact weights are worth 74 % of the cohort
