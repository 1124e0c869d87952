"""Weights without a log and without a law.

An online aligner weights each cohort as it arrives, and adjusts the potentials of clients that got
too much or too little weight. The gap between its mean weights and the importance falls as one over
the number of rounds.

Needs Matplotlib, which the extra `audit` installs.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedavot as fa

importance = fa.importance.by_examples(np.arange(30, 0, -1))
law = fa.IndependentClients(np.linspace(0.1, 0.6, 30))
cohorts = law.sample(np.random.default_rng(0), 3000)

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for step in (0.1, 1.0, 4.0):
    aligner = fa.OnlineAligner(importance, softness=0, around="equal", step=step)
    gaps = []
    for cohort in cohorts:
        aligner.observe(cohort)
        gaps.append(np.abs(aligner.realised - importance).sum() / 2)
    axes.loglog(np.arange(1, 3001), gaps, label=f"step {step:g}")
    print(f"step {step:g}: gap after 100 rounds {gaps[99]:.1%}, after 3,000 {gaps[-1]:.1%}")
axes.set(xlabel="rounds", ylabel="gap of the mean weights")
axes.legend()
figure.savefig("online.png", dpi=120)

# Prints:
# step 0.1: gap after 100 rounds 37.7%, after 3,000 5.8%
# step 1: gap after 100 rounds 15.9%, after 3,000 0.6%
# step 4: gap after 100 rounds 5.8%, after 3,000 0.2%
