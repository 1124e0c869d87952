"""The recommendation is the one that computation with the true law calls for."""

import numpy as np
import pytest
from logs import drawn, log_of, plain_gap, scarce, slack

import fedavot as fa
from fedavot.audit.auditing import audit
from fedavot.audit.federation import Federation
from fedavot.audit.report.numerals import share

TOLERANCE = 0.05
SEEDS = range(5)


def actions(federations):
    return [audit(federation).advice.action for federation in federations]


def plain_size(law, seed=0, rounds=20_000):
    cohorts = law.sample(np.random.default_rng(seed), rounds)
    return 1 / np.mean([1 / cohort.size for cohort in cohorts])


def test_with_slack_align():
    law, importance = slack()
    exact = fa.align(importance, law)
    # The plain average is off, exact weights exist, and most of the averaging is kept.
    assert plain_gap(law, importance) > 3 * TOLERANCE
    assert fa.certify(importance, law).feasible
    assert exact.effective_cohort_size - 1 > 0.5 * (plain_size(law) - 1)
    assert actions(drawn(law, importance, 3000, seed) for seed in SEEDS) == ["align"] * 5


def test_where_clients_count_as_they_come_there_is_nothing_to_do():
    law, _ = slack()
    importance = law.expected_weights(np.zeros(law.n_clients))
    assert plain_gap(law, importance) < 1e-9
    found = actions(drawn(law, importance, 4000, seed) for seed in SEEDS)
    assert found == ["nothing to do"] * 5


def test_where_exactness_is_dear_align_softly():
    law = fa.UniformCohorts(20, 2)
    importance = fa.importance.by_examples(np.arange(21, 1, -1))
    exact = fa.align(importance, law)
    assert fa.certify(importance, law).feasible
    assert plain_gap(law, importance) > 3 * TOLERANCE
    assert exact.effective_cohort_size - 1 < 0.5
    for seed in SEEDS:
        advice = audit(drawn(law, importance, 6000, seed)).advice
        assert advice.action == "align softly"
        # Under the true law the softness is worth it: within the tolerance or nearly, and steadier.
        soft = fa.align(importance, law, softness=advice.softness)
        assert soft.gap <= 1.3 * TOLERANCE
        assert soft.effective_cohort_size >= 1.1 * exact.effective_cohort_size


def test_where_a_scarce_group_is_out_of_reach_use_memory():
    law, importance = scarce()
    assert fa.certify(importance, law).deficiency > 3 * TOLERANCE
    assert actions(drawn(law, importance, 2000, seed) for seed in SEEDS) == ["use memory"] * 5


def test_where_the_scarce_are_available_and_not_asked_change_the_selection():
    n_clients, rounds = 40, 1500
    importance = np.full(n_clients, 0.5 / 36)
    importance[:4] = 0.5 / 4
    online = fa.IndependentClients(np.full(n_clients, 0.5))
    uniform_pairs = fa.UniformCohorts(n_clients, 2)
    # Two drawn of twenty available cannot do it; all who are available can.
    assert fa.certify(importance, uniform_pairs).deficiency > 3 * TOLERANCE
    assert fa.certify(importance, online).feasible
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        there = online.sample(rng, rounds)
        asked = [np.sort(rng.choice(row, size=min(2, row.size), replace=False)) for row in there]
        log = log_of(asked, n_clients, available=there, all_available=True)
        found = audit(Federation(log, importance))
        assert found.advice.action == "change selection"
        chosen, plain = (found.price.of(rule) for rule in ("fedavot-select", "fedavg"))
        assert chosen.held_out_gap.value < plain.held_out_gap.value / 4


def test_a_log_too_short_to_tell_needs_more_rounds():
    law, importance = slack()
    advice = [audit(drawn(law, importance, 25, seed)).advice for seed in SEEDS]
    assert [one.action for one in advice] == ["collect more rounds"] * 5
    # As many rounds as it asks for do tell.
    assert audit(drawn(law, importance, advice[0].rounds_needed, 0)).advice.action == "align"


def test_noise_over_many_clients_is_not_called_a_gap():
    law = fa.IndependentClients(np.full(400, 0.02))
    federations = (drawn(law, fa.importance.uniform(400), 200, seed) for seed in SEEDS)
    assert actions(federations) == ["collect more rounds"] * 5


def test_where_availability_turns_weights_are_learned_on_the_way():
    rates = np.linspace(0.05, 0.6, 24)
    early, late = fa.IndependentClients(rates), fa.IndependentClients(rates[::-1])
    importance = fa.importance.uniform(24)
    fixed = fa.align(importance, early)
    # Weights fixed by the past are worse than none at all once availability has turned.
    past = late.expected_weights(fixed.potentials, fixed.levels)
    assert np.abs(past - importance).sum() / 2 > plain_gap(late, importance) + TOLERANCE
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        cohorts = early.sample(rng, 1600) + late.sample(rng, 800)
        found = audit(Federation(log_of(cohorts, 24), importance))
        assert found.advice.action == "align"
        assert found.advice.online
        learned, plain = (found.price.of(rule) for rule in ("fedavot-online", "fedavg"))
        assert learned.held_out_gap.value < plain.held_out_gap.value / 2


def test_weights_already_in_use_that_do_it_leave_nothing_to_do():
    law, importance = slack()
    cohorts = law.sample(np.random.default_rng(0), 3000)
    aligned = fa.align(importance, law)
    applied = np.concatenate([aligned.weights(cohort) for cohort in cohorts])
    found = audit(Federation(log_of(cohorts, 30, applied=applied), importance))
    assert found.gap.low > TOLERANCE
    assert found.advice.action == "nothing to do"
    assert found.advice.rule == "as-applied"


def test_memory_is_not_offered_for_clients_that_never_took_part():
    # There is no last update of client 3 to remember.
    federation = Federation(log_of([[0, 1], [1, 2]] * 60, 4), np.array([0.03, 0.04, 0.03, 0.9]))
    advice = audit(federation).advice
    assert advice.action == "change selection"
    assert "never took part" in advice.reason


def test_a_client_that_never_took_part_counts_in_full_even_if_its_state_is_often_unknown():
    unknown = [[], [3]] * 60
    log = log_of([[0, 1], [1, 2]] * 60, 4, unknown=unknown)
    found = audit(Federation(log, np.array([0.2, 0.2, 0.2, 0.4])))
    assert found.by_client.owed[3] == pytest.approx(0.2)
    assert found.advice.action == "change selection"
    assert f"1 client with {share(0.4)} of the importance never took part" in found.advice.reason


def test_where_weights_change_nothing_they_are_not_the_answer():
    # Cohorts of one: every rule is the plain average.
    law = fa.Cohorts([[i] for i in range(8)], [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])
    importance = fa.importance.uniform(8)
    assert fa.align(importance, law).gap == pytest.approx(plain_gap(law, importance))
    found = actions(drawn(law, importance, 500, seed) for seed in SEEDS)
    assert found == ["use memory"] * 5


def test_where_the_server_has_a_choice_and_weights_are_dear_change_the_selection():
    online = fa.IndependentClients(np.full(20, 0.6))
    importance = fa.importance.by_examples(np.arange(21, 1, -1))
    rng = np.random.default_rng(0)
    there = online.sample(rng, 3000)
    asked = [np.sort(rng.choice(row, size=min(2, row.size), replace=False)) for row in there]
    log = log_of(asked, 20, available=there, all_available=True)
    found = audit(Federation(log, importance))
    assert found.reach.feasible or found.reach.deficiency.value < TOLERANCE
    chosen, soft = (found.price.of(rule) for rule in ("fedavot-select", "fedavot-soft"))
    assert chosen.held_out_gap.value < soft.held_out_gap.value
    assert chosen.effective_cohort_size > 1.2 * soft.effective_cohort_size
    assert found.advice.action == "change selection"


def test_weights_in_use_that_are_off_are_not_excused_by_the_plain_average():
    law = fa.IndependentClients(np.full(10, 0.4))
    cohorts = law.sample(np.random.default_rng(0), 3000)
    squares = np.arange(1, 11.0) ** 2
    applied = np.concatenate([squares[row] / squares[row].sum() for row in cohorts])
    log = log_of(cohorts, 10, applied=applied)
    found = audit(Federation(log, fa.importance.uniform(10)))
    assert found.price.of("as-applied").gap > 3 * TOLERANCE
    assert found.advice.action == "align"
    in_use = share(found.price.of("as-applied").gap)
    assert found.advice.reason.split(".")[0].count(in_use) == 1


def test_a_change_late_in_the_log_is_not_called_chance():
    even, skewed = fa.IndependentClients(np.full(24, 0.3)), np.linspace(0.05, 0.6, 24)
    importance = fa.importance.uniform(24)
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        cohorts = even.sample(rng, 1600) + fa.IndependentClients(skewed).sample(rng, 400)
        advice = audit(Federation(log_of(cohorts, 24), importance)).advice
        assert (advice.action, advice.online) == ("align", True)


def test_where_little_is_observed_nothing_is_judged():
    unknown = [[1, 2, 3, 4, 5, 6, 7]] * 60
    log = log_of([[0]] * 60, 8, unknown=unknown)
    found = audit(Federation(log, fa.importance.uniform(8)))
    assert found.advice.action == "collect more rounds"
    assert "observed" in found.advice.reason


@pytest.mark.parametrize("tolerance", [0.02, 0.3])
def test_the_tolerance_is_the_callers(tolerance):
    law, importance = slack()
    found = audit(drawn(law, importance, 3000, 0), tolerance=tolerance)
    gap = plain_gap(law, importance)
    assert found.advice.action == ("nothing to do" if tolerance > 1.2 * gap else "align")
