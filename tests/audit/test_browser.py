"""The page in a real browser: alone, without an error, sortable, printable, open to everyone.

It takes a Chromium on the path. Without one these tests are skipped, unless FEDAVOT_NEEDS_BROWSER
is set, as it is where nothing may be skipped.
"""

import os
import re
import shutil
from collections.abc import Callable

import made
import odd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from fedavot.audit.findings import Findings
from fedavot.audit.report.page import page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 600_000
"""Milliseconds that a page has for what it does at once: a busy machine may be slow."""
WIDE, NARROW = 1280, 380
LOOKS = [(width, scheme) for width in (WIDE, NARROW) for scheme in ("light", "dark")]
PAGES: dict[str, Callable[[], Findings]] = {
    "infeasible": made.infeasible,
    "odd": odd.named,
    "many": odd.many,
    "bare": made.findings,
}


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        if os.environ.get("FEDAVOT_NEEDS_BROWSER"):
            pytest.fail(f"none of {', '.join(BROWSERS)} is on the path, and a browser is required")
        pytest.skip(f"none of {', '.join(BROWSERS)} is on the path")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, findings in PAGES.items():
        (folder / f"{name}.html").write_text(page(findings()), encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, folder):
    """Return a function that opens a page from disk, and the page's requests and errors."""
    contexts = []

    def opened(name="infeasible", *, width=WIDE, scheme="light", script=True):
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            java_script_enabled=script,
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        tab = context.new_page()
        tab.heard = {"requests": [], "errors": []}
        tab.on("request", lambda request: tab.heard["requests"].append(request.url))
        tab.on("pageerror", lambda error: tab.heard["errors"].append(str(error)))
        tab.on("console", lambda message: tab.heard["errors"].append(message.text))
        tab.goto((folder / f"{name}.html").as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()


def unfold(tab):
    tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def rows(tab, caption):
    """Return the first cells of a table, from the top."""
    table = tab.locator("table", has=tab.locator(f"#{caption}"))
    return table.locator("tbody tr:not([hidden]) th").all_inner_texts()


def heading(tab, caption, title):
    table = tab.locator("table", has=tab.locator(f"#{caption}"))
    return table.get_by_role("columnheader", name=title, exact=True)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_makes_no_request_but_for_itself_and_has_no_errors(visit, folder, name):
    tab = visit(name)
    tab.wait_for_load_state("networkidle")
    outside = [url for url in tab.heard["requests"] if not url.startswith("data:")]
    assert outside == [(folder / f"{name}.html").as_uri()]
    assert tab.heard["errors"] == []


def test_names_that_are_scripts_do_not_run(visit):
    tab = visit("odd")
    assert tab.title() == "Audit of <i>log</i>.csv"
    assert tab.locator("img").count() == 0


def test_a_click_on_a_heading_sorts_by_number_and_a_second_one_the_other_way(visit):
    tab = visit()
    head = heading(tab, "groups-table", "Plain average")
    head.get_by_role("button").click()
    assert rows(tab, "groups-table") == ["phones", "tablets", "clinics"]
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert rows(tab, "groups-table") == ["clinics", "tablets", "phones"]
    assert head.get_attribute("aria-sort") == "ascending"


def test_a_heading_is_reached_and_pressed_by_keyboard(visit):
    tab = visit()
    button = heading(tab, "groups-table", "Group").get_by_role("button")
    tab.get_by_role("region", name="All groups").focus()
    tab.keyboard.press("Tab")
    expect(button).to_be_focused()
    tab.keyboard.press("Enter")
    assert rows(tab, "groups-table") == ["clinics", "phones", "tablets"]
    tab.keyboard.press("Space")
    assert rows(tab, "groups-table") == ["tablets", "phones", "clinics"]
    expect(button).to_be_focused()


def test_only_the_column_sorted_by_says_so(visit):
    tab = visit()
    for title in ("Group", "Deviation"):
        heading(tab, "groups-table", title).get_by_role("button").click()
    assert heading(tab, "groups-table", "Group").get_attribute("aria-sort") is None
    assert heading(tab, "groups-table", "Deviation").get_attribute("aria-sort") == "descending"


def test_names_sort_as_people_count(visit):
    tab = visit("many")
    unfold(tab)
    heading(tab, "clients-table", "Client").get_by_role("button").click()
    numbers = [int(one.removeprefix("client-")) for one in rows(tab, "clients-table")]
    assert numbers == sorted(numbers)


def test_what_has_no_number_sorts_last_whichever_way(visit, folder):
    (folder / "unknown.html").write_text(page(made.unknown_client()), encoding="utf-8")
    tab = visit("unknown")
    unfold(tab)
    button = heading(tab, "clients-table", "Rounds with it").get_by_role("button")
    for _ in range(2):
        button.click()
        assert rows(tab, "clients-table")[-1] == made.CLIENTS[11]


def test_a_client_is_found_by_part_of_its_name(visit):
    tab = visit("many")
    unfold(tab)
    tab.get_by_label("Find a client").fill("CLIENT-69")
    found = rows(tab, "clients-table")
    assert found
    assert all("client-69" in one for one in found)
    assert tab.locator("output").inner_text() == f"{len(found)} of 500"
    tab.get_by_label("Find a client").fill("")
    assert len(rows(tab, "clients-table")) == 500


def test_without_a_script_everything_is_still_there(visit):
    tab = visit(script=False)
    assert tab.locator("th button").count() == 0
    tab.get_by_text("Every client", exact=True).click()
    assert tab.get_by_role("region", name="All clients").is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints(visit, name):
    printed = visit(name, scheme="dark").pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 2


def test_paper_is_white_and_shows_what_is_folded_on_the_screen(visit):
    tab = visit(scheme="dark")
    folded = tab.get_by_role("region", name="All clients", include_hidden=True)
    assert not folded.is_visible()
    assert background(tab) != "rgb(255, 255, 255)"
    tab.emulate_media(media="print")
    assert folded.bounding_box()["height"] > 100
    assert background(tab) == "rgb(255, 255, 255)"
    assert not tab.get_by_role("navigation").is_visible()


def background(tab):
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


def test_colours_of_pictures_follow_the_screen(visit):
    colours = {
        scheme: visit(scheme=scheme).evaluate(
            "getComputedStyle(document.querySelector('figure text')).fill"
        )
        for scheme in ("light", "dark")
    }
    assert colours["light"] != colours["dark"]


CUT = """Array.from(document.querySelectorAll('main *'))
    .filter((one) => !one.closest('svg') && getComputedStyle(one).display !== 'inline')
    .filter((one) => one.clientWidth && one.tagName !== 'PRE')
    .filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.outerHTML.slice(0, 80))"""
"""Elements whose content is wider than they are; code may be scrolled."""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [NARROW, 768, WIDE])
def test_a_page_is_no_wider_than_the_screen(visit, name, width):
    tab = visit(name, width=width)
    unfold(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["infeasible", "odd"])
def test_on_a_phone_nothing_is_cut(visit, name):
    tab = visit(name, width=NARROW)
    unfold(tab)
    assert tab.evaluate(CUT) == []
    box = heading(tab, "replay-table", "Needs").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW


def test_text_in_pictures_is_legible_on_a_phone(visit):
    tab = visit(width=NARROW)
    least = 8.0  # pixels of a screen's own size; smaller cannot be read at arm's length
    for size in tab.evaluate(
        """Array.from(document.querySelectorAll('figure svg'), (svg) => {
            const scale = svg.clientWidth / svg.viewBox.baseVal.width;
            const sizes = Array.from(svg.querySelectorAll('text'),
                (text) => parseFloat(getComputedStyle(text).fontSize));
            return scale * Math.min(...sizes);
        })"""
    ):
        assert size >= least


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [*(("infeasible", *look) for look in LOOKS), ("odd", NARROW, "light")],
)
def test_a_page_is_open_to_everyone(visit, name, width, scheme):
    tab = visit(name, width=width, scheme=scheme)
    unfold(tab)
    result = Axe().run(tab).response
    checked = {rule["id"] for rule in result["passes"]}
    assert {"color-contrast", "button-name", "svg-img-alt", "landmark-unique"} <= checked
    found = [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in result["violations"]]
    assert found == []
