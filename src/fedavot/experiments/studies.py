"""The studies of ``fedavot reproduce``: what each runs, and what its report says."""

from fedavot.experiments import mnist, rate, rate_results, regression, rivals
from fedavot.experiments.rivals_figure import draw_rivals
from fedavot.experiments.study import Study
from fedavot.experiments.tuned_summary import FOOT, tuned_sections
from fedavot.rules.names import RuleName

DRAWN = (
    *(RuleName.FULL, RuleName.STEADY, RuleName.FEDAVOT, RuleName.ONLINE),
    RuleName.SELECT,
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
    lambda given: regression.settings(given.seeds, quick=given.quick),
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
    lambda given: mnist.settings(given.seeds, quick=given.quick, data_dir=given.data_dir),
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
    lambda given: rate.settings(given.seeds, quick=given.quick),
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
    lambda given: rate.settings(
        given.seeds, sizes=rate.SIZES, rules=(RuleName.FEDAVOT,), quick=given.quick
    ),
    draw=rate_results.draw,
    combined=True,
    derive=rate_results.slopes,
)

_RIVALS = Study(
    "rivals",
    "Every rule at its own best steps, with availability that depends on the data",
    "Twelve settings with 100 clients of 30 images, Dirichlet(0.1) label mixes and about six "
    "clients per round (batches of 10, H = 3), five of the paper's, and two with the charging log "
    "of 300 phones if `--phones` gives it. For every rule and setting, the local step, the "
    "schedule (constant or cosine) and the server's step and momentum (0 or .9) are chosen for the "
    f"least tail loss on seeds from {rivals.TUNING} on, as many as are reported, and the grid is "
    "extended where the best choice lies at its edge. Rules that do not move the model by a change "
    "have neither a server's step nor momentum; fedavgm and fedadam keep their own. Nothing "
    "else is tuned here: rules have their defaults, their authors' variant where that serves them "
    f"better, softness {rivals.SOFTNESS:g} for fedavot-soft, "
    f"and {rivals.ASKED} clients asked by fedavot-select and f3ast. The common step is the "
    "setting's own, the same for every rule.",
    lambda given: rivals.settings(**given._asdict()),
    draw=draw_rivals,
    tuned=True,
    tables=tuned_sections,
    foot=FOOT,
)

STUDIES = {study.name: study for study in (_REGRESSION, _MNIST, _RATE, _COHORT_SIZE, _RIVALS)}
"""The studies by the name of their command."""
