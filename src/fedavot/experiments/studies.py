"""The studies of ``fedavot reproduce``: what each runs, and what its page says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedavot.experiments import mnist, rate, rate_results, regression, rivals
from fedavot.experiments.report import Page
from fedavot.experiments.rivals_figure import draw_rivals
from fedavot.experiments.study import Case

DRAWN = (
    *("full", "fedavot", "fedavot-online", "fedavot-memory", "fedavot-select"),
    *("fedavg", "self-normalised-ipw", "horvitz-thompson", "fedavg-k"),
)
"""Rules in the figures of curves; the others are in the tables, close to one of these."""


@dataclass(frozen=True)
class Options:
    """What a user may choose of a study."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    quick: bool = False
    data_dir: Path | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """A page and the cases behind it."""

    page: Page
    cases: Callable[[Options], list[Case]]


_REGRESSION = Page(
    "regression",
    "Regression: 100 clients, cohorts of two",
    "`code` is what the paper's script does: IID data and a constant step, where variance decides "
    "and plain averages do as well as aligned ones. `text` is what the paper describes: "
    "heterogeneous clients, and an importance no weights attain. `feasible` keeps the clients and "
    "takes uniform pairs, where the importance is attainable. In the last two the step decays, so "
    "that bias decides. The excess is the mean loss over the last quarter (`code`) or eighth of "
    "the rounds, less the least possible.",
    drawn=DRAWN,
)

_MNIST = Page(
    "mnist",
    "MNIST, softmax regression: 100 clients, two a round",
    "`text` is what the paper describes: two digits a client and p ∝ exp(−i/10), which uniform "
    "pairs cannot attain. `code` is what its script does: an IID split and p ∝ (101 − i)^4, out of "
    "reach as well. `feasible`: two digits a client and p ∝ 101 − i. Constant step .1; the loss is "
    "the importance-weighted training loss. `fedavot-select` asks two of all clients; the others "
    "are given uniform pairs.",
    drawn=DRAWN,
)

_RATE = Page(
    "rate",
    "Excess of the averaged iterate against rounds, nonsmooth losses",
    "Least absolute deviations and hinge loss of clients that differ, and absolute deviations from "
    "one model that fits all of them (sharp); p ∝ 101 − i over uniform pairs, which attain it. The "
    "step is c/√(TH) with c from the norms of the optimum and the data: an oracle's, the same for "
    "every rule. The optimum is by linear programming. Rules whose expected weights are not p "
    "level off at their bias.",
    draw=lambda outcomes, stem: rate_results.draw_rate(outcomes, stem, biases=rate.biases()),
    combined=True,
    derive=lambda outcomes: [*rate_results.slopes(outcomes), *rate.biases()],
)

_COHORT_SIZE = Page(
    "cohort-size",
    "Excess of FedAVOT's averaged iterate, by cohort size",
    "The same as the study of the rate, FedAVOT alone, for cohorts of 2, 5, 10, 50 and all 100 "
    "clients, with one step for all sizes. The slope is the fitted exponent of T; the spread is "
    "the largest excess over the smallest at one T.",
    draw=rate_results.draw_cohort_size,
    combined=True,
    derive=rate_results.slopes,
)

_RIVALS = Page(
    "rivals",
    "Every rule on MNIST, availability following the labels",
    "100 clients of 30 images, Dirichlet(0.1) label mixes, about six clients a round; batches of "
    f"10, H = 3, constant step .1. Rounds to target count until the loss is {rivals.TARGET}; a "
    "dash means that some seed never got there. fedavot-select and f3ast ask "
    f"{rivals.ASKED} of those available, full all clients, the others everyone available. Every "
    "rule has the same step, untuned: FedAWE's echo of long absences would need a smaller one. "
    f"fedavot-soft and fedavot-memory have softness {rivals.SOFTNESS:g}, chosen after "
    "a first run on two of these settings and three of these seeds; their rivals are not tuned.",
    draw=draw_rivals,
)

STUDIES = {
    "regression": Study(
        _REGRESSION, lambda chosen: regression.cases(chosen.seeds, quick=chosen.quick)
    ),
    "mnist": Study(
        _MNIST,
        lambda chosen: mnist.cases(chosen.seeds, quick=chosen.quick, data_dir=chosen.data_dir),
    ),
    "rate": Study(_RATE, lambda chosen: rate.rate_cases(chosen.seeds, quick=chosen.quick)),
    "cohort-size": Study(
        _COHORT_SIZE, lambda chosen: rate.cohort_size_cases(chosen.seeds, quick=chosen.quick)
    ),
    "rivals": Study(
        _RIVALS,
        lambda chosen: rivals.cases(chosen.seeds, quick=chosen.quick, data_dir=chosen.data_dir),
    ),
}
"""By the name of the command."""
