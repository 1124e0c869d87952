"""Sentences say what the findings say, with its doubt, and nothing of what is not known."""

from dataclasses import replace

import made
import numpy as np
import pytest

from fedavot.audit.findings import Advice, Estimate, Fit, Reached
from fedavot.audit.numerals import NARROW
from fedavot.audit.telling import amount, shown
from fedavot.audit.words import MEANT, headline, sections

KEYS = ["advice", "objective", "reach", "behaviour", "price", "log"]


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
            for hole in ("nan", "None", "inf ", "unknown", "  ", "[", "()"):
                assert hole not in sentence


@pytest.mark.parametrize(
    ("advice", "words"),
    [
        (Advice("nothing to do", "", "plain average"), "the plain average is near enough"),
        (Advice("nothing to do", "", "as applied"), "the weights in use are near enough"),
        (Advice("align", "", "FedAVOT"), "Align: use weights that give each client its importance"),
        (Advice("align", "", "online", online=True), "Align, with weights learned on the way"),
        (Advice("align softly", "", "FedAVOT, soft", softness=0.2), "softly, with softness 0.2"),
        (Advice("use memory", "", "FedAVOT"), "Use memory: let the last update"),
        (
            Advice("use memory", "", "online", online=True),
            "stand in for it, with weights learned on the way",
        ),
        (Advice("change selection", "", "FedAVOT"), "selected: weights alone cannot do it"),
        (
            Advice("change selection", "", "online", online=True),
            "selected; until then use weights learned on the way",
        ),
        (
            Advice("change selection", "", "online selection", online=True),
            "selected: choose whom to ask by weights learned on the way",
        ),
        (Advice("collect more rounds", "", "plain average"), "Collect more rounds first"),
        (
            Advice("collect more rounds", "", "plain average", rounds_needed=4200),
            "Collect more rounds first: about 4 200",
        ),
    ],
)
def test_the_headline_is_the_recommendation(advice, words):
    assert words in headline(made.findings(advice=advice)).replace(NARROW, " ")


def test_the_headline_promises_no_more_than_can_be_had():
    found = made.infeasible(advice=Advice("align", "", "FedAVOT"))
    assert headline(found) == "Align: use weights that come as near to the importance as can be"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("FedAVOT", "The weights in alignment.json are off by 0, the plain average by 0.30."),
        ("FedAVOT, soft", "It averages like 2.5, at a gap of 0.02; the plain average has 0.30."),
    ],
)
def test_what_the_reason_says_is_not_said_again(rule, reason):
    found = made.findings(advice=Advice("align", reason, rule))
    gap = amount(found.price.of(rule).gap)
    said = replace(found.advice, reason=reason.replace("0.02", gap))
    assert sections(replace(found, advice=said))["advice"].sentences == (said.reason,)
    other = replace(found.advice, reason=reason.replace("off by 0,", "off by 0.04,"))
    if other.reason != said.reason:
        assert len(sections(replace(found, advice=other))["advice"].sentences) == 2


def test_with_memory_the_gap_is_said_to_be_that_of_weights_alone():
    found = made.infeasible(advice=Advice("use memory", "Out of reach.", "FedAVOT"))
    assert "alignment, without memory, leaves a gap of 0.40" in told(found, "advice")


def test_the_reason_comes_first_and_the_rule_is_set_against_the_plain_average():
    found = made.findings(advice=Advice("align", "Because it is so.", "FedAVOT"))
    first, second = sections(found)["advice"].sentences
    assert first == "Because it is so."
    assert second == "Over this log, alignment leaves a gap of 0, where the plain average has 0.30."


def test_the_plain_average_is_not_set_against_itself():
    found = made.findings(advice=Advice("nothing to do", "It is near.", "plain average"))
    assert sections(found)["advice"].sentences == ("It is near.",)


def test_every_rule_of_the_price_has_words():
    assert {one.rule for one in made.with_choice().price.standings} == set(MEANT)


def test_rules_that_not_every_log_has_are_explained():
    words = told(made.with_choice(), "price")
    assert (
        "Choosing whom to ask by weights learned on the way, as many clients a round as now "
        "(online selection): a gap of 0.03, and an effective cohort size of 3.2." in words
    )
    assert "The weights that were really used (as applied): a gap of 0.21" in words
    assert "online selection" not in told(made.findings(), "price")


def test_weights_that_are_not_made_for_the_very_rounds_are_explained():
    found = made.findings()
    exact = found.price.of("FedAVOT")
    off = tuple(one._replace(gap=0.12) if one is exact else one for one in found.price.standings)
    away = replace(found, price=replace(found.price, standings=off))
    words = told(away, "price")
    assert (
        "Weights made for these very rounds would be off by 0. FedAVOT is made for clients that "
        "come independently of each other, given the time of day instead, which carries over "
        "better: in rounds that neither had seen it was off by 0.03, the others by 0.04." in words
    )
    assert "With weights made for these very rounds, a softness of 0.1 trades" in words
    assert "very rounds" not in told(found, "price")
    explicit = replace(away, fit=replace(found.fit, law="explicit"))
    assert "very rounds" not in told(explicit, "price")
    unheld = replace(away, fit=replace(found.fit, held_out=found.rounds))
    assert "very rounds" not in told(unheld, "price")


def test_the_gap_is_told_with_its_interval_and_against_the_tolerance():
    words = told(made.findings(), "objective")
    assert "30 % of the weight went to clients that should not have had it" in words
    assert "a gap of 0.30 (95 % interval 0.27 to 0.33), above the tolerance of 0.05" in words
    near = made.findings(gap=Estimate(0.03, 0.01, 0.05))
    assert "within the tolerance of 0.05" in told(near, "objective")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0532, "a gap of 0.053 (95 % interval 0.04 to 0.06), above the tolerance of 0.05"),
        (0.0468, "a gap of 0.047 (95 % interval 0.04 to 0.06), within the tolerance of 0.05"),
    ],
)
def test_a_gap_near_the_tolerance_has_digits_enough_to_tell_which_side_it_is_on(value, words):
    found = replace(made.findings(), gap=Estimate(value, 0.04, 0.06), tolerance=0.05)
    assert words in told(found, "objective")


def test_groups_that_count_too_much_and_too_little_are_named_with_their_shares():
    words = told(made.findings(), "objective")
    assert "1 group counts too much: phones (79 % instead of 49 %)." in words
    assert (
        "2 groups count too little: tablets (16 % instead of 39 %) and clinics "
        "(4.8 % instead of 12 %)." in words
    )


def test_the_clients_furthest_off_come_first_and_the_rest_are_counted():
    words = told(made.findings(), "objective")
    assert "7 clients count too much, most of all phone-1 (12 % instead of 7.0 %)" in words
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
    assert words == (
        "No set of clients that was tried is wanted more than it takes part: exact alignment "
        "seems possible."
    )


def test_that_unknown_states_are_drawn_is_said_once_where_there_are_any():
    drawn = "this section has it there by a draw"
    assert told(made.unknown_client(), "reach").count(drawn) == 1
    assert drawn not in told(made.infeasible(), "reach")


def test_a_log_that_bounds_nothing_is_said_to_say_nothing():
    blind = reach(made.findings(), sure=False, deficiency=Estimate(0.0, 0.0, 1.0))
    assert "too short to say anything about the long run" in told(blind, "reach")


def test_the_deficient_set_is_told_in_words():
    words = told(made.infeasible(), "reach")
    assert (
        "Exact alignment is not possible: these 2 clients (clinic-1 and clinic-2) hold 56 % of "
        "the importance, but only 16 % of rounds have any of them." in words
    )
    assert "So 40 % of the importance is out of reach of any weights" in words
    assert "They are 3.57 times as important as the rounds with any of them allow" in words


def test_doubt_about_what_is_not_possible_is_told():
    unsure = reach(made.infeasible(), sure=False, deficiency=Estimate(0.1, 0.0, 0.2))
    words = told(unsure, "reach")
    assert words.startswith("Over this log, exact alignment is not possible")
    assert "anything from 0 % to 20 % of the importance may be out of reach" in words


def test_what_would_help_is_told():
    words = told(made.infeasible(), "reach")
    assert "one or more of them in at least 56 % of rounds, 3.57 times as often as now" in words
    assert "Or about 3 times as many of the available clients a round." in words
    assert "If all who were available took part, 8.0 % of the importance would be" in words
    assert "gives them 16 % instead of 56 %" in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"larger_cohorts": 2}, "Or about twice as many of the available clients a round."),
        (
            {"larger_cohorts": 2, "if_all_asked": None},
            "Or rounds that gather the clients of 2 rounds in a row.",
        ),
        (
            {"larger_cohorts": None, "if_all_asked": None},
            "Even rounds that gather the clients of 8 rounds in a row would not do.",
        ),
        ({"if_all_asked": 0.0}, "took part, exact alignment would be possible"),
        ({"if_all_asked": 0.4}, "Asking all who are available would not help"),
    ],
)
def test_a_remedy_is_as_good_as_what_was_tried(changes, words):
    assert words in told(reach(made.infeasible(), **changes), "reach")


def test_no_remedy_is_told_that_was_not_tried():
    untried = reach(made.infeasible(), larger_cohorts=None, tried_cohorts=0, if_all_asked=None)
    words = told(untried, "reach")
    assert "as many" not in words
    assert "gather" not in words
    assert "available" not in words


def test_a_worst_set_of_its_own_is_named():
    worst = Reached(np.array([1]), 0.28, 0.05)
    found = reach(made.infeasible(), worst=worst, hall_ratio=Estimate(5.6, 4.0, np.inf))
    words = told(found, "reach")
    assert "Worst off, clinic-2 is 5.60 times as important as the rounds with it allow" in words
    assert "95 % interval 4.00 upwards" in words


def test_a_client_that_never_took_part_is_named_and_no_ratio_is_told():
    words = told(made.never_seen(), "reach")
    assert "this client (clinic-1) holds 6.0 % of the importance, but never takes part" in words
    assert "Hall ratio" not in words
    assert words.count("clinic-1") == 1


def test_a_client_that_never_took_part_is_told_of_beside_a_larger_set():
    found = made.infeasible()
    words = told(reach(found, never=np.array([1])), "reach")
    assert "clinic-2 holds 28 % of the importance and never took part: no weights can make" in words
    # What "they" are is whom the sentence before names.
    assert words.index("They are 3.57 times") < words.index("clinic-2 holds")


def test_a_client_known_in_no_round_is_named():
    assert "tablet-3 is known in no round" in told(made.unknown_client(), "reach")
    assert "8.3 % of clients and rounds it is not known" in told(made.unknown_client(), "log")


def test_more_clients_than_can_be_named_are_counted():
    many = Reached(np.arange(12), 0.9, 0.5)
    words = told(reach(made.infeasible(), deficient=many), "reach")
    assert "these 12 clients (clinic-1, clinic-2, tablet-1, tablet-2, tablet-3 and 7 more)" in words


def test_hours_and_days_are_told_where_there_are_times():
    words = told(made.findings(), "behaviour")
    assert "most clients are available in the hour from 00:00 UTC (4.0), and fewest" in words
    assert "on Sunday (2.9), and fewest on Thursday (2.4)" in words
    assert "clinics from 00:00" in words


def test_without_times_nothing_is_said_of_hours_or_days():
    found = made.without_times()
    assert "hour" not in told(found, "behaviour")
    assert "day" not in told(found, "behaviour")
    assert "UTC" not in told(found, "log")


def test_hours_without_dates_are_of_the_logs_own_clock():
    words = told(behaving(made.findings(), dated=False, of_available=False), "behaviour")
    assert "most clients take part in the hour from 00:00 of the log's own clock" in words


def test_hours_in_which_no_round_was_are_left_out():
    hours = np.full(24, np.nan)
    assert "hour from" not in told(behaving(made.findings(), by_hour=hours), "behaviour")
    hours[[3, 7]] = 1.0, 2.0
    words = told(behaving(made.findings(), by_hour=hours), "behaviour")
    assert "from 07:00 UTC (2.0), and fewest from 03:00 (1.0)" in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"look": 1.0}, "says next to nothing about the next one"),
        ({"look": 2.4}, "about 2.4 rounds tell as much"),
        ({"dispersion": 1.6}, "Clients come together"),
        ({"dispersion": 1.0}, "Clients come independently"),
        ({"dispersion": 0.3}, "varies less than if each came on its own"),
        ({"drift": Estimate(0.1, 0.07, 0.13)}, "availability drifts"),
        ({"drift": Estimate(0.01, 0.0, 0.02)}, "availability is steady"),
    ],
)
def test_the_behaviour_of_clients_is_put_in_words(changes, words):
    assert words in told(behaving(made.findings(), **changes), "behaviour")


def test_hours_and_days_that_are_all_alike_have_no_most_and_no_fewest():
    flat = {"by_hour": np.full(24, 3.0), "by_weekday": np.full(7, 3.0)}
    words = told(behaving(made.findings(), **flat), "behaviour")
    assert "At every hour about as many clients are available on average (3.0)." in words
    assert "On every weekday about as many clients are available on average (3.0)." in words
    assert "most clients" not in words


def test_clients_that_are_always_or_never_there_are_not_said_to_come_independently():
    found = made.findings()
    always = replace(found.by_client, inclusion=np.ones(len(found.clients)))
    always = replace(found, by_client=always, empty_rounds=0, unknown=0.0)
    words = told(always, "behaviour")
    assert "Every client takes part in all rounds or in none." in words
    assert "independently of each other, as far" not in words
    assert "next one" not in words


def test_rounds_that_are_empty_or_unknown_are_none_that_a_client_is_said_to_miss():
    found = made.findings()
    always = replace(found.by_client, inclusion=np.ones(len(found.clients)))
    words = told(replace(found, by_client=always, empty_rounds=3, unknown=0.1), "behaviour")
    assert (
        "As far as is known, every client takes part in all rounds or in none, those with nobody "
        "apart." in words
    )


def test_one_round_says_nothing_of_how_availability_behaves():
    (only,) = sections(made.one_round())["behaviour"].sentences
    assert only == "One round says nothing about how availability behaves."


def test_rounds_that_weights_were_fitted_to_are_not_called_unseen():
    found = made.findings()
    words = told(replace(found, fit=replace(found.fit, held_out=found.rounds)), "behaviour")
    assert "not seen" not in words


def test_a_drift_without_limit_has_no_interval():
    words = told(behaving(made.findings(), drift=Estimate(0.06, 0.0, 1.0)), "behaviour")
    assert "to others; whether that is chance, so short a log cannot tell." in words


def test_a_drift_that_may_be_chance_is_given_without_a_verdict():
    words = told(behaving(made.findings(), drift=Estimate(0.06, 0.0, 0.1)), "behaviour")
    assert "6.0 % of the plain average's weight moved" in words
    assert "drifts" not in words
    assert "steady" not in words


def test_figures_that_are_not_known_have_no_sentence():
    nothing = Estimate(np.nan, np.nan, np.nan)
    blank = behaving(made.findings(), look=np.nan, dispersion=np.nan, drift=nothing)
    words = told(blank, "behaviour")
    for word in ("slowly", "together:", "moved"):
        assert word not in words


def test_the_law_that_held_up_best_is_told_with_the_others_beside_it():
    words = told(made.findings(), "behaviour")
    assert "given the time of day, divided into 4 parts" in words
    assert "from the first 200 rounds left a gap of 0.03 in the last 100 rounds, which" in words
    assert "rounds like those seen so far: 0.04" in words


def test_without_laws_tried_none_is_told():
    none = made.findings(fit=Fit((), "explicit", 0, 1, 0))
    assert "described" not in told(none, "behaviour")


def test_the_price_sets_alignment_against_the_plain_average():
    words = told(made.findings(), "price")
    assert "It is 3.4 for the plain average, at a gap of 0.30, and 2.0 for alignment" in words
    assert "A softness of 0.1 trades closeness for evenness" in words
    assert "IPW gives weights that do not sum to one: up to 4.20 in a round" in words


def test_a_tolerance_that_no_softness_meets_is_told():
    found = made.infeasible()
    words = told(found, "price")
    assert "No softness brings the gap within the tolerance of 0.05; the least is 0.40." in words
    close = tuple(point._replace(gap=0.0541) for point in found.price.curve)
    near = replace(found, price=replace(found.price, curve=close))
    assert "tolerance of 0.05; the least is 0.054." in told(near, "price")


def test_the_log_is_described_with_its_notes_as_they_are():
    words = told(made.findings(), "log")
    assert "log.csv has 300 rounds of 12 clients in 3 groups" in words
    assert "It goes from 2024-01-08 00:00 to 2024-01-14 06:00 UTC." in words
    assert "In 2 more rounds nobody took part" in words
    assert words.endswith("7 rows are repeated: counted once")
    assert "nobody" not in told(made.findings(empty_rounds=0), "log")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines", "two\\nlines"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("👩\u200d⚕️", "👩\u200d⚕️"),
        ("Zoë, <b>", "Zoë, <b>"),
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
