"""Pictures show what the findings have, say it in words, and can stand side by side on a page."""

import io
import re
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import made
import matplotlib
import numpy as np
import odd
import pytest
from matplotlib.text import Text
from PIL import Image

from fedavot.audit.findings import Standing
from fedavot.audit.recommending import Estimate
from fedavot.audit.report.drawing import COLOURS, drawing, inline, short, write_png
from fedavot.audit.report.figures import MOST_POINTS, MOST_ROWS, draw
from fedavot.audit.report.outputs import PICTURES
from fedavot.audit.report.terms import share
from fedavot.audit.statistics.rules import label

VARIANTS = [*made.VARIANTS, odd.named, odd.many]


def drawn(findings):
    pictures = draw(findings)
    by_name = {picture.name: picture for picture in pictures}
    assert len(by_name) == len(pictures)
    return by_name


@cache
def pictures_of(variant):
    """Return a variant's pictures, drawn once for all tests: they look and change nothing."""
    return drawn(variant())


def behaving(findings, **changes):
    return replace(findings, behaviour=replace(findings.behaviour, **changes))


def tick_labels(picture):
    return [label.get_text() for label in picture.figure.axes[0].get_yticklabels()]


def png(picture):
    stream = io.BytesIO()
    write_png(picture, stream)
    return stream.getvalue()


@pytest.fixture(scope="module")
def markup():
    """Return the pictures of findings with odd names, as markup, by name."""
    return {name: inline(picture) for name, picture in pictures_of(odd.named).items()}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.__name__)
def test_every_picture_has_a_name_of_its_own_and_says_what_it_shows(variant):
    pictures = pictures_of(variant)
    assert len(pictures) >= 4
    assert set(pictures) <= set(PICTURES)  # by which an audit knows files of earlier ones
    for picture in pictures.values():
        assert re.fullmatch(r"[a-z-]+", picture.name)
        assert picture.title
        assert re.search(r"\d", picture.alt)


def test_only_a_log_with_times_is_drawn_by_hour():
    assert "hours" in pictures_of(made.findings)
    assert "hours" not in pictures_of(made.without_times)


def test_the_replay_has_a_line_for_every_rule_and_labels_those_that_matter():
    found = made.with_choice()
    picture = pictures_of(made.with_choice)["replay"]
    axes = picture.figure.axes[0]
    lines = {tuple(line.get_ydata()) for line in axes.lines}
    assert {tuple(one.middle) for one in found.replay.trained} <= lines
    written = {text.get_text().strip() for text in axes.texts} - {"held out"}
    rules = ("full", "as-applied", "fedavot-select", "fedavot-online")
    assert written == {label(rule) for rule in rules}
    assert all(label(one.rule) in picture.alt for one in found.replay.trained)


def test_a_rule_that_diverges_does_not_stretch_the_replay():
    found = made.findings()
    wild = replace(made.trained("horvitz-thompson", 1.0), middle=np.full(10, 1e30))
    lost = replace(made.trained("fedavgm", 1.0), middle=np.full(10, np.nan))
    runs = (*found.replay.trained, wild, lost)
    picture = drawn(replace(found, replay=made.replay(trained=runs)))["replay"]
    assert picture.figure.axes[0].get_ylim()[1] < 10


def test_a_rule_in_use_that_diverges_has_its_label_within_the_picture():
    found = made.findings()
    lost = replace(made.trained("fedavg", 1.0), middle=np.full(10, np.nan))
    runs = tuple(lost if one.rule == "fedavg" else one for one in found.replay.trained)
    figure = drawn(replace(found, replay=made.replay(trained=runs)))["replay"].figure
    boxes = [one.get_window_extent() for one in figure.axes[0].texts]
    assert all(figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_hours_of_which_nothing_is_known_are_not_drawn():
    nothing = behaving(made.findings(), by_hour=np.full(24, np.nan))
    assert "hours" not in drawn(nothing)


def test_an_hour_without_rounds_is_drawn_empty():
    hours = made.behaviour().by_hour.copy()
    hours[5] = np.nan
    picture = drawn(behaving(made.findings(), by_hour=hours))["hours"]
    heights = [bar.get_height() for bar in picture.figure.axes[0].patches]
    assert heights[5] == 0
    assert heights[4] > 0


def test_of_one_round_nothing_is_drawn_that_takes_two():
    assert not {"drift", "replay"} & set(drawn(made.one_round()))


def test_only_clients_that_are_off_are_called_farthest_apart():
    found = made.without_groups()
    implied = found.by_client.owed.copy()
    implied[:2] += 0.01, -0.01
    alt = drawn(replace(found, by_client=replace(found.by_client, implied=implied)))["shares"].alt
    assert "clinic-1 with" in alt
    assert "clinic-2 with" in alt
    assert "phone" not in alt
    right = replace(found.by_client, implied=found.by_client.owed)
    alt = drawn(replace(found, by_client=right))["shares"].alt
    assert "Every client gets its importance." in alt
    assert "deviation" not in alt


def test_of_many_clients_those_that_are_not_off_are_not_drawn():
    found = odd.many()
    implied = found.by_client.owed.copy()
    implied[:3] += 1e-4, 1e-4, -2e-4
    few = replace(found, by_client=replace(found.by_client, implied=implied))
    picture = drawn(few)["shares"]
    assert set(tick_labels(picture)) == {"client-0", "client-1", "client-2"}
    assert "3 clients" in picture.title
    none = replace(found, by_client=replace(found.by_client, implied=found.by_client.owed))
    picture = drawn(none)["shares"]
    assert len(tick_labels(picture)) == MOST_ROWS
    assert "deviation" not in picture.title + picture.alt


def test_shares_are_by_group_where_there_are_groups():
    assert set(tick_labels(pictures_of(made.findings)["shares"])) == set(made.GROUPS)


def test_shares_are_by_client_where_there_are_no_groups():
    assert set(tick_labels(pictures_of(made.without_groups)["shares"])) == set(made.CLIENTS)


def test_of_many_clients_those_farthest_off_either_way_are_drawn():
    found = odd.many()
    excess = found.by_client.implied - found.by_client.owed
    order = np.argsort(-excess)
    half = MOST_ROWS // 2
    expected = [found.clients[at] for at in (*order[:half], *order[-half:])]
    picture = pictures_of(odd.many)["shares"]
    assert tick_labels(picture) == expected
    assert f"{MOST_ROWS} clients" in picture.title


def test_of_many_groups_no_more_are_drawn_than_fit():
    pictures = drawn(odd.many(n_groups=40))
    assert len(tick_labels(pictures["shares"])) == MOST_ROWS
    assert len(tick_labels(pictures["drift"])) == MOST_ROWS
    assert "of 40" in pictures["hours"].alt


def test_of_many_clients_only_those_that_moved_most_are_scattered():
    picture = pictures_of(odd.many)["drift"]
    assert len(picture.figure.axes[0].collections[0].get_offsets()) == MOST_POINTS
    assert f"{MOST_POINTS} clients that moved most" in picture.alt


def test_the_price_tells_every_rule():
    found = made.infeasible()
    alt = pictures_of(made.infeasible)["price"].alt
    assert all(f"{label(one.rule)}: gap {share(one.gap)}" in alt for one in found.price.standings)


def test_the_figure_of_shares_names_what_it_compares_with():
    for variant, word in ((made.findings, "importance"), (made.unknown_client, "owed")):
        legend = pictures_of(variant)["shares"].figure.legends[0]
        assert legend.get_texts()[0].get_text() == word


def test_a_rule_without_a_number_is_left_out_of_the_price():
    found = made.findings()
    lost = found.price.standings[1]._replace(effective_cohort_size=np.nan)
    price = replace(found.price, standings=(found.price.standings[0], lost))
    alt = drawn(replace(found, price=price))["price"].alt
    assert label(lost.rule) not in alt


def overlapping(boxes):
    return [
        (one, other)
        for at, one in enumerate(boxes)
        for other in boxes[:at]
        if one.overlaps(other) and one.width and other.width
    ]


def crowded():
    """Return findings in which five rules all but coincide."""
    found = made.infeasible()
    rules = [one.rule for one in found.price.standings]
    standings = tuple(
        Standing(rule, 0.02 + 1e-4 * at, 3.0 + 1e-3 * at, Estimate(0.1, 0.0, 0.2), 3.0, 1.0)
        for at, rule in enumerate(rules)
    )
    return replace(found, price=replace(found.price, standings=standings))


@pytest.mark.parametrize(
    "variant", [*made.VARIANTS, crowded], ids=lambda one: getattr(one, "__name__", "")
)
def test_labels_of_rules_do_not_hide_each_other(variant):
    figure = pictures_of(variant)["price"].figure
    labels = [one for one in figure.axes[0].texts if isinstance(one, Text) and one.get_text()]
    rules = [one for one in labels if one.get_text() != "tolerance"]
    assert len(rules) == len(variant().price.standings) == len(labels) - 1
    assert not overlapping([one.get_window_extent() for one in rules])


def test_labels_of_rules_stay_within_the_picture():
    figure = pictures_of(crowded)["price"].figure
    frame = figure.bbox
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1


def test_no_two_elements_of_pictures_on_a_page_share_an_id(markup):
    ids = [found for text in markup.values() for found in re.findall(r' id="([^"]*)"', text)]
    assert len(ids) == len(set(ids))


def test_pictures_refer_to_nothing_outside_themselves(markup):
    for text in markup.values():
        ids = set(re.findall(r' id="([^"]*)"', text))
        assert set(re.findall(r'(?:href="|url\()#([\w-]+)', text)) <= ids
        assert "http" not in text
        assert not re.search(r'href="(?!#)', text)


def test_pictures_take_every_colour_from_the_page(markup):
    names = set()
    for text in markup.values():
        assert not re.search(r"(fill|stroke): (#|rgb|black|white)", text)
        names |= set(re.findall(r"var\(--(\w+)\)", text))
    assert names == set(COLOURS)


def test_pictures_take_their_font_from_the_page(markup):
    for text in markup.values():
        assert "font-family" not in text
        assert "font-size" in text


def test_fonts_as_older_matplotlib_names_them_are_the_pages_too(monkeypatch):
    old = (
        "<svg viewBox='0 0 1 1'>"
        "<text style=\"font: bold 12px 'DejaVu Sans'; fill: #1b1f24\">x</text></svg>"
    )
    monkeypatch.setattr("fedavot.audit.report.drawing._document", lambda picture: old)
    assert 'style="font-weight: bold; font-size: 12px; fill: var(--ink)"' in inline(
        pictures_of(made.findings)["shares"]
    )


def test_a_picture_is_an_image_with_a_title_and_a_description(markup):
    pictures = pictures_of(odd.named)
    for name, text in markup.items():
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img"
        told = {child.get("id"): child.text for child in root if child.tag in ("title", "desc")}
        assert root.get("aria-labelledby").split() == list(told)
        assert list(told.values()) == [pictures[name].title, pictures[name].alt]


def test_text_of_pictures_is_text(markup):
    root = ElementTree.fromstring(markup["shares"])
    written = {"".join(element.itertext()) for element in root.iter("text")}
    assert {"importance", "plain average", "closest possible"} <= written
    assert {short(group) for group in odd.named().groups} <= written


def test_the_same_findings_give_the_same_pictures(markup):
    assert {picture.name: inline(picture) for picture in draw(odd.named())} == markup


def test_a_file_shows_its_title_on_white_and_is_the_same_each_time():
    bare = pictures_of(made.findings)["shares"]
    first, second = png(bare), png(drawn(made.findings())["shares"])
    assert first == second
    image = Image.open(io.BytesIO(first)).convert("RGB")
    assert image.getpixel((1, 1)) == (255, 255, 255)
    # A picture without its title is less high.
    assert image.height > 160 * bare.figure.get_figheight()


def test_a_picture_is_the_same_on_the_page_after_it_was_written_to_a_file():
    picture = pictures_of(made.findings)["shares"]
    before = inline(picture)
    png(picture)
    assert inline(picture) == before


def test_drawing_leaves_the_users_own_style_alone():
    with matplotlib.rc_context({"font.size": 23.0, "svg.fonttype": "path"}):
        text = inline(draw(made.findings())[0])
        assert matplotlib.rcParams["font.size"] == 23.0
        assert matplotlib.rcParams["svg.fonttype"] == "path"
    assert "font-size: 10px" in text
    assert "23px" not in text


def test_letters_that_the_font_lacks_are_drawn_without_a_warning(recwarn):
    with drawing():
        pass
    draw(odd.named())
    assert not recwarn.list


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("phone-1", "phone-1"),
        ("two\nlines", "two lines"),
        ("   ", "(no name)"),
        ("x" * 23, "x" * 21 + "…"),
    ],
)
def test_names_in_pictures_are_short_and_on_one_line(name, expected):
    assert short(name) == expected
