"""The console in a real browser: with and without scripts, by keyboard, for those who see and who do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Watched
from tests.browser.filled import LAKE_DAYS, TOKENS, Filled

Tab = Callable[..., Watched]
NARROW = {"width": 320, "height": 640}  # 1280 pixels at 400 %
# Every rule, without a tale of what is well.
QUICK = {"resultTypes": ["violations"], "selectors": False, "preload": False}
FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']"
# Which elements can be come to now, in order; what is inside closed details can't.
REACHABLE = f"""() => [...document.querySelectorAll("{FOCUSABLE}")]
  .filter(each => each.checkVisibility() && each.type !== "hidden")
  .map((each, index) => (each.dataset.place = index))"""
FOCUSED = """() => {
  const each = document.activeElement, style = getComputedStyle(each);
  return [each.dataset.place ?? null, style.outlineStyle, parseFloat(style.outlineWidth)];
}"""


def _origin(site: str) -> str:
    parts = urlsplit(site)
    return f"{parts.scheme}://{parts.netloc}/"


def _shorter(path: str) -> str:
    """The same page with fewer rows, all of which are alike: a rule takes its time over each."""
    shorter = {
        "requests": "requests?state=done",
        "audit": "audit?kind=switch",
        "schedules/well-often": "?days=7",
    }
    query = shorter.get(path, "")
    return path + query if query.startswith("?") else query or path


@pytest.mark.req("REL-4")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_on_any_page(site: str, filled: Filled, tab: Tab, scheme: str) -> None:
    """No rule of WCAG 2.1 AA, nor a best practice, is broken, in light and in dark."""
    from axe_playwright_python.sync_playwright import Axe

    watched = tab(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    axe = Axe()
    # A colour scheme changes colours, and nothing else that a rule asks about.
    options = QUICK if scheme == "light" else {**QUICK, "runOnly": ["color-contrast"]}
    for path in map(_shorter, filled.paths):
        watched.page.goto(site + path)
        watched.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        found = axe.run(watched.page, options=options).response["violations"]
        told = [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3]) for rule in found]
        assert told == [], f"{path} ({scheme}): {told}"


@pytest.mark.req("REL-4")
def test_axe_finds_no_barrier_on_the_way_in(guarded_site: str, tab: Tab) -> None:
    """Neither on the form nor where a token was refused."""
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        page = tab(color_scheme=scheme).page
        page.goto(guarded_site)
        assert Axe().run(page, options=QUICK).response["violations"] == []
        page.fill("#token", "x" * 40)
        page.click("main button")
        page.wait_for_selector("[role=alert]")
        assert Axe().run(page, options=QUICK).response["violations"] == []


@pytest.mark.req("REL-4")
@pytest.mark.parametrize("scripts", [True, False])
def test_pages_work_with_and_without_scripts_and_ask_no_other_server(
    site: str, filled: Filled, tab: Tab, scripts: bool
) -> None:
    """Every page shows its heading, runs only what is ours, logs nothing, and asks only this server."""
    watched = tab(java_script_enabled=scripts)
    for path in filled.paths:
        watched.page.goto(site + path)
        assert watched.page.locator("h1").count() == 1, path
        assert watched.page.locator("main").inner_text().strip() != "", path
        assert watched.page.title().endswith("kfm plains"), path
        assert watched.page.locator("body script, iframe, main img, [onerror]").count() == 0, path
    assert watched.odd == []
    foreign = [url for url in watched.asked if not url.startswith((_origin(site), "data:image/svg+xml"))]
    assert foreign == []


@pytest.mark.req("REL-4")
def test_filters_and_paging_work_without_scripts(site: str, tab: Tab) -> None:
    """A choice and a button lead to an address that holds the filter; links lead on and back."""
    page = tab(java_script_enabled=False).page
    page.goto(site + "runs")
    page.select_option("#filter-status", "failed")
    page.click("main form button")
    assert "status=failed" in page.url
    assert page.locator("tbody tr").count() == 1
    page.goto(site + "audit")
    page.click("text=Older →")
    assert "before=" in page.url
    page.click("text=← Newest")
    assert page.locator("tbody tr").count() == 50


@pytest.mark.req("REL-4")
@pytest.mark.parametrize(
    "what", ["", "run", "schedules/river-daily", "datasets/lakes", "held", "audit?kind=switch"]
)
def test_the_keyboard_reaches_everything_in_order(site: str, filled: Filled, tab: Tab, what: str) -> None:
    """Tab comes to each link, field and region once, in order, and each shows that it has it."""
    page = tab().page
    page.goto(site + (f"runs/{filled.run_id}" if what == "run" else what))
    places = page.evaluate(REACHABLE)
    assert len(places) > 10
    for place in places:
        page.keyboard.press("Tab")
        found, outline, width = page.evaluate(FOCUSED)
        assert found == str(place), (what, place, found)
        assert (outline, width >= 2) == ("solid", True), (what, place)


@pytest.mark.req("REL-4")
def test_the_keyboard_alone_gets_everywhere(site: str, filled: Filled, tab: Tab) -> None:
    """Enter skips to the content, follows links, opens tables behind pictures; without a script at all."""
    page = tab(java_script_enabled=False).page
    page.goto(site)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url.endswith("#main"))
    page.keyboard.press("Tab")  # from the content on, not through the navigation again
    page.keyboard.press("Enter")
    page.wait_for_url("**/datasets/*")  # of the first cause
    page.goto(site)
    for _ in range(4):  # skip, name, home, datasets
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/datasets")
    page.goto(f"{site}runs/{filled.run_id}?tab=graph")
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.table").first.get_attribute("open") is not None


@pytest.mark.req("REL-4")
def test_pages_reflow_at_four_hundred_per_cent(site: str, filled: Filled, tab: Tab) -> None:
    """On 320 pixels nothing but tables and pictures has to be moved sideways, and those by themselves."""
    page = tab(viewport=NARROW).page
    for path in filled.paths:
        page.goto(site + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= NARROW["width"], (path, width)


@pytest.mark.req("REL-4")
def test_motion_is_only_for_those_who_want_it(site: str, tab: Tab) -> None:
    """Who asks for less motion gets none."""
    for motion, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        page = tab(reduced_motion=motion).page
        page.goto(site)
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == behaviour


@pytest.mark.req("REL-4")
def test_pictures_say_in_words_what_they_show(site: str, filled: Filled, tab: Tab) -> None:
    """Each picture has a title, a description and a table with as many rows as it has signs."""
    page = tab().page
    for path in (
        f"runs/{filled.run_id}?tab=timeline",
        f"pipelines/{filled.pass_id}",
        "schedules/river-daily",
    ):
        page.goto(site + path)
        for picture in page.locator("svg[role=img]").all():
            assert picture.locator("> title").text_content(), path
            assert picture.locator("> desc").text_content(), path
    page.goto(f"{site}pipelines/{filled.pass_id}")
    assert page.locator("svg .box").count() == 4
    assert page.locator("details.table tbody tr").count() == 4
    page.goto(f"{site}schedules/river-daily")
    assert page.locator("svg .cell").count() == page.locator("table tbody tr").count()


@pytest.mark.req("DAT-1", "REL-4")
def test_a_dataset_is_followed_from_the_first_page(site: str, filled: Filled, tab: Tab) -> None:
    """Without a script: from its row to its windows, as many cells as rows; a count leads to its windows, and
    each that is missing has the command that asks for it."""
    page = tab(java_script_enabled=False).page
    page.goto(site)
    page.click("main >> text=lakes")
    page.wait_for_url("**/datasets/lakes")
    assert page.locator("svg .cell").count() == LAKE_DAYS
    assert page.locator("#windows ~ .scroll tbody tr").count() == LAKE_DAYS
    title = page.locator("svg > title").first.text_content()
    assert title == "Windows of lake"
    page.click("text=2 missing")
    page.wait_for_url("**state=missing**")
    asked = page.locator("#windows ~ .scroll tbody tr .command").all_inner_texts()
    assert len([text for text in asked if text.startswith("kfm run --source lake --window ")]) == 2
    page.click("text=← Earlier")
    assert "from=" in page.url


@pytest.mark.req("GOV-3")
def test_signing_in_and_out_without_scripts(guarded_site: str, tab: Tab) -> None:
    """A token in a form opens the pages; it is in no address, and no script could read the cookie."""
    watched = tab(java_script_enabled=False)
    page: Any = watched.page
    page.goto(guarded_site + "runs?status=failed")
    assert "/sign-in?next=" in page.url
    page.fill("#token", TOKENS["cy"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?status=failed")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
    assert not any(TOKENS["cy"] in url for url in watched.asked)
    page.click("text=Sign out")
    page.wait_for_url("**/sign-in")
    assert page.context.cookies() == []
    assert watched.odd == []
