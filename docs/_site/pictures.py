"""Draw the pictures of the pages on theory: ``python docs/_site/pictures.py [FOLDER]``.

Everything in them is computed by the library. They need Matplotlib, and the last one JAX.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import fedavot as fa

COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#009E73", "#CC79A7")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
GREY = "#999999"


def main() -> None:
    """Draw all pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "figures"
    for name, draw in {
        "levels": levels,
        "cut": cut,
        "trade-off": trade_off,
        "steady": steady,
    }.items():
        figure = draw()
        figure.savefig(folder / f"{name}.png", dpi=130)
        plt.close(figure)


def levels() -> Any:
    """Return the curve of which levels are the segments, and what the levels attain."""
    importance = fa.importance.by_examples([30, 25, 20, 8, 6, 5, 4, 2])
    rates = np.array([0.12, 0.1, 0.2, 0.3, 0.35, 0.5, 0.7, 0.8])
    law = fa.IndependentClients(rates)
    found = fa.align(importance, law)
    order = np.argsort(-importance / -np.log1p(-rates))  # worst first
    wanted = np.r_[0, np.cumsum(importance[order])]
    covered = np.array([law.coverage(order[:size]) if size else 0.0 for size in range(9)])

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot([0, 1], [0, 1], ":", color=GREY, label="all that is wanted")
    left.plot(wanted, covered, "o", color="black", markersize=4, label="the first clients")
    start = 0
    for level in range(found.levels.max() + 1):
        end = start + (found.levels == level).sum()
        ends = [start, end]
        slope = (covered[end] - covered[start]) / (wanted[end] - wanted[start])
        left.plot(wanted[ends], covered[ends], color=COLOURS[level], lw=2)
        middle = wanted[ends].mean(), covered[ends].mean()
        offset = (6, -12) if level < 2 else (-60, 2)
        left.annotate(
            f"λ = {slope:.2f}", middle, offset, textcoords="offset points", color=COLOURS[level]
        )
        start = end
    left.set(xlabel="importance of the first clients", ylabel="their coverage")
    left.legend(loc="upper left", fontsize=8)

    places = np.arange(8)
    shades = [COLOURS[level] for level in found.levels[order]]
    right.bar(places - 0.2, importance[order], 0.4, color=GREY, label="wanted")
    right.bar(places + 0.2, found.attained[order], 0.4, color=shades, label="attained")
    right.set(xlabel="clients, worst first; a colour for each level", ylabel="share of the weight")
    right.set_xticks(places, order)
    right.legend(fontsize=8)
    return figure


def cut() -> Any:
    """Return a network of clients and cohorts, with the set that proves infeasibility."""
    members = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], ["c", "e"]]
    names, chances = "abcde", (0.3, 0.1, 0.2, 0.2, 0.2)
    law = fa.Cohorts(members, chances, clients=list(names))
    importance = np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    worst = set(fa.certify(importance, law).deficient_clients)
    covered = law.coverage(sorted(worst))

    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    heights = dict(zip(names, np.linspace(4, 0, 5), strict=True))
    for place, (cohort, chance) in enumerate(zip(members, chances, strict=True)):
        y = 4 - place
        met = worst & set(cohort)
        shade = COLOURS[0] if met else GREY
        for name in cohort:
            axes.plot(
                [0, 3], [heights[name], y], color=COLOURS[0] if name in worst else GREY, lw=1.2
            )
        axes.scatter(3, y, s=3000 * chance, color=shade, zorder=3)
        axes.text(3.35, y, f"{{{', '.join(cohort)}}}  {chance:.0%}", va="center")
    for name, share in zip(names, importance, strict=True):
        shade = COLOURS[0] if name in worst else GREY
        axes.scatter(0, heights[name], s=3000 * share, color=shade, zorder=3)
        axes.text(-0.45, heights[name], f"{name}  {share:.0%}", va="center", ha="right")
    wanted = sum(share for name, share in zip(names, importance, strict=True) if name in worst)
    listed = ", ".join(sorted(worst))
    title = f"{listed} should count {wanted:.0%}; rounds with any of them: {covered:.0%}"
    axes.set_title(title, fontsize=10)
    axes.set(xlim=(-1.4, 4.6), ylim=(-0.7, 4.7))
    axes.text(0, -0.65, "clients", ha="center", color=GREY)
    axes.text(3, -0.65, "cohorts", ha="center", color=GREY)
    axes.axis("off")
    return figure


def trade_off() -> Any:
    """Return the gap against the effective cohort size, for soft weights and for others."""
    n_clients, size = 100, 2
    importance = fa.importance.by_examples(np.arange(n_clients, 0, -1))
    law = fa.Cohorts(np.column_stack(np.triu_indices(n_clients, 1)))
    softness = np.geomspace(0.002, 100, 25)
    path = [fa.align(importance, law, softness=rho) for rho in (0.0, *softness)]

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(
        [100 * one.gap for one in path],
        [one.effective_cohort_size for one in path],
        ".-",
        color=COLOURS[2],
        label="soft weights",
    )
    by_importance = law.expected_weights(np.log(importance))
    pairs = np.column_stack(np.triu_indices(n_clients, 1))
    parts = importance[pairs] / importance[pairs].sum(axis=1, keepdims=True)
    marks = {
        "exact": (path[0].gap, path[0].effective_cohort_size, COLOURS[0]),
        "average by importance": (
            np.abs(by_importance - importance).sum() / 2,
            1 / (parts**2).sum(axis=1).mean(),
            COLOURS[3],
        ),
        "plain average": (
            np.abs(law.expected_weights(np.zeros(n_clients)) - importance).sum() / 2,
            size,
            COLOURS[4],
        ),
    }
    for name, (gap, effective, colour) in marks.items():
        axes.plot(100 * gap, effective, "o", color=colour, label=name)
    axes.set(xlabel="gap, %", ylabel="effective cohort size, of 2")
    axes.legend(fontsize=8)
    return figure


def steady() -> Any:
    """Return what a rare client contributes to each round, and the loss that follows."""
    import jax.numpy as jnp

    from fedavot import rules, training

    importance = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
    curvatures, targets = np.array([0.5, 1, 0.6, 0.8, 1]), np.array([3.0, -1, 0, 1, 2])
    rounds = 1200
    in_turn = [np.array([number % 5]) for number in range(rounds)]

    def parabola(params: Any, batch: Any) -> Any:
        return jnp.mean(batch[0] * (params - batch[1]) ** 2) / 2

    task = training.Task(
        "parabolas", (curvatures[:, None], targets[:, None]), parabola, lambda key: jnp.zeros(())
    )
    problem = training.Problem(task, importance, lambda rng, number: in_turn)
    how = training.Training(rounds, training.constant(0.01), record_every=5)
    best = importance @ (curvatures * targets) / (importance @ curvatures)
    least = importance @ (curvatures * (best - targets) ** 2) / 2

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    numbers = np.arange(11)
    there = numbers % 5 == 0
    fresh = np.where(there, 1.0, 0.0)
    left.bar(numbers - 0.2, fresh, 0.36, color=GREY, label="weights alone")
    left.bar(numbers + 0.2, fresh, 0.36, color=COLOURS[2], label="steady: fresh")
    left.bar(
        numbers + 0.2, importance[0] - fresh, 0.36, color=COLOURS[1], label="steady: remembered"
    )
    left.axhline(0.6, color="black", lw=0.8, ls=":", label="meant")
    left.set(xlabel="rounds; the client is there in every fifth", ylabel="what the client counts")
    left.set_xticks(numbers)
    left.set_ylim(-0.5, 1.5)
    left.legend(fontsize=8, loc="upper center", ncol=2)

    known = fa.align(importance, fa.Cohorts([[client] for client in range(5)]))
    for rule, colour, name in (
        (rules.fedavot(known), GREY, "weights alone"),
        (rules.steady(importance), COLOURS[2], "steady"),
        (rules.full(importance), "black", "full participation"),
    ):
        run = training.train(problem, rule, how)
        right.semilogy(
            run.recorded,
            run.losses[0] - least,
            color=colour,
            label=name,
            ls="--" if colour == "black" else "-",
        )
    right.set(xlabel="rounds", ylabel="loss above the least", ylim=(1e-10, 10))
    right.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main()
