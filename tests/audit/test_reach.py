"""What is said of feasibility agrees with the core, and is as sure as the log allows."""

import numpy as np
import pytest

import fedavot as fa
from fedavot.audit.federation import Federation
from fedavot.audit.statistics.case import opened
from fedavot.audit.statistics.estimates import blocks_of, resampling
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.reach import reach
from fedavot.audit.statistics.window import whole
from logs import compressed, drawn, log_of, scarce, slack

SEEDS = range(100)
LEAST_HELD = 90


def reach_of(federation, available=None):
    window = whole(federation)
    rng = np.random.default_rng(0)
    blocks = resampling(blocks_of(None, window.n_rounds), rng)
    return reach(Fitting(window, None, 1.0), blocks, available=available, rng=rng)[0]


LAWS = {
    "slack": (*slack(), 200),
    "scarce group": (*scarce(), 300),
    "near tight": (
        fa.UniformCohorts(20, 2),
        fa.importance.by_examples(np.arange(20, 0, -1)),
        300,
    ),
    "day and night": (
        fa.Mixture(
            [
                fa.IndependentClients([0.8, 0.8, 0.1, 0.1]),
                fa.IndependentClients([0.1, 0.1, 0.6, 0.6]),
            ],
            [2 / 3, 1 / 3],
        ),
        fa.importance.uniform(4),
        400,
    ),
    "one rare client": (
        fa.IndependentClients([*[0.3] * 19, 0.01]),
        fa.importance.uniform(20),
        300,
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_true_certificate_and_hall_ratio_are_in_their_intervals(name):
    law, importance, rounds = LAWS[name]
    true = fa.certify(importance, law)
    held = {"deficiency": 0, "ratio": 0, "verdict": 0}
    for seed in SEEDS:
        found = reach_of(drawn(law, importance, rounds, seed))
        held["deficiency"] += found.deficiency.low <= true.deficiency <= found.deficiency.high
        held["ratio"] += found.hall_ratio.low <= true.hall_ratio <= found.hall_ratio.high
        held["verdict"] += not found.sure or found.feasible == true.feasible
    assert min(held.values()) >= LEAST_HELD, held


def test_a_clear_case_is_called_sure():
    for name, feasible in (("slack", True), ("scarce group", False)):
        law, importance, _ = LAWS[name]
        found = [reach_of(drawn(law, importance, 1000, seed)) for seed in range(10)]
        assert all(one.sure and one.feasible is feasible for one in found)


def test_a_tight_case_is_called_unsure():
    law, importance, rounds = LAWS["near tight"]
    found = [reach_of(drawn(law, importance, rounds, seed)) for seed in range(20)]
    assert sum(one.sure for one in found) <= 2


def test_the_deficient_set_is_the_certificates_and_its_words_are_counts():
    law, importance = scarce()
    federation = drawn(law, importance, 500, 0)
    found = reach_of(federation)
    cohorts = [federation.participation.cohort(t) for t in range(500)]
    certificate = fa.certify(importance, fa.Cohorts(cohorts, n_clients=30))
    assert found.deficient.clients.tolist() == certificate.deficient.tolist()
    assert found.deficient.importance == pytest.approx(importance[certificate.deficient].sum())
    members = set(certificate.deficient.tolist())
    share = np.mean([bool(members & set(cohort.tolist())) for cohort in cohorts])
    assert found.deficient.coverage == pytest.approx(share)
    assert found.worst.importance / found.worst.coverage == pytest.approx(certificate.hall_ratio)


def test_a_client_that_never_takes_part_makes_the_ratio_infinite():
    federation = Federation(log_of([[0], [1]] * 40, 3), np.array([0.4, 0.4, 0.2]))
    found = reach_of(federation)
    assert found.never_seen.tolist() == [2]
    assert np.isinf(found.hall_ratio.value)
    assert np.isfinite(found.hall_ratio.low)
    assert found.larger_cohorts is None
    assert found.deficiency.low > 0.1


def test_one_absence_too_many_does_not_prove_a_tiny_client_out_of_reach():
    # Wanted in 1 of 1,000 rounds and never seen in 100: nothing is shown by that.
    law = [[0, 1], [1, 2]] * 50
    federation = Federation(log_of(law, 4), np.array([0.3, 0.399, 0.3, 0.001]))
    found = reach_of(federation)
    assert not found.feasible
    assert not found.sure
    assert found.deficiency.low == 0.0


def test_as_many_clients_a_round_as_it_says_would_do():
    # Two of importance .45 take turns with six others: each is in one round of four.
    cohorts = [[0, 2], [1, 3], [4, 5], [6, 7]] * 100
    importance = np.array([0.45, 0.45, *[0.1 / 6] * 6])
    federation = Federation(log_of(cohorts, 8), importance)
    found = reach_of(federation)
    assert not found.feasible
    count = found.larger_cohorts
    merged = [
        sorted({client for cohort in cohorts[t : t + count] for client in cohort})
        for t in range(0, len(cohorts) - count + 1, count)
    ]
    assert fa.certify(importance, fa.Cohorts(merged, n_clients=8)).feasible
    fewer = [sorted({*cohorts[t], *cohorts[t + 1]}) for t in range(0, len(cohorts), 2)]
    assert count == 3
    assert not fa.certify(importance, fa.Cohorts(fewer, n_clients=8)).feasible


def test_what_asking_everybody_would_leave_is_certified():
    cohorts, available = [[0], [1]] * 60, [[0, 2], [1, 2]] * 60
    importance = np.array([0.3, 0.3, 0.4])
    found = reach_of(Federation(log_of(cohorts, 3), importance), compressed(available, 3))
    assert found.deficiency.value == pytest.approx(0.4)
    assert found.if_all_asked == pytest.approx(0.0)


def test_more_of_the_available_are_drawn_where_the_log_tells_who_they_are():
    rng = np.random.default_rng(0)
    there = fa.IndependentClients(np.full(20, 0.5)).sample(rng, 600)
    asked = [np.sort(rng.choice(row, size=1)) for row in there]
    importance = np.array([0.2, *[0.8 / 19] * 19])
    federation = Federation(log_of(asked, 20), importance)
    found = reach_of(federation, compressed(there, federation.n_clients))
    assert not found.feasible
    # One of about ten is asked: the first client is there in half of the rounds.
    assert 2 <= found.larger_cohorts <= 5
    assert found.if_all_asked == pytest.approx(0.0)


def test_more_of_the_available_will_do_though_it_is_not_always_known_who_they_are():
    rng = np.random.default_rng(0)
    there = fa.IndependentClients(np.full(20, 0.5)).sample(rng, 600)
    asked = [np.sort(rng.choice(row, size=1)) for row in there]
    # The first client is there in half of the rounds, wanted in .3, and known in a fifth.
    hidden = (rng.random(600) < 0.8) & [0 not in row for row in asked]
    known = [row[row > 0] if unseen else row for row, unseen in zip(there, hidden, strict=True)]
    unknown = [[0] if unseen else [] for unseen in hidden]
    importance = np.array([0.3, *[0.7 / 19] * 19])
    found = reach_of(
        Federation(log_of(asked, 20, unknown=unknown), importance), compressed(known, 20)
    )
    assert not found.feasible
    assert found.if_all_asked == pytest.approx(0.0)
    assert found.larger_cohorts is not None


def test_a_set_that_comes_together_is_found_in_a_very_large_log(monkeypatch):
    monkeypatch.setattr("fedavot.audit.statistics.window.MOST_ENTRIES", 2_000)
    rng = np.random.default_rng(0)
    together = rng.permutation(20)[:12]
    cohorts = []
    for _ in range(2000):
        there = rng.random(20) < 0.45
        there[together] = rng.random(12) < 0.9 if rng.random() < 0.5 else False
        cohorts.append(np.flatnonzero(there) if there.any() else np.array([together[0]]))
    federation = Federation(log_of(cohorts, 20), fa.importance.uniform(20))
    certificate = fa.certify(federation.importance, fa.Cohorts(cohorts, n_clients=20))
    found = reach_of(federation)
    assert not certificate.feasible
    assert found.deficiency.value == pytest.approx(certificate.deficiency, abs=0.01)


def test_presence_that_outlasts_a_block_is_not_taken_for_many_looks():
    rng = np.random.default_rng(0)
    rates = np.full(12, 0.4)
    there, rows = rng.random(12) < rates, []
    for _ in range(400):
        turns = rng.random(12) < 0.05
        there = np.where(turns, rng.random(12) < rates, there)
        rows.append(np.flatnonzero(there) if there.any() else np.array([0]))
    federation = Federation(log_of(rows, 12), fa.importance.uniform(12))
    case = opened(federation, "log", rng)
    # A state lasts for about twenty rounds; √400 = 20 would be one.
    assert case.length > 20
