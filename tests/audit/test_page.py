"""The page says all that was found, holds any name, and is whole by itself."""

import ast
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import made
import numpy as np
import odd
import pytest

import fedavot as fa
from fedavot.audit.recommending import Estimate
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.document import write_clients
from fedavot.audit.report.figures import draw
from fedavot.audit.report.outputs import write_audit
from fedavot.audit.report.page import KINDS, MOST_NAMES, TONES, page
from fedavot.audit.report.tables import BEST, MOST_ROWS, NOW, SECOND
from fedavot.audit.report.terms import ABSENT, EXPLAINED, OWED
from fedavot.audit.report.words import headline, sections
from fedavot.audit.statistics.rules import label

VARIANTS = [*made.VARIANTS, odd.named, odd.many]
VOID = {"meta", "link", "input", "br"}
ADVICE = [
    made.KEEP,
    made.SHORT,
    made.advise("nothing to do", reason="one client"),
    made.advise("collect more rounds", reason="unobserved"),
    made.advise("use memory", "fedavot-steady", "fedavot-online"),
    made.advise("change selection", "fedavot-select"),
    made.advise("change the weights", "fedavot"),
    made.advise("change the weights", "fedavot-soft", softness=0.1),
    made.advise("change the weights", "fedavot-online"),
    made.advise("change the weights", "fedavot-online-soft", softness=0.1),
    made.advise("change the weights", "importance-average"),
    made.advise("change the weights", "fedavgm"),
    made.advise("change the weights", "self-normalised-ipw"),
    made.advise("change the weights", "horvitz-thompson"),
    made.advise("change the weights", "fedavg"),
]


class Tree(HTMLParser):
    """A page as elements: (tag, attributes, text of its own and of what it holds)."""

    def __init__(self, markup):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        at = self._open.pop()
        assert self.elements[at][0] == tag, f"{self.elements[at][0]} closed by {tag}"

    def handle_data(self, data):
        for at in self._open:
            self.elements[at][2].append(data)

    def all(self, tag, **attributes):
        """Return the attributes and the text of elements of a kind."""
        return [
            (found, "".join(data))
            for kind, found, data in self.elements
            if kind == tag and all(found.get(key) == value for key, value in attributes.items())
        ]

    def texts(self, tag, **attributes):
        return [data for _, data in self.all(tag, **attributes)]


@cache
def page_of(variant):
    """Return the page of findings as they are made, one of them with its pictures."""
    findings = variant()
    return page(findings, pictures=draw(findings) if variant is odd.named else ())


def rows_of(markup, key):
    """Return the rows of the table whose caption has an id: lists of (text, sorting value)."""
    block = re.search(rf'<caption id="{key}">.*?</table>', markup, re.DOTALL)[0]
    body = re.search(r"<tbody>(.*)</tbody>", block, re.DOTALL)[1]
    rows = []
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL):
        cells = re.findall(r'<t[hd][^>]*data-value="([^"]*)">(.*?)</t[hd]>', row, re.DOTALL)
        rows.append(
            [(Tree(f"<p>{cell}</p>").texts("p")[0].strip(), value) for value, cell in cells]
        )
    return rows


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda one: one.__name__)
def found(request):
    """Return findings, their page, and its elements."""
    markup = page_of(request.param)
    return request.param(), markup, Tree(markup)


def test_every_element_is_closed_where_it_was_opened(found):
    assert not found[2]._open


def test_a_page_asks_nothing_of_anybody(found):
    _, markup, tree = found
    head = markup.split("</head>")[0]
    assert "default-src 'none'" in head
    assert "http:" not in markup
    assert "https:" not in markup
    for _, attributes, _ in tree.elements:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    assert not re.search(r"url\((?!#)|@import|@font-face", markup)


def test_a_page_has_its_language_its_width_and_its_title(found):
    findings, _, tree = found
    assert tree.all("html", lang="en")
    assert tree.all("meta", name="viewport")
    assert findings.source in tree.texts("title")[0]


def test_the_headings_go_down_one_step_at_a_time(found):
    levels = [int(tag[1]) for tag, _, _ in found[2].elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_a_page_has_one_of_each_landmark(found):
    for tag in ("header", "nav", "main", "footer"):
        assert len(found[2].all(tag)) == 1


def test_every_id_is_one_of_a_kind_and_every_reference_finds_it(found):
    ids = [attributes["id"] for _, attributes, _ in found[2].elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes, _ in found[2].elements:
        for key in ("aria-labelledby", "href", "clip-path"):
            for one in re.findall(r"#?([\w-]+)\)?(?: |$)", attributes.get(key) or ""):
                assert one in ids or attributes[key].startswith("data:")


def test_the_recommendation_stands_before_everything_else(found):
    findings, _, tree = found
    first = tree.texts("h2")[0]
    assert first == headline(findings)
    (verdict,) = tree.texts("section", id="advice")
    assert all(one in verdict for one in sections(findings)["advice"].sentences)


def test_every_sentence_is_on_the_page(found):
    findings, _, tree = found
    (body,) = tree.texts("main")
    for section in sections(findings).values():
        for sentence in section.sentences:
            assert sentence in body or "\x1b" in sentence


def test_every_picture_has_a_caption_and_an_image_with_a_description():
    tree = Tree(page_of(odd.named))
    assert len(tree.all("svg", role="img")) == len(tree.all("figure")) >= 4
    assert len(tree.all("desc")) == len(tree.all("figcaption")) == len(tree.all("figure"))


def test_the_replay_is_the_second_figure():
    figures = Tree(page_of(odd.named)).all("figure")
    assert [one["id"] for one, _ in figures[:2]] == ["figure-shares", "figure-replay"]


def test_every_table_is_labelled_and_its_box_can_be_reached_by_keyboard(found):
    tree = found[2]
    boxes = [one for one, _ in tree.all("div", role="region")]
    assert len(boxes) == len(tree.all("table")) == len(tree.all("caption"))
    assert all(one["tabindex"] == "0" and one["aria-labelledby"] for one in boxes)


def test_every_heading_of_a_table_says_how_it_sorts(found):
    heads = [one for one, _ in found[2].all("th", scope="col")]
    assert heads
    assert {one["data-sort"] for one in heads} == {"text", "number"}


def test_the_same_findings_give_the_same_page():
    assert page(odd.named()) == page_of(odd.named)


def test_names_are_text_and_nothing_else():
    markup = page_of(odd.named)
    tree = Tree(markup)
    assert len(tree.all("script")) == len(tree.all("style")) == 1
    assert not tree.all("img")
    assert not tree.all("b")
    assert not any(key.startswith("on") for _, attributes, _ in tree.elements for key in attributes)
    names = tree.texts("bdi")
    for one in odd.NAMES:
        shown = one.replace("\x1b", "\ufffd").replace("\x00", "\ufffd")
        assert (shown if one.strip() else "(no name)") in names
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", markup)


def test_a_group_and_a_log_are_named_as_they_are():
    tree = Tree(page_of(odd.named))
    assert "<b>bold</b>" in tree.texts("bdi")
    assert tree.texts("h1") == ["<i>log</i>.csv"]


def test_all_clients_are_listed_the_farthest_off_first():
    findings = made.infeasible()
    rows = rows_of(page_of(made.infeasible), "clients-table")
    excess = np.abs(findings.by_client.implied - findings.by_client.owed)
    order = np.argsort(-excess, kind="stable")
    assert [row[0][1] for row in rows] == [findings.clients[at] for at in order]


def test_cells_sort_by_the_number_itself():
    findings = made.infeasible()
    rows = rows_of(page_of(made.infeasible), "clients-table")
    place = findings.clients.index(rows[0][0][1])
    shares = findings.by_client
    values = [float(value) for _, value in rows[0][2:]]
    expected = [shares.owed, shares.implied, shares.implied - shares.owed, shares.attained]
    assert values == [float(one[place]) for one in (*expected, shares.inclusion)]


def test_of_too_many_clients_the_page_says_how_many_more_there_are():
    findings = odd.many(n_clients=MOST_ROWS + 200)
    markup = page(findings, pictures=())
    assert len(rows_of(markup, "clients-table")) == MOST_ROWS
    assert any("200 more are in clients.csv" in one for one in Tree(markup).texts("p"))


def test_few_clients_are_all_listed_and_nothing_is_said_of_more():
    markup = page_of(made.findings)
    assert len(rows_of(markup, "clients-table")) == len(made.CLIENTS)
    assert "more are in" not in markup


def test_groups_have_a_table_where_there_are_groups():
    assert [row[0][1] for row in rows_of(page_of(made.findings), "groups-table")] == list(
        made.GROUPS
    )
    assert "groups-table" not in page_of(made.without_groups)


def test_of_too_many_groups_those_farthest_off_are_listed():
    findings = odd.many(n_clients=MOST_ROWS + 20, n_groups=MOST_ROWS + 10)
    markup = page(findings, pictures=())
    assert len(rows_of(markup, "groups-table")) == MOST_ROWS
    assert f"The {MOST_ROWS} groups" in markup


def test_a_client_known_in_no_round_has_a_dash_that_sorts_last():
    findings = made.unknown_client()
    rows = rows_of(page_of(made.unknown_client), "clients-table")
    (row,) = [row for row in rows if row[0][1] == findings.clients[11]]
    assert row[-1] == (ABSENT, "")


def test_importance_is_shown_beside_what_is_owed_where_they_differ():
    assert "Owed" in Tree(page_of(made.unknown_client)).texts("th", scope="col")
    assert "Owed" not in Tree(page_of(made.findings)).texts("th", scope="col")
    assert OWED in terms(made.unknown_client)
    assert OWED not in terms(made.findings)


def test_rules_in_use_and_recommended_are_marked_and_no_others():
    for variant, best, second, now in (
        (made.findings, "FedAVOT, steady", "FedAVOT, online", "plain average"),
        (made.with_choice, "FedAVOT, server selects", "FedAVOT, online", "as applied"),
        (made.never_seen, None, None, "plain average"),
    ):
        marked = {
            badge: row[0][1]
            for row in rows_of(page_of(variant), "replay-table")
            for badge in (BEST, SECOND, NOW)
            if badge in row[0][0]
        }
        expected = {BEST: best, SECOND: second, NOW: now}
        assert marked == {badge: rule for badge, rule in expected.items() if rule}


@pytest.mark.parametrize("variant", made.VARIANTS)
def test_what_is_in_use_now_is_a_row_of_every_table_of_rules(variant):
    markup = page_of(variant)
    for key in ("rules-table", "replay-table"):
        if key in markup:
            rows = rows_of(markup, key)
            assert [row[0][1] for row in rows if NOW in row[0][0]] == [label(variant().in_use)]


def test_the_replay_has_a_row_for_every_rule_the_best_first():
    findings = made.findings()
    rows = rows_of(page_of(made.findings), "replay-table")
    order = sorted(findings.replay.trained, key=lambda one: one.to_use.value)
    assert [row[0][1] for row in rows] == [label(one.rule) for one in order]
    assert [float(row[1][1]) for row in rows] == [one.to_use.value for one in order]
    assert [row[2][1] == "yes" for row in rows] == [one.better for one in order]
    assert "over" in rows[-1][1][0]


def test_clients_with_more_importance_than_their_rounds_allow_are_named():
    findings = made.infeasible()
    tree = Tree(page_of(made.infeasible))
    assert "More importance than their rounds allow" in tree.texts("h3")
    assert {findings.clients[at] for at in findings.reach.deficient.clients} <= set(
        tree.texts("li")
    )
    assert "More importance than their rounds allow" not in page_of(made.findings)


def test_one_client_with_more_importance_than_its_rounds_allow_is_in_the_singular():
    headings = Tree(page_of(made.never_seen)).texts("h3")
    assert "More importance than its rounds allow" in headings


def test_of_a_large_deficient_set_the_page_says_how_many_more_there_are():
    tree = Tree(page_of(odd.many))
    assert f"And {100 - MOST_NAMES} more, in findings.json." in tree.texts("p")


def test_clients_that_never_took_part_are_named():
    assert "Never took part" in Tree(page_of(made.never_seen)).texts("h3")
    assert "Never took part" not in page_of(made.findings)


def test_weights_that_sum_to_one_have_no_column_for_their_sum():
    findings = made.findings()
    even = tuple(one._replace(largest_sum_of_weights=1.0) for one in findings.price.standings)
    price = replace(findings.price, standings=even)
    assert "Largest sum" in page_of(made.findings)
    assert "Largest sum" not in page(replace(findings, price=price), pictures=())


def test_a_held_out_gap_that_is_not_known_is_a_dash():
    findings = made.findings()
    lost = findings.price.standings[0]._replace(held_out_gap=Estimate(*[np.nan] * 3))
    price = replace(findings.price, standings=(lost, *findings.price.standings[1:]))
    row = rows_of(page(replace(findings, price=price), pictures=()), "rules-table")[0]
    assert row[3] == (ABSENT, "")


def test_days_are_those_of_the_log():
    facts = Tree(page_of(made.findings)).texts("dl", **{"class": "facts"})[0]
    assert "8 Jan 2024" in facts
    assert "2024" not in Tree(page_of(made.without_times)).texts("dl", **{"class": "facts"})[0]


def test_a_log_too_short_to_be_sure_is_said_to_be():
    findings = made.findings()
    doubtful = replace(findings, reach=replace(findings.reach, sure=False))
    assert "as far as this log shows" in page(doubtful, pictures=())
    assert "as far as this log shows" not in page_of(made.findings)


def test_what_changed_is_on_the_page_where_anything_did():
    changes = (Change("gap", "31 % <old>", "28 %", "The gap went from 31 % to 28 %."),)
    tree = Tree(page(made.findings(), changes, pictures=()))
    assert "The gap went from 31 % to 28 %." in tree.texts("li")
    assert "31 % <old>" in tree.texts("td")
    assert not Tree(page_of(made.findings)).all("section", id="changes")


def test_every_action_has_a_look():
    assert {one.action for one in ADVICE} == set(TONES)


def advised(best):
    return made.findings(recommendation=made.advise("change the weights", best, softness=0.1))


@pytest.mark.parametrize("advice", ADVICE, ids=lambda one: f"{one.action}, {one.reason}")
def test_the_code_on_the_page_does_what_was_recommended(advice, tmp_path, monkeypatch):
    findings = made.findings(recommendation=advice)
    tree = Tree(page(findings, pictures=()))
    codes = dict(
        zip((one["aria-label"] for one, _ in tree.all("pre")), tree.texts("pre"), strict=True)
    )
    kind = KINDS.get(advice.best.rule, "table") if advice.best else None
    assert {one.split()[-1] for one in codes} == {
        None: set(),
        "table": {"else"},
    }.get(kind, {"Flower", "else"})
    findings.alignment.save(tmp_path / "alignment.json")
    write_clients(findings, tmp_path / "clients.csv")
    monkeypatch.chdir(tmp_path)
    who = ["phone-2", "clinic-1"]
    ran: dict[str, Any] = {"who_took_part": who, "who_is_available": [*who, *made.CLIENTS[4:7]]}
    ran |= {"model": np.zeros(2), "trained": {one: np.ones(2) for one in who}}
    for code in codes.values():
        exec(compile(ast.parse(code), "page", "exec"), ran)
    place = [findings.clients.index(one) for one in who]
    if kind == "alignment":
        np.testing.assert_array_equal(ran["weights"], findings.alignment.weights(place))
    elif kind == "memory":
        np.testing.assert_allclose(ran["model"], 1.0)
    elif kind in ("online", "select"):
        assert sum(ran["weights"]) == pytest.approx(1.0)
        assert ran["aligner"].rounds == 1
        assert len(ran["weights"]) == (4 if kind == "select" else 2)
    elif kind == "table":
        importance, inclusion = (
            values[place]
            for values in (findings.by_client.importance, findings.by_client.inclusion)
        )
        inverse = advice.best.rule in ("self-normalised-ipw", "horvitz-thompson")
        wanted = importance / inclusion if inverse else importance
        wanted = wanted if advice.best.rule == "horvitz-thompson" else wanted / wanted.sum()
        np.testing.assert_allclose(ran["weights"], wanted, rtol=1e-12)
    if "strategy" in ran:
        assert ran["strategy"].importance == pytest.approx(
            dict(zip(findings.clients, findings.by_client.importance.tolist(), strict=True))
        )
        flower = codes["Python code in Flower"]
        assert ("memory=True" in flower) == (kind == "memory")
        assert ("cohort_size=4" in flower) == (kind == "select")
        assert ("alignment.json" in flower) == (kind == "alignment")
        # The strategy learns softly by default, and the audit replays just that.
        exactly = advice.best.rule in ("fedavot-online", "fedavot-select")
        assert ("softness=0.0" in flower) == exactly


@pytest.mark.parametrize("folder", ["audit", 'a "quoted" \\ folder', "été"])
@pytest.mark.parametrize("rule", ["fedavot", "fedavot-online"])
def test_the_code_on_the_page_runs_where_the_audit_was_run(folder, rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedavot.audit.report.figures.draw", lambda findings: ())
    report, *_ = write_audit(advised(rule), folder)
    for _, code in Tree(report.read_text(encoding="utf-8")).all("pre"):
        ran = {"who_took_part": ["phone-2", "clinic-1"]}
        exec(compile(ast.parse(code), "page", "exec"), ran)
        assert "weights" in ran or "strategy" in ran


def terms(variant):
    return " ".join(Tree(page_of(variant)).texts("dl", **{"class": "terms"}))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_rule_of_a_table_is_explained(variant):
    findings = variant()
    rules = {one.rule for one in findings.price.standings}
    rules |= {one.rule for one in findings.replay.trained}
    told = terms(variant)
    assert all(EXPLAINED[rule] in told for rule in rules)
    assert "server selects" in told or "fedavot-select" not in rules


def test_of_one_round_the_page_has_nothing_that_takes_two():
    markup = page(made.one_round(), pictures=())
    tree = Tree(markup)
    for one in ("held out", "Held out", "first half", "laws-table"):
        assert one not in tree.texts("main")[0]
    assert len(rows_of(markup, "rules-table")[0]) == 3


def test_what_is_not_proven_only_seems_possible():
    tile = Tree(page_of(made.too_large)).texts("ul", **{"class": "tiles"})[0]
    assert "Exact alignment seems possible" in tile
    assert "is possible" not in tile


def test_an_interval_without_an_end_goes_upwards():
    findings = made.findings()
    lost = findings.price.standings[1]._replace(held_out_gap=Estimate(2.0, 0.5, np.inf))
    price = replace(findings.price, standings=(findings.price.standings[0], lost))
    markup = page(replace(findings, price=price), pictures=())
    assert "50.0\u202f% upwards" in rows_of(markup, "rules-table")[1][3][0]
    assert not re.search(r"\binf\b", Tree(markup).texts("main")[0])


def test_the_version_is_on_the_page():
    assert fa.__version__ in Tree(page_of(made.findings)).texts("footer")[0]
