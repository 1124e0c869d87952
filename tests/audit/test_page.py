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
from fedavot.audit.findings import Advice, Estimate
from fedavot.audit.report.availability_words import OWED
from fedavot.audit.report.comparison import Change
from fedavot.audit.report.document import write_alignment, write_clients
from fedavot.audit.report.numerals import ABSENT
from fedavot.audit.report.outputs import write_audit
from fedavot.audit.report.page import MOST_NAMES, TONES, page
from fedavot.audit.report.page_tables import MOST_CLIENTS, MOST_EXTREME
from fedavot.audit.report.words import headline, sections

VARIANTS = [*made.VARIANTS, odd.named, odd.many]
VOID = {"meta", "link", "input", "br"}
ACTIONS = [
    Advice("nothing to do", "Near enough.", "fedavg"),
    Advice("align", "It is possible.", "fedavot"),
    Advice("align", "Availability drifts.", "fedavot-online", online=True),
    Advice("align softly", "Exactness is dear.", "fedavot-soft", softness=0.1),
    Advice("align softly", "It drifts.", "fedavot-online", softness=0.1, online=True),
    Advice("use memory", "Out of reach.", "fedavot"),
    Advice("use memory", "Out of reach, and it drifts.", "fedavot-online", online=True),
    Advice("change selection", "Some never come.", "fedavot"),
    Advice("change selection", "Some never come.", "fedavot-online", online=True),
    Advice("change selection", "Ask others.", "fedavot-select", online=True),
    Advice("collect more rounds", "Too short.", "fedavg", rounds_needed=5000),
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
    """Return the page of findings as they are made."""
    return page(variant())


@pytest.fixture
def _unillustrated(monkeypatch):
    """Leave the pictures out, where tests are about the text and pictures have tests of theirs."""
    for place in ("figures", "page"):
        monkeypatch.setattr(f"fedavot.audit.report.{place}.draw", lambda findings: ())


def rows_of(markup, key):
    """Return the rows of the table whose caption has an id: lists of (text, sorting value)."""
    block = re.search(rf'<caption id="{key}">.*?</table>', markup, re.DOTALL)[0]
    body = re.search(r"<tbody>(.*)</tbody>", block, re.DOTALL)[1]
    rows = []
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL):
        cells = re.findall(r'<t[hd][^>]*data-value="([^"]*)">(.*?)</t[hd]>', row, re.DOTALL)
        rows.append([("".join(Tree(cell).texts("p")) or cell, value) for value, cell in cells])
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
    assert findings.advice.reason in verdict


def test_every_sentence_is_on_the_page(found):
    findings, _, tree = found
    (body,) = tree.texts("main")
    for section in sections(findings).values():
        for sentence in section.sentences:
            assert sentence in body or "\x1b" in sentence


def test_every_picture_has_a_caption_and_an_image_with_a_description(found):
    tree = found[2]
    assert len(tree.all("svg", role="img")) == len(tree.all("figure")) >= 4
    assert len(tree.all("desc")) == len(tree.all("figcaption")) == len(tree.all("figure"))


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
    assert page(made.infeasible()) == page_of(made.infeasible)


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
    rows = rows_of(page_of(made.infeasible), "clients-caption")
    excess = np.abs(findings.by_client.implied - findings.by_client.owed)
    order = np.argsort(-excess, kind="stable")
    assert [row[0][1] for row in rows] == [findings.clients[at] for at in order]


def test_cells_sort_by_the_number_itself():
    findings = made.infeasible()
    rows = rows_of(page_of(made.infeasible), "clients-caption")
    place = findings.clients.index(rows[0][0][1])
    shares = findings.by_client
    values = [float(value) for _, value in rows[0][2:]]
    expected = [shares.owed, shares.implied, shares.implied - shares.owed, shares.attained]
    assert values == [float(one[place]) for one in (*expected, shares.inclusion)]


@pytest.mark.usefixtures("_unillustrated")
def test_of_too_many_clients_the_page_says_how_many_more_there_are():
    findings = odd.many(n_clients=MOST_CLIENTS + 200)
    markup = page(findings)
    assert len(rows_of(markup, "clients-caption")) == MOST_CLIENTS
    assert any("200 more are in clients.csv" in one for one in Tree(markup).texts("p"))


def test_few_clients_are_all_listed_and_nothing_is_said_of_more():
    markup = page_of(made.findings)
    assert len(rows_of(markup, "clients-caption")) == len(made.CLIENTS)
    assert "more are in" not in markup


def test_the_most_and_the_least_represented_clients_have_tables_of_their_own():
    findings = odd.many()
    markup = page_of(odd.many)
    order = np.argsort(findings.by_client.implied - findings.by_client.owed, kind="stable")
    over, under = (rows_of(markup, key) for key in ("over-caption", "under-caption"))
    assert [row[0][1] for row in over] == [
        findings.clients[at] for at in order[::-1][:MOST_EXTREME]
    ]
    assert [row[0][1] for row in under] == [findings.clients[at] for at in order[:MOST_EXTREME]]


def test_a_client_that_counts_too_much_is_not_among_those_that_count_too_little():
    markup = page_of(made.infeasible)
    over, under = (
        {row[0][1] for row in rows_of(markup, key)} for key in ("over-caption", "under-caption")
    )
    assert over
    assert under
    assert not over & under


@pytest.mark.usefixtures("_unillustrated")
def test_where_the_plain_average_is_right_nobody_counts_too_much():
    findings = made.findings()
    shares = replace(findings.by_client, implied=findings.by_client.owed)
    markup = page(replace(findings, by_client=shares))
    assert "over-caption" not in markup
    assert "under-caption" not in markup


def test_groups_have_a_table_where_there_are_groups():
    assert [row[0][1] for row in rows_of(page_of(made.findings), "groups-caption")] == list(
        made.GROUPS
    )
    assert "groups-caption" not in page_of(made.without_groups)


@pytest.mark.usefixtures("_unillustrated")
def test_of_too_many_groups_those_farthest_off_are_listed():
    findings = odd.many(n_clients=MOST_CLIENTS + 20, n_groups=MOST_CLIENTS + 10)
    markup = page(findings)
    assert len(rows_of(markup, "groups-caption")) == MOST_CLIENTS
    assert f"The {MOST_CLIENTS} groups" in markup


def test_a_client_known_in_no_round_has_a_dash_that_sorts_last():
    findings = made.unknown_client()
    rows = rows_of(page_of(made.unknown_client), "clients-caption")
    (row,) = [row for row in rows if row[0][1] == findings.clients[11]]
    assert row[-1] == (ABSENT, "")


def test_importance_is_shown_beside_what_is_owed_where_they_differ():
    assert "Owed" in Tree(page_of(made.unknown_client)).texts("th", scope="col")
    assert "Owed" not in Tree(page_of(made.findings)).texts("th", scope="col")
    assert OWED in glossary(made.unknown_client)
    assert OWED not in glossary(made.findings)


def test_clients_with_too_much_weight_are_compared_with_what_they_are_owed():
    findings = made.unknown_client()
    markup = page_of(made.unknown_client)
    heading = markup.partition('id="over-caption"')[2].partition("</thead>")[0]
    assert "Owed" in heading
    assert "Importance" not in heading
    owed = dict(zip(findings.clients, findings.by_client.owed, strict=True))
    for row in rows_of(markup, "over-caption"):
        assert float(row[1][1]) == pytest.approx(owed[row[0][1]])


def test_no_rule_is_marked_as_recommended_if_more_rounds_are_needed():
    short = Advice("collect more rounds", "Too short.", "fedavg", rounds_needed=900)
    assert 'class="badge"' in page_of(made.findings)
    assert 'class="badge"' not in page(made.findings(advice=short))


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


def test_the_recommended_rule_is_marked_in_the_table_and_no_other():
    marked = re.findall(r'<tr class="marked">(.*?)</tr>', page_of(made.infeasible), re.DOTALL)
    rules = [one for one in marked if "recommended" in one]
    assert len(rules) == 1
    assert "FedAVOT, soft" in rules[0]


def test_a_recommendation_that_is_no_rule_of_the_table_marks_none():
    findings = made.findings(advice=Advice("nothing to do", "As it is.", "as-applied"))
    markup = page(findings)
    assert "recommended</span>" not in markup
    assert "Gap of the recommended weights" not in markup


def test_weights_that_sum_to_one_have_no_column_for_their_sum():
    findings = made.findings()
    even = tuple(one._replace(largest_sum_of_weights=1.0) for one in findings.price.standings)
    price = replace(findings.price, standings=even)
    assert "Largest sum of weights" in page_of(made.findings)
    assert "Largest sum of weights" not in page(replace(findings, price=price))


def test_a_held_out_gap_that_is_not_known_is_a_dash():
    findings = made.findings()
    lost = findings.price.standings[0]._replace(held_out_gap=Estimate(*[np.nan] * 3))
    price = replace(findings.price, standings=(lost, *findings.price.standings[1:]))
    row = rows_of(page(replace(findings, price=price)), "rules-caption")[0]
    assert row[3] == (ABSENT, "")


def test_days_are_those_of_the_log():
    facts = Tree(page_of(made.findings)).texts("dl", **{"class": "facts"})[0]
    assert "8 Jan 2024" in facts
    assert "2024" not in Tree(page_of(made.without_times)).texts("dl", **{"class": "facts"})[0]


def test_a_log_too_short_to_be_sure_is_said_to_be():
    findings = made.findings()
    doubtful = replace(findings, reach=replace(findings.reach, sure=False))
    assert "as far as this log shows" in page(doubtful)
    assert "as far as this log shows" not in page_of(made.findings)


def test_what_changed_is_on_the_page_where_anything_did():
    changes = (Change("gap", "0.31 <old>", "0.28", "The gap went from 0.31 to 0.28."),)
    tree = Tree(page(made.findings(), changes))
    assert "The gap went from 0.31 to 0.28." in tree.texts("li")
    assert "0.31 <old>" in tree.texts("td")
    assert not Tree(page_of(made.findings)).all("section", id="changes")


def test_every_action_has_a_look_and_code():
    assert {one.action for one in ACTIONS} == set(TONES)


@pytest.mark.usefixtures("_unillustrated")
@pytest.mark.parametrize("advice", ACTIONS, ids=lambda one: f"{one.action}, {one.rule}")
def test_the_code_on_the_page_does_what_was_recommended(advice, tmp_path, monkeypatch):
    findings = made.findings(advice=advice)
    tree = Tree(page(findings))
    flower, elsewhere = (code for _, code in tree.all("pre"))
    write_alignment(findings, tmp_path / "alignment.json")
    write_clients(findings, tmp_path / "clients.csv")
    monkeypatch.chdir(tmp_path)
    who = ["phone-2", "clinic-1"]
    available = [*who, "tablet-1", "tablet-2", "phone-7"]
    ran: dict[str, Any] = {"who_took_part": who, "who_is_available": available}
    exec(compile(ast.parse(elsewhere), "elsewhere", "exec"), ran)
    if advice.online:
        assert "alignment.json" not in elsewhere
        assert ran["weights"].sum() == pytest.approx(1.0)
        assert ran["aligner"].rounds == 1
        assert len(ran["weights"]) == (4 if advice.rule == "fedavot-select" else 2)
    else:
        place = [findings.clients.index(one) for one in who]
        np.testing.assert_array_equal(ran["weights"], findings.alignment.weights(place))
    exec(compile(ast.parse(flower), "flower", "exec"), ran)
    assert ran["strategy"].importance == pytest.approx(
        dict(zip(findings.clients, findings.by_client.importance.tolist(), strict=True))
    )
    assert ('memory="server"' in flower) == (advice.action == "use memory")
    assert ("cohort_size=4" in flower) == (advice.rule == "fedavot-select")
    assert ("alignment.json" in flower) != advice.online
    assert (
        "Do not use the fixed weights in alignment.json" in tree.texts("main")[0]
    ) == advice.online
    assert ("softness=0.1" in flower) == (advice.online and advice.softness > 0)


@pytest.mark.usefixtures("_unillustrated")
@pytest.mark.parametrize("folder", ["audit", 'a "quoted" \\ folder', "été"])
@pytest.mark.parametrize("online", [True, False])
def test_the_code_on_the_page_runs_where_the_audit_was_run(folder, online, tmp_path, monkeypatch):
    rule = "fedavot-online" if online else "fedavot"
    findings = made.findings(advice=Advice("align", "So.", rule, online=online))
    monkeypatch.chdir(tmp_path)
    report, *_ = write_audit(findings, folder)
    for _, code in Tree(report.read_text(encoding="utf-8")).all("pre"):
        ran = {"who_took_part": ["phone-2", "clinic-1"]}
        exec(compile(ast.parse(code), "page", "exec"), ran)
        assert "weights" in ran or "strategy" in ran


def glossary(variant):
    return Tree(page_of(variant)).texts("dl", **{"class": "glossary"})[0]


def test_rules_that_not_every_log_has_are_explained_where_it_has_them():
    for rule in ("FedAVOT, server selects", "As applied"):
        assert rule in glossary(made.with_choice)
        assert rule not in glossary(made.findings)


def test_of_one_round_the_page_has_nothing_that_takes_two():
    markup = page(made.one_round())
    tree = Tree(markup)
    for one in ("held out", "Held out", "first half", "Descriptions of availability"):
        assert one not in markup
    assert len(rows_of(markup, "rules-caption")[0]) == 3
    tile = tree.texts("ul", **{"class": "tiles"})[0]
    assert "Effective cohort size 1 client with the plain average" in tile
    assert "1 client takes part in a round" in tile


def test_what_is_not_proven_only_seems_possible():
    tile = Tree(page_of(made.too_large)).texts("ul", **{"class": "tiles"})[0]
    assert "Exact alignment seems possible" in tile
    assert "is possible" not in tile


def test_an_interval_without_an_end_goes_upwards():
    findings = made.findings()
    lost = findings.price.standings[1]._replace(held_out_gap=Estimate(2.0, 0.5, np.inf))
    price = replace(findings.price, standings=(findings.price.standings[0], lost))
    markup = page(replace(findings, price=price))
    assert "50.0\u202f% upwards" in rows_of(markup, "rules-caption")[1][3][0]
    assert not re.search(r"\binf\b", Tree(markup).texts("main")[0])


def test_the_version_is_on_the_page():
    assert fa.__version__ in Tree(page_of(made.findings)).texts("footer")[0]
