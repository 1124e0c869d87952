"""The studies give the published figures, at full size and over five seeds."""

import dataclasses

import numpy as np
import pytest

from fedavot.experiments import mnist, regression, rivals
from fedavot.experiments.running import conduct
from fedavot.rules.names import RuleName

pytestmark = pytest.mark.usefixtures("optimised")  # the runs are long

SEEDS = range(5)

WITHIN = 0.003
"""How far a tail loss of `code` may be from its figure: some five standard errors."""

CODE = {"full": 0.3165, "fedavot": 0.3463, "fedavg": 0.3394, "self-normalised-ipw": 0.3391}
"""THEORY.md, section 9."""

SIZES = {
    "feasible": {
        "full": 3.27e-5,
        "fedavot": 0.079,
        "fedavg": 1.22,
        "self-normalised-ipw": 0.30,
        "horvitz-thompson": 0.050,
        "fedavg-k": 118.0,
        "fedavot-steady": 3.29e-5,
    },
    "text": {
        "full": 3.27e-5,
        "fedavot": 1.65,
        "fedavg": 4.90,
        "self-normalised-ipw": 2.23,
        "fedavg-k": 27.0,
    },
}
"""THEORY.md, section 10. Two of its figures are no sizes to meet: Horvitz–Thompson in `text` varies
by its own size from seed to seed (1.18 ± 1.2), and memory does better there than its .0023. The
steady rule is held to the figures of FedAVOT with memory."""

FACTOR = 2.0
"""Data are drawn at random, and other draws give sizes within this."""


def excess(outcomes, setting):
    return {one.rule: one.mean("excess") for one in outcomes if one.setting == setting}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regression")
    wanted = {*CODE, *SIZES["text"], *SIZES["feasible"]}
    settings = [
        dataclasses.replace(
            setting, rules=tuple(rule for rule in setting.rules if rule.name in wanted)
        )
        for setting in regression.settings(SEEDS)
    ]
    return conduct(settings, folder, progress=lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("rule", CODE)
def test_regression_code_ends_at_the_published_loss(outcomes, rule):
    (ours,) = [one for one in outcomes if (one.setting, one.rule) == ("code", rule)]
    assert ours.mean("tail_loss") == pytest.approx(CODE[rule], abs=WITHIN)


@pytest.mark.slow
def test_fedavg_k_as_in_the_paper_does_not_learn_regression_code(outcomes):
    (ours,) = [one for one in outcomes if (one.setting, one.rule) == ("code", "fedavg-k")]
    assert ours.mean("tail_loss") > 1e4


@pytest.mark.slow
@pytest.mark.parametrize("setting", SIZES)
def test_heterogeneous_regression_has_the_published_sizes_and_their_order(outcomes, setting):
    found, published = excess(outcomes, setting), SIZES[setting]
    for rule, size in published.items():
        assert size / FACTOR < found[rule] < size * FACTOR, rule
    # The steady rule's figure and full participation's differ by less than either from its draw.
    stateless = [rule for rule in published if rule != "fedavot-steady"]
    assert sorted(stateless, key=found.get) == sorted(stateless, key=published.get)


@pytest.mark.slow
def test_memory_closes_the_gap_to_full_participation(outcomes):
    feasible, text = excess(outcomes, "feasible"), excess(outcomes, "text")
    assert feasible["fedavot-steady"] <= 1.05 * feasible["full"]
    assert text["fedavot-steady"] <= 0.01 * text["fedavot"]


@pytest.mark.slow
def test_mnist_text_is_within_reach_of_selection_and_memory_but_not_of_weights(tmp_path):
    wanted = ("full", "fedavot", "fedavot-select", "fedavot-steady", "fedavg")
    (text,) = [setting for setting in mnist.settings(SEEDS) if setting.name == "text"]
    rules = tuple(rule for rule in text.rules if rule.name in wanted)
    held = conduct([dataclasses.replace(text, rules=rules)], tmp_path, progress=lambda *_: None)
    final = {one.rule: one.mean("final_loss") for one in held}
    tail = {one.rule: one.mean("tail_loss") for one in held}
    # One seed's figures are .0215 full, .0230 selected, .0209 with memory, .0423 and .0778.
    assert final["full"] == pytest.approx(0.0215, rel=0.15)
    assert final["fedavot-select"] <= 1.10 * final["full"]
    assert final["fedavot-steady"] <= 1.05 * final["full"]
    # Over the last rounds, for a single round of these two is noise.
    share = (tail["fedavot"] - tail["full"]) / (tail["fedavg"] - tail["full"])
    assert 0.35 < share < 0.65


def test_rivals_meet_the_availability_they_are_said_to():
    settings = rivals.settings([0, 1], quick=True)
    uneven, papers = settings[:12], settings[12:]
    assert [setting.name for setting in uneven] == [
        f"{model}, {kind}, {name} p"
        for model in ("softmax", "network")
        for kind in ("stationary", "sine", "interleaved")
        for name in ("uniform", "skewed")
    ]
    assert [setting.name for setting in papers] == [*rivals.LAWS]
    for setting in settings:
        assert {rule.name for rule in setting.rules} == set(RuleName)
        reported, tuned = (
            [seed for one in instances for seed in one.seeds]
            for instances in (setting.instances, setting.tuning)
        )
        assert reported == [0, 1]
        assert tuned == [rivals.TUNING, rivals.TUNING + 1]
    for setting in uneven[:6]:
        cohorts = setting.instances[0].problem.availability(_rng(), 40_000)
        seen = sum(cohort.size for cohort in cohorts) / len(cohorts)
        assert seen == pytest.approx(setting.inclusion.sum(), rel=0.02)
    half = rivals.PERIOD // 2
    cohorts = uneven[5].instances[0].problem.availability(_rng(), 4 * rivals.PERIOD)
    day = {int(client) for at in range(half) for client in cohorts[at]}
    night = {int(client) for at in range(half, 2 * half) for client in cohorts[at]}
    assert day
    assert night
    assert not day & night


def _rng():
    return np.random.default_rng(0)
