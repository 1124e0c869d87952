"""The audit as a whole: it agrees with the core, repeats itself, and bears odd logs."""

import json

import numpy as np
import pytest

import fedavot as fa
from fedavot.audit.auditing import STAGES, audit
from fedavot.audit.federation import Federation
from fedavot.audit.report.document import findings_document
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.price import effective, gap
from fedavot.audit.statistics.rules import weights_of
from fedavot.audit.statistics.window import whole
from fedavot.errors import OptionError
from logs import drawn, log_of, scarce, slack


@pytest.fixture(scope="module")
def case():
    law, importance = scarce()
    federation = drawn(law, importance, 900, 0)
    return federation, audit(federation)


def cohorts_of(federation):
    log = federation.participation
    return [log.cohort(t) for t in range(log.n_rounds)]


def test_implied_and_attained_importance_are_the_means_of_weights(case):
    federation, found = case
    cohorts = cohorts_of(federation)
    law = fa.Cohorts(cohorts, n_clients=30)
    assert np.allclose(found.by_client.implied, law.expected_weights(np.zeros(30)))
    nearest = fa.align(federation.importance, law)
    assert np.allclose(found.by_client.attained, nearest.attained, atol=1e-6)
    assert found.reach.deficiency.value == pytest.approx(nearest.gap, abs=1e-7)
    assert found.gap.value == pytest.approx(
        np.abs(found.by_client.implied - federation.importance).sum() / 2
    )


def test_the_curve_is_alignments_own(case):
    federation, found = case
    law = fa.Cohorts(cohorts_of(federation), n_clients=30)
    for point in found.price.curve[::3]:
        aligned = fa.align(federation.importance, law, softness=point.softness)
        assert point.gap == pytest.approx(aligned.gap, abs=1e-6)
        assert point.effective_cohort_size == pytest.approx(aligned.effective_cohort_size, rel=1e-5)


def test_every_rule_is_what_its_formula_gives_round_by_round(case):
    federation, found = case
    cohorts, importance = cohorts_of(federation), federation.importance
    rates = np.bincount(np.concatenate(cohorts[:600]), minlength=30) / 600
    last = cohorts[600:]
    for rule, weigh in {
        "fedavg": lambda cohort: np.full(cohort.size, 1 / cohort.size),
        "horvitz-thompson": lambda cohort: (importance / rates)[cohort],
        "self-normalised-ipw": lambda cohort: (
            (importance / rates)[cohort] / (importance / rates)[cohort].sum()
        ),
    }.items():
        mean, squares = np.zeros(30), 0.0
        for cohort in last:
            mean[cohort] += weigh(cohort) / len(last)
            squares += np.square(weigh(cohort)).sum() / len(last)
        standing = found.price.of(rule)
        off = mean - importance
        # Either what clients have too much or what they have too little, whichever is more.
        expected = max(off[off > 0].sum(), -off[off < 0].sum())
        assert standing.held_out_gap.value == pytest.approx(expected)
        assert standing.held_out_effective_cohort_size == pytest.approx(mean.sum() ** 2 / squares)


def test_held_out_weights_never_saw_the_held_out_rounds():
    law, importance = slack()
    cohorts = law.sample(np.random.default_rng(3), 300)
    other = cohorts[:200] + law.sample(np.random.default_rng(4), 100)
    one, two = (
        Fitting(whole(Federation(log_of(rows, 30), importance)).part(np.arange(200)), None, 1.0)
        for rows in (cohorts, other)
    )
    for name in one.laws():
        assert np.array_equal(one.align(name).potentials, two.align(name).potentials)


def test_the_law_that_is_chosen_has_the_least_held_out_gap(case):
    _, found = case
    best = min(found.fit.scores, key=lambda score: score.held_out_gap.value)
    assert found.fit.law == best.law
    assert found.fit.fitted_rounds + found.fit.held_out_rounds == found.rounds


def test_an_independent_fit_gives_back_the_rates_it_was_drawn_from():
    law = fa.IndependentClients(np.array([0.02, 0.1, 0.2, 0.05, 0.15]))
    federation = drawn(law, fa.importance.uniform(5), 40_000, 0)
    fitted = Fitting(whole(federation), None, 1.0).law("independent")
    # Standard errors are .0025 at most; rounds without anybody are not in the log at all.
    assert np.allclose(fitted.inclusion(), law.inclusion(), atol=0.01)
    assert isinstance(fitted, fa.IndependentClients)
    assert fitted.nonempty == pytest.approx(law.nonempty, abs=0.02)


def test_a_mixture_by_hour_beats_independence_where_hours_decide():
    day, night = np.repeat([0.6, 0.1], 8), np.repeat([0.05, 0.2], 8)
    rng = np.random.default_rng(0)
    times = np.arange(24 * 60) * 3600.0
    laws = {True: fa.IndependentClients(day), False: fa.IndependentClients(night)}
    cohorts = [laws[8 <= t % 24 < 20].sample(rng, 1)[0] for t in range(times.size)]
    importance = np.repeat([0.6 / 8, 0.4 / 8], 8)
    federation = Federation(log_of(cohorts, 16, times=times), importance)
    scores = {score.law: score.held_out_gap.value for score in audit(federation).fit.scores}
    assert scores["mixture"] < scores["independent"] - 0.02


def test_the_alignment_handed_back_is_for_the_wanted_importance(case):
    federation, found = case
    assert np.array_equal(found.alignment.importance, federation.importance)
    window = whole(federation)
    standing = found.price.of("fedavot")
    weights = weights_of(found.alignment, window)
    assert gap(window, weights) == pytest.approx(standing.gap)
    assert effective(window, weights) == pytest.approx(standing.effective_cohort_size)


def test_the_same_log_and_seed_give_the_same_findings(case):
    federation, found = case
    assert json.dumps(findings_document(found)) == json.dumps(findings_document(audit(federation)))


def test_groups_are_sums_over_their_clients():
    law, importance = slack()
    group_of = np.arange(30) % 3
    log = drawn(law, importance, 300, 0).participation
    found = audit(Federation(log, importance, ("a", "b", "c"), group_of))
    for group in range(3):
        of = group_of == group
        assert found.by_group.implied[group] == pytest.approx(found.by_client.implied[of].sum())
        there = [bool(of[log.cohort(t)].any()) for t in range(300)]
        assert found.by_group.inclusion[group] == pytest.approx(np.mean(there))


@pytest.mark.parametrize(
    "federation",
    [
        Federation(log_of([[0]], 1), np.array([1.0])),
        Federation(log_of([[0]] * 200, 1), np.array([1.0])),
        Federation(log_of([[0, 1]], 3), np.array([0.2, 0.3, 0.5])),
        Federation(log_of([[0, 1], [2]], 3), np.array([0.2, 0.3, 0.5])),
        Federation(log_of([[0, 1], [], [2], []], 3), np.array([0.0, 0.5, 0.5])),
        Federation(log_of([[0, 1, 2]] * 100, 3), np.array([1.0, 0.0, 0.0])),
        Federation(log_of([[0]] * 100, 2), np.array([0.0, 1.0])),
        Federation(log_of([[0], [0, 1]] * 30, 3, unknown=[[1, 2], [2]] * 30), np.full(3, 1 / 3)),
    ],
    ids=[
        "one client, one round",
        "one client",
        "one round",
        "two rounds",
        "empty rounds",
        "one matters",
        "who matters never comes",
        "one never known",
    ],
)
def test_an_odd_log_gets_findings_that_can_be_written(federation):
    found = audit(federation)
    document = json.dumps(findings_document(found), allow_nan=False)
    assert found.recommendation.action in document
    assert 0 <= found.gap.low <= found.gap.value <= found.gap.high <= 1


def test_one_round_is_too_short_and_one_client_needs_nothing():
    one_round = audit(Federation(log_of([[0, 1]], 3), np.array([0.2, 0.3, 0.5])))
    assert one_round.recommendation.action == "collect more rounds"
    alone = audit(Federation(log_of([[0]] * 200, 1), np.array([1.0])))
    assert alone.recommendation.action == "nothing to do"


def test_a_log_in_which_nobody_took_part_is_refused():
    empty = Federation(log_of([[], []], 2), np.array([0.5, 0.5]))
    with pytest.raises(OptionError, match="nobody took part in any round"):
        audit(empty)


def test_a_tolerance_of_nothing_is_refused(case):
    with pytest.raises(OptionError, match="tolerance is 0.0"):
        audit(case[0], tolerance=0.0)


def test_a_tolerance_that_no_log_could_meet_is_refused(case):
    with pytest.raises(OptionError, match="tolerance is 1e-300; it must be at least 0.0001"):
        audit(case[0], tolerance=1e-300)


def test_shares_that_are_exact_by_chance_are_not_called_certain():
    # Every client in exactly one round: the plain average is even over the log, and says little.
    federation = Federation(log_of([[i] for i in range(100)], 100), fa.importance.uniform(100))
    found = audit(federation)
    assert found.gap.value == pytest.approx(0.0)
    assert found.gap.high > 0.05
    assert found.recommendation.action == "collect more rounds"


def test_progress_names_every_stage_once_and_ends_whole(case):
    said = []
    audit(case[0], progress=lambda *report: said.append(report))
    assert [stage for stage, _, _ in said[:-1]] == list(STAGES)
    assert said[-1][1:] == (len(STAGES), len(STAGES))


def test_a_very_large_log_is_judged_by_rates_and_says_so(monkeypatch):
    monkeypatch.setattr("fedavot.audit.statistics.window.MOST_ENTRIES", 2_000)
    law, importance = slack()
    found = audit(drawn(law, importance, 3000, 0))
    assert any("fitted to rates" in note for note in found.notes)
    assert "explicit" not in [score.law for score in found.fit.scores]
    assert found.reach.feasible
    assert found.reach.sure
    assert found.recommendation.action == "use memory"


def test_a_deficient_set_is_found_in_a_very_large_log(monkeypatch):
    monkeypatch.setattr("fedavot.audit.statistics.window.MOST_ENTRIES", 2_000)
    law, importance = scarce()
    found = audit(drawn(law, importance, 3000, 0))
    # Clients are independent here, so that the sets looked at are the worst there are.
    true = fa.certify(importance, law)
    assert found.reach.deficiency.low <= true.deficiency <= found.reach.deficiency.high
    assert found.reach.deficient.clients.tolist() == true.deficient.tolist()
    assert found.reach.sure
    assert found.recommendation.action == "use memory"


def test_what_is_done_in_chunks_is_what_is_done_at_once(case, monkeypatch):
    federation, found = case
    monkeypatch.setattr("fedavot.audit.statistics.window.CHUNK", 50)
    again = audit(federation)
    assert again.gap.value == pytest.approx(found.gap.value)
    for one, other in zip(again.price.standings, found.price.standings, strict=True):
        assert one.gap == pytest.approx(other.gap)
        assert one.effective_cohort_size == pytest.approx(other.effective_cohort_size)
        # A mean that is zero but for rounding may have either sign, which moves an interval's end.
        assert tuple(one.held_out_gap) == pytest.approx(tuple(other.held_out_gap), abs=0.01)
