"""The studies of ``fedavot reproduce``: what each runs, and what its report says."""

from fedavot.experiments import mnist, rate, rate_results, regression, rivals
from fedavot.experiments.rivals_figure import draw_rivals
from fedavot.experiments.study import Study
from fedavot.rules.names import RuleName

DRAWN = (
    *(RuleName.FULL, RuleName.FEDAVOT, RuleName.ONLINE, RuleName.MEMORY, RuleName.SELECT),
    *(RuleName.FEDAVG, RuleName.SELF_NORMALISED_IPW, RuleName.HORVITZ_THOMPSON),
    RuleName.FEDAVG_K,
)
"""Rules in the figures of curves; the others are in the tables, and close to one of these."""

_REGRESSION = Study(
    "regression",
    "Regression: 100 clients, cohorts of two",
    "`code` follows the paper's script: IID data and a constant step, where variance decides and "
    "plain averages do as well as aligned ones. `text` follows the paper's description: "
    "heterogeneous clients, and an importance no weights attain. `feasible` keeps the clients and "
    "takes uniform pairs, where the importance is attainable. In the last two the step decays, so "
    "that bias decides. The excess is the mean loss over the last quarter (`code`) or eighth of "
    "the rounds, less the least possible.",
    lambda seeds, quick, data_dir: regression.settings(seeds, quick=quick),
    drawn=DRAWN,
)

_MNIST = Study(
    "mnist",
    "MNIST, softmax regression: 100 clients, two per round",
    "`text` follows the paper's description: two digits per client and p ∝ exp(−i/10), which "
    "uniform pairs cannot attain. `code` follows its script: an IID split and p ∝ (101 − i)^4, out "
    "of reach as well. `feasible`: two digits per client and p ∝ 101 − i. Constant step .1; the "
    "loss is the importance-weighted training loss. `fedavot-select` asks two of all clients; the "
    "others are given uniform pairs.",
    lambda seeds, quick, data_dir: mnist.settings(seeds, quick=quick, data_dir=data_dir),
    drawn=DRAWN,
)

_RATE = Study(
    "rate",
    "Excess of the averaged iterate against rounds, nonsmooth losses",
    "Least absolute deviations and hinge loss of clients that differ, and absolute deviations from "
    "one model that fits all of them (sharp); p ∝ 101 − i over uniform pairs, which attain it. The "
    "step is c/√(TH) with c from the norms of the optimum and the data: an oracle's, the same for "
    "every rule. The optimum is by linear programming. Rules whose expected weights are not p "
    "level off at their bias.",
    lambda seeds, quick, data_dir: rate.settings(seeds, quick=quick),
    draw=lambda outcomes, stem: rate_results.draw(outcomes, stem, biases=rate.biases()),
    combined=True,
    derive=lambda outcomes: [*rate_results.slopes(outcomes), *rate.biases()],
)

_COHORT_SIZE = Study(
    "cohort-size",
    "Excess of FedAVOT's averaged iterate, by cohort size",
    "The same as the study of the rate, FedAVOT alone, for cohorts of 2, 5, 10, 50 and all 100 "
    "clients, with one step for all sizes. The slope is the fitted exponent of T; the spread is "
    "the largest excess over the smallest at one T.",
    lambda seeds, quick, data_dir: rate.settings(
        seeds, sizes=rate.SIZES, rules=(RuleName.FEDAVOT,), quick=quick
    ),
    draw=rate_results.draw,
    combined=True,
    derive=rate_results.slopes,
)

_RIVALS = Study(
    "rivals",
    "Every rule on MNIST, with availability that depends on the labels",
    "100 clients of 30 images, Dirichlet(0.1) label mixes, about six clients per round; batches "
    f"of 10, H = 3, constant step .1. Rounds to target count until the loss is {rivals.TARGET}; a "
    "dash means that some seed never got there. fedavot-select and f3ast ask "
    f"{rivals.ASKED} of those available, full all clients, the others everyone available. Every "
    "rule has the same step, untuned: FedAWE's echo of long absences would need a smaller one. "
    f"fedavot-soft and fedavot-memory have softness {rivals.SOFTNESS:g}, chosen after "
    "a first run on two of these settings and three of these seeds; their rivals are not tuned.",
    lambda seeds, quick, data_dir: rivals.settings(seeds, quick=quick, data_dir=data_dir),
    draw=draw_rivals,
)

STUDIES = {study.name: study for study in (_REGRESSION, _MNIST, _RATE, _COHORT_SIZE, _RIVALS)}
"""The studies by the name of their command."""
