"""Sentences say what the findings say, with its doubt, and nothing of what is not known."""

import re
from dataclasses import replace

import made
import numpy as np
import pytest

from fedavot.audit.findings import Fit, Reached
from fedavot.audit.recommending import Choice, Estimate
from fedavot.audit.report.log_words import LEAST_ROUNDS
from fedavot.audit.report.terms import EXPLAINED, MEANT, NARROW, NEEDS, OWED, amount, shown
from fedavot.audit.report.words import headline, sections

KEYS = ["advice", "replay", "objective", "reach", "behaviour", "price", "log"]


def told(findings, key):
    """Return a section's sentences as one text, with ordinary spaces."""
    return " ".join(sections(findings)[key].sentences).replace(NARROW, " ")


def reach(findings, **changes):
    return replace(findings, reach=replace(findings.reach, **changes))


def behaving(findings, **changes):
    return replace(findings, behaviour=replace(findings.behaviour, **changes))


@pytest.mark.parametrize("variant", [*made.VARIANTS, made.one_round], ids=lambda one: one.__name__)
def test_every_section_has_a_title_and_sentences_without_gaps(variant):
    found = sections(variant())
    assert list(found) == KEYS
    for section in found.values():
        assert section.title
        assert section.sentences
        for sentence in section.sentences:
            for hole in ("nan", "None", "inf ", "  ", "[", "()"):
                assert hole not in sentence


def advised(*arguments, **options):
    return made.findings(recommendation=made.advise(*arguments, **options))


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        (made.findings(recommendation=made.KEEP), ["Nothing", MEANT["fedavg"]]),
        (made.with_choice(recommendation=made.KEEP), ["Nothing", MEANT["as-applied"]]),
        (advised("nothing to do", reason="one client"), ["Nothing"]),
        (advised("change the weights", "fedavot"), [MEANT["fedavot"], "15 to 25 %"]),
        (advised("use memory", "fedavot-steady"), ["memory", "50 to 60 %"]),
        (advised("change selection", "fedavot-select"), ["choose", "45 to 55 %"]),
        (made.findings(recommendation=made.SHORT), ["rounds", "900"]),
        (advised("collect more rounds", reason="unobserved"), ["rounds"]),
    ],
)
def test_the_headline_is_the_recommendation_with_what_it_gains(findings, words):
    line = headline(findings).replace(NARROW, " ")
    assert all(word in line for word in words)


def test_a_gain_within_its_interval_is_called_so_in_the_headline():
    advice = made.advise("change the weights", "fedavot")
    for low, within in ((-0.02, True), (0.0, True), (0.01, False)):
        best = made.choice("fedavot", low=low)
        line = headline(made.findings(recommendation=replace(advice, best=best)))
        assert ("interval" in line) == within


def test_the_advice_says_what_it_gains_what_it_needs_and_the_best_without_that():
    words = told(made.findings(), "advice")
    assert f"{MEANT['fedavg']}" in words
    assert "55 % less" in words
    assert "from 50 % less to 60 % less" in words
    assert NEEDS["memory"] in words
    assert NEEDS["select"] not in words
    assert f"{MEANT['fedavot-online']} (FedAVOT, online) had 30 % less" in words


def test_a_gain_that_may_be_a_loss_is_said_to_be_one():
    best = Choice("fedavot", None, Estimate(0.1, -0.2, 0.3))
    advice = replace(made.advise("change the weights", "fedavot"), best=best)
    assert "from 20 % more to 30 % less" in told(made.findings(recommendation=advice), "advice")


def test_nothing_to_change_needs_nothing():
    assert len(sections(made.findings(recommendation=made.KEEP))["advice"].sentences) == 1


def test_every_rule_of_an_audit_has_words_and_an_explanation():
    found = made.with_choice()
    rules = {one.rule for one in (*found.price.standings, *found.replay.trained)}
    assert rules <= set(MEANT)
    assert set(MEANT) == set(EXPLAINED)


def test_the_replay_says_what_was_trained_on():
    words = told(made.findings(), "replay")
    assert "6 variants" in words
    assert "by group" in words
    assert "45 % with the steady rule" in words
    assert "40 % with full participation" in words
    assert "one by one" in told(made.without_groups(), "replay")
    assert "sample" not in words
    few = made.findings(replay=made.replay(n_clients=7))
    assert "sample of 7 clients" in told(few, "replay")
    own = made.findings(replay=made.replay(task="digits.npz"))
    assert "digits.npz" in told(own, "replay")


def test_the_gap_is_told_with_its_interval_and_against_the_tolerance():
    words = told(made.findings(), "objective")
    assert "30 % of the weight" in words
    assert "(95 % interval 27 % to 33 %) is above the tolerance of 5.0 %" in words
    near = made.findings(gap=Estimate(0.03, 0.01, 0.05))
    assert "within the tolerance of 5.0 %" in told(near, "objective")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0502, ["5.02 %", "above the tolerance of 5.0 %"]),
        (0.0498, ["4.98 %", "within the tolerance of 5.0 %"]),
    ],
)
def test_a_gap_near_the_tolerance_has_digits_enough_to_tell_which_side_it_is_on(value, words):
    found = replace(made.findings(), gap=Estimate(value, 0.04, 0.06), tolerance=0.05)
    assert all(word in told(found, "objective") for word in words)


def test_groups_that_count_too_much_and_too_little_are_named_with_their_shares():
    words = told(made.findings(), "objective")
    assert "1 group has too much weight: phones (79 % instead of 49 %)." in words
    assert "2 groups have too little weight: tablets (16 % instead of 39 %) and clinics" in words
    assert "(4.8 % instead of 12 %)" in words


def test_the_clients_furthest_off_come_first_and_the_rest_are_counted():
    words = told(made.findings(), "objective")
    assert "7 clients have too much weight, above all phone-1 (12 % instead of 7.0 %)" in words
    assert "phone-6" not in words


def test_a_client_that_is_off_by_less_than_a_tenth_is_not_told_of():
    found = made.findings()
    near = replace(found.by_client, implied=found.by_client.owed * 1.05)
    same = replace(found, by_client=near, by_group=None)
    assert "too much" not in told(same, "objective")


def test_without_groups_nothing_is_said_of_groups():
    found = made.without_groups()
    everything = " ".join(told(found, key) for key in KEYS)
    assert "group" not in everything


def test_what_is_possible_is_said_without_doubt_only_if_it_is_sure():
    sure, unsure = (
        made.findings(),
        reach(made.findings(), sure=False, deficiency=Estimate(0.0, 0.0, 0.04)),
    )
    assert told(sure, "reach").startswith("Exact alignment is possible")
    assert "too short" not in told(sure, "reach")
    assert told(unsure, "reach").startswith("Over this log, exact alignment is possible")
    assert "up to 4.0 % of the importance may be out of reach" in told(unsure, "reach")


def test_what_is_not_proven_only_seems_possible_and_the_log_is_not_called_short():
    words = told(made.too_large(), "reach")
    assert "seems possible" in words
    assert "too short" not in words


def test_that_unknown_states_are_drawn_is_said_once_where_there_are_any():
    drawn = "drawn at random"
    assert told(made.unknown_client(), "reach").count(drawn) == 1
    assert drawn not in told(made.infeasible(), "reach")


def test_a_log_that_bounds_nothing_is_said_to_say_nothing():
    blind = reach(made.findings(), sure=False, deficiency=Estimate(0.0, 0.0, 1.0))
    assert "too short" in told(blind, "reach")
    assert "100 %" not in told(blind, "reach")


def test_the_deficient_set_is_told_in_words():
    words = told(made.infeasible(), "reach")
    assert "these 2 clients (clinic-1 and clinic-2) have 56 % of the importance" in words
    assert "only 16 % of the rounds" in words
    assert "40 % of the importance" in words
    assert "Their importance is 3.57 times" in words


def test_doubt_about_what_is_not_possible_is_told():
    unsure = reach(made.infeasible(), sure=False, deficiency=Estimate(0.1, 0.0, 0.2))
    words = told(unsure, "reach")
    assert words.startswith("Over this log, exact alignment is not possible")
    assert "anything from 0 % to 20 % of the importance may be out of reach" in words


def test_what_would_help_is_told():
    words = told(made.infeasible(), "reach")
    assert "in 56 % of the rounds or more, 3.57 times as often as now" in words
    assert "3 times as many of the available clients" in words
    assert "If all available clients took part, 8.0 % of the importance" in words
    assert "gives them 16 % instead of 56 %" in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"larger_cohorts": 2}, "twice as many of the available clients .* would also be enough"),
        (
            {"larger_cohorts": 2, "if_all_asked": None},
            "2 consecutive rounds .* would also be enough",
        ),
        ({"larger_cohorts": None, "if_all_asked": None}, "8 consecutive .* would not be enough"),
        ({"if_all_asked": 0.0}, "took part, exact alignment would be possible"),
        ({"if_all_asked": 0.4}, "all available clients would not help"),
    ],
)
def test_a_remedy_is_as_good_as_what_was_tried(changes, words):
    assert re.search(words, told(reach(made.infeasible(), **changes), "reach"))


def test_no_remedy_is_told_that_was_not_tried():
    untried = reach(made.infeasible(), larger_cohorts=None, tried_cohorts=0, if_all_asked=None)
    words = told(untried, "reach")
    assert "as many" not in words
    assert "consecutive" not in words
    assert "available" not in words


def test_a_worst_set_of_its_own_is_named():
    worst = Reached(np.array([1]), 0.28, 0.05)
    found = reach(made.infeasible(), worst=worst, hall_ratio=Estimate(5.6, 4.0, np.inf))
    words = told(found, "reach")
    assert "the importance of clinic-2 is 5.60 times" in words
    assert "95 % interval 4.00 upwards" in words


def test_a_client_that_never_took_part_is_named_and_no_ratio_is_told():
    words = told(made.never_seen(), "reach")
    assert "this client (clinic-1) has 6.0 % of the importance, but never takes part" in words
    assert "Hall ratio" not in words
    assert words.count("clinic-1") == 1


def test_a_client_that_never_took_part_is_told_of_beside_a_larger_set():
    found = made.infeasible()
    words = told(reach(found, never_seen=np.array([1])), "reach")
    assert "clinic-2 with 28 % of the importance never took part" in words
    # "Their" refers to the set that the sentence before names.
    assert words.index("Their importance is 3.57 times") < words.index("clinic-2 with")


def test_a_client_known_in_no_round_is_named():
    assert "tablet-3 is unknown in every round" in told(made.unknown_client(), "reach")
    assert "8.3 % of all pairs of client and round" in told(made.unknown_client(), "log")


def test_more_clients_than_can_be_named_are_counted():
    many = Reached(np.arange(12), 0.9, 0.5)
    words = told(reach(made.infeasible(), deficient=many), "reach")
    assert "these 12 clients (clinic-1, clinic-2, tablet-1, tablet-2, tablet-3 and 7 more)" in words


def test_hours_and_days_are_told_where_there_are_times():
    words = told(made.findings(), "behaviour")
    assert re.search(r"00:00 UTC has the most clients that are available \(4.0 .*12:00", words)
    assert re.search(r"Sunday has the most .*\(2.9 .*Thursday the fewest \(2.4\)", words)
    assert "clinics from 00:00" in words


def test_without_times_nothing_is_said_of_hours_or_days():
    found = made.without_times()
    assert "hour" not in told(found, "behaviour")
    assert "day" not in told(found, "behaviour")
    assert "UTC" not in told(found, "log")


def test_hours_without_dates_are_of_the_logs_own_clock():
    words = told(behaving(made.findings(), dated=False, of_available=False), "behaviour")
    assert "hour from 00:00 on the log's own clock has the most clients that take part" in words


def test_hours_in_which_no_round_was_are_left_out():
    hours = np.full(24, np.nan)
    assert "hour from" not in told(behaving(made.findings(), by_hour=hours), "behaviour")
    hours[[3, 7]] = 1.0, 2.0
    words = told(behaving(made.findings(), by_hour=hours), "behaviour")
    assert re.search(r"07:00 UTC has the most .*\(2.0 .*03:00 the fewest \(1.0\)", words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds_per_observation": 1.0}, "says little about the next"),
        ({"joint_persistence": Estimate(0.8, 0.7, 0.9)}, "correlation of 0.80"),
        ({"joint_persistence": Estimate(0.02, -0.1, 0.14)}, "Taken together, .* say little"),
        ({}, "clinics 70 % and 10 %"),
        ({"rounds_per_observation": 2.4}, "about 2.4 rounds per"),
        ({"dispersion": 1.6}, "Clients come together"),
        ({"dispersion": 1.0}, "varies as with independent clients"),
        ({"dispersion": 0.3}, "varies less"),
        ({"drift": Estimate(0.1, 0.07, 0.13)}, "availability drifts"),
        ({"drift": Estimate(0.01, 0.0, 0.02)}, "availability is steady"),
    ],
)
def test_the_behaviour_of_clients_is_put_in_words(changes, words):
    assert re.search(words, told(behaving(made.findings(), **changes), "behaviour"))


def test_groups_of_which_a_round_tells_nothing_are_not_said_to_last():
    after = np.array([0.2, 0.95, 0.5])
    calm = {"group_after_presence": after, "group_after_absence": after - 0.09}
    assert "in a row" not in told(behaving(made.findings(), **calm), "behaviour")
    unknown = {"group_after_presence": after * np.nan, "group_after_absence": after}
    assert "in a row" not in told(behaving(made.findings(), **unknown), "behaviour")


def test_of_a_short_log_a_difference_between_groups_may_be_chance():
    found = made.findings()
    near = behaving(found, group_after_absence=found.behaviour.group_after_presence - 0.2)
    assert "in a row" in told(replace(near, rounds=300), "behaviour")
    assert "in a row" not in told(replace(near, rounds=200), "behaviour")


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        (Estimate(0.16, 0.0, 0.2), "too few"),
        (Estimate(0.16, 0.12, 0.2), "did not carry over"),
        (Estimate(0.04, 0.0, 0.2), "carried over"),
    ],
)
def test_weights_are_said_not_to_carry_over_only_if_right_ones_would_have(gap, verdict):
    found = made.findings()
    scores = tuple(one._replace(held_out_gap=gap) for one in found.fit.scores)
    words = told(replace(found, fit=replace(found.fit, scores=scores)), "behaviour")
    verdicts = ("too few to say whether", "did not carry over", "log carried over")
    assert [verdict in one for one in verdicts] == [one in words for one in verdicts]


def test_how_many_rounds_would_show_whether_weights_carry_over_is_told():
    found = made.findings()
    scores = tuple(one._replace(held_out_gap=Estimate(0.16, 0.0, 0.2)) for one in found.fit.scores)
    fit = replace(found.fit, scores=scores, oracle_gap=0.15)
    words = told(replace(found, fit=fit), "behaviour")
    # 15 % over 300 rounds is half of 5 % over 36 times as many.
    assert "about 11 000 rounds would do" in words
    assert "about 15 % there, by chance" in words
    assert "would do" not in told(replace(found, fit=replace(fit, oracle_gap=0.02)), "behaviour")


def test_laws_that_differ_within_their_intervals_are_said_to():
    words = told(made.findings(), "behaviour")
    assert "within the intervals" in words
    found = made.findings()
    apart = tuple(
        one._replace(held_out_gap=Estimate(0.5, 0.4, 0.6)) if one.law != "mixture" else one
        for one in found.fit.scores
    )
    assert "within" not in told(replace(found, fit=replace(found.fit, scores=apart)), "behaviour")


def test_hours_and_days_that_are_all_alike_have_no_most_and_no_fewest():
    flat = {"by_hour": np.full(24, 3.0), "by_weekday": np.full(7, 3.0)}
    words = told(behaving(made.findings(), **flat), "behaviour")
    assert "At every hour" in words
    assert "On every weekday" in words
    assert words.count("(3.0)") == 2
    assert "the most" not in words


def test_clients_that_are_always_or_never_there_are_not_said_to_come_independently():
    found = made.findings()
    always = replace(found.by_client, inclusion=np.ones(len(found.clients)))
    always = replace(found, by_client=always, empty_rounds=0, unknown_share=0.0)
    words = told(always, "behaviour")
    assert "Every client takes part in all rounds or in none." in words
    assert "Judging by their number" not in words
    assert "about the next" not in words


def test_rounds_that_are_empty_or_unknown_are_none_that_a_client_is_said_to_miss():
    found = made.findings()
    always = replace(found.by_client, inclusion=np.ones(len(found.clients)))
    words = told(replace(found, by_client=always, empty_rounds=3, unknown_share=0.1), "behaviour")
    assert "As far as is known, every client" in words
    assert "all rounds that have participants or in none" in words


def test_one_round_says_nothing_of_how_availability_behaves():
    assert len(sections(made.one_round())["behaviour"].sentences) == 1


def test_rounds_that_weights_were_fitted_to_are_not_called_unseen():
    found = made.findings()
    words = told(replace(found, fit=replace(found.fit, held_out_rounds=found.rounds)), "behaviour")
    assert "had a gap" not in words


def test_a_drift_without_limit_has_no_interval():
    words = told(behaving(made.findings(), drift=Estimate(0.06, 0.0, 1.0)), "behaviour")
    assert "6.0 %" in words
    assert "too short to say whether that is chance" in words
    assert "100 %" not in words


def test_a_drift_that_may_be_chance_is_given_without_a_verdict():
    words = told(behaving(made.findings(), drift=Estimate(0.06, 0.0, 0.1)), "behaviour")
    assert "6.0 % of the plain average's weight moved" in words
    assert "drifts" not in words
    assert "steady" not in words


def test_figures_that_are_not_known_have_no_sentence():
    nothing = Estimate(np.nan, np.nan, np.nan)
    blank = behaving(
        made.findings(), rounds_per_observation=np.nan, dispersion=np.nan, drift=nothing
    )
    words = told(blank, "behaviour")
    for word in ("slowly", "together:", "moved"):
        assert word not in words


def test_the_law_that_held_up_best_is_told_with_the_others_beside_it():
    words = told(made.findings(), "behaviour")
    assert "given the time of day, divided into 4 parts" in words
    assert re.search("the first 200 rounds.* gap of 3.0 % in the last 100 rounds", words)
    assert "4.0 % for cohorts like those in the log" in words


def test_a_law_whose_interval_says_nothing_is_not_called_the_best():
    found = made.findings()
    scores = tuple(one._replace(held_out_gap=Estimate(0.5, 0.0, 1.0)) for one in found.fit.scores)
    words = told(replace(found, fit=replace(found.fit, scores=scores)), "behaviour")
    assert "50 %" not in words
    assert "too few to say whether" in words


@pytest.mark.parametrize("ratio", [0.3, 1.0, 5.0])
def test_of_a_few_rounds_no_ratio_is_interpreted(ratio):
    few = behaving(made.findings(), rounds_per_observation=max(ratio, 1.0), dispersion=ratio)
    words = told(replace(few, rounds=LEAST_ROUNDS - 1), "behaviour")
    assert f"{LEAST_ROUNDS - 1} rounds are too few" in words
    for word in ("slowly", "about the next", "together:", "varies less", "independently of"):
        assert word not in words.partition("Weights fitted")[0]
    assert "too few" not in told(replace(few, rounds=LEAST_ROUNDS), "behaviour")


def test_what_is_owed_is_defined_only_where_it_differs_from_the_importance():
    assert OWED in told(made.unknown_client(), "objective")
    assert OWED not in told(made.findings(), "objective")


@pytest.mark.parametrize(("rounds", "verb"), [(1, "it is"), (2, "they are")])
def test_rounds_without_participants_agree_with_their_verb(rounds, verb):
    assert f"{verb} left out" in told(replace(made.findings(), empty_rounds=rounds), "log")


def test_without_laws_tried_none_is_told():
    none = made.findings(fit=Fit((), "explicit", 0, 1, 0, np.nan))
    assert "described" not in told(none, "behaviour")


def test_the_price_sets_alignment_against_the_plain_average():
    words = told(made.findings(), "price")
    assert "3.4 for the plain average, with a gap of 30 %, and 2.0 for alignment" in words
    assert "a softness of 0.1" in words
    assert "Horvitz–Thompson do not sum to one: up to 4.20 in a round" in words


def test_a_tolerance_that_no_softness_meets_is_told():
    found = made.infeasible()
    words = told(found, "price")
    assert "tolerance of 5.0 %; the smallest gap is 40 %." in words
    close = tuple(point._replace(gap=0.0502) for point in found.price.curve)
    near = replace(found, price=replace(found.price, curve=close))
    assert "tolerance of 5.0 %; the smallest gap is 5.02 %." in told(near, "price")


def test_the_log_is_described_with_its_notes_as_they_are():
    words = told(made.findings(), "log")
    assert "log.csv has 300 rounds of 12 clients in 3 groups" in words
    assert "2024-01-08 00:00 to 2024-01-14 06:00 UTC" in words
    assert "2 more rounds" in words
    assert words.endswith("7 rows are repeated: counted once")
    assert "more round" not in told(made.findings(empty_rounds=0), "log")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines", "two\\nlines"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("👩\u200d⚕️", "👩\u200d⚕️"),
        ("Zoë, <b>", "Zoë, <b>"),
        ("  ", "(no name)"),
    ],
)
def test_a_name_has_nothing_that_a_terminal_would_obey(name, safe):
    assert shown(name) == safe


def test_a_long_name_is_cut():
    assert len(shown("x" * 10_000)) == 48
    assert len(shown("\x1b" * 10_000)) == 48


def test_names_in_sentences_are_harmless():
    clients = ("\x1b[2J", *made.CLIENTS[1:])
    assert "\x1b" not in told(made.infeasible(clients=clients), "reach")


def test_a_name_that_runs_the_other_way_turns_nothing_around_it():
    clients = ("مستشفى القاهرة 7", *made.CLIENTS[1:])
    words = told(made.infeasible(clients=clients), "reach")
    assert "(\u2068مستشفى القاهرة 7\u2069 and clinic-2)" in words
    assert "\u2068" not in told(made.infeasible(), "reach")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1e-12, "0"),
        (0.0004, "0.0004"),
        (0.283, "0.28"),
        (9.999, "10.0"),
        (49.7, "49.7"),
    ],
)
def test_an_amount_has_digits_enough_and_no_more(value, text):
    assert amount(value) == text


def test_an_amount_that_is_not_a_number_is_said_to_be_unknown():
    assert amount(np.nan) == "unknown"
    assert amount(np.inf) == "∞"
