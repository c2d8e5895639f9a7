"""The seeded world in a real browser: what is seen first, at which size, and what the keyboard alone does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Watched, served
from tests.seeded.changes import CHANGES, REASON, entries, newest
from tests.seeded.crawl import crawl, kind_of
from tests.seeded.site import CONSOLE, Site, site_of
from tests.world.keeping import claim_running, copied_world
from tests.world.story import TOKENS

Tab = Callable[..., Watched]
SCREEN = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}
EVERYTHING = {
    "resultTypes": ["violations"],
    "selectors": False,
    "preload": False,
    "rules": {"target-size": {"enabled": True}},
}
CONTRAST = {**EVERYTHING, "runOnly": ["color-contrast"], "rules": {}}
# What comes after the first rows is like them; a rule takes its time over each.
SHORTER = """() => {
  document.querySelectorAll("details").forEach((each) => { each.open = true });
  document.querySelectorAll("tbody").forEach((each) =>
    [...each.rows].slice(6).forEach((row) => row.remove()));
  document.querySelectorAll("svg .cell ~ .cell ~ .cell").forEach((each) => each.remove());
}"""
CAUSES = """() => [...document.querySelectorAll(".needs > ol > li")].map((each) => {
  const name = each.querySelector(".what b"), box = name.getBoundingClientRect();
  return [each.querySelector(".what .unseen").textContent.replace(":", "").trim(), name.textContent.trim(),
    box.bottom + scrollY];
})"""
# Of the field that has the keyboard: its name, its kind, and what has to be typed into the one that confirms.
FIELD = """() => {
  const each = document.activeElement, form = each.closest("main form[method=post]");
  return form ? [each.name, each.type, form.querySelector("label code")?.textContent] : ["", "", ""];
}"""
# In the order of harm: what readers see wrongly, what has stopped, what fails, what is late, what rests.
ORDER = ("failing", "circuit open", "dead letter", "late", "incomplete", "refused", "paused",
         "waiting for approval")  # fmt: skip


@pytest.fixture(scope="module")
def site(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Site]]:
    """Where the world is served; its module is at the world's last moment meanwhile."""
    folder = copied_world(tmp_path_factory.mktemp("browsed") / "world")
    with site_of(folder) as found, served(found.app) as address:
        yield address, found


def _signed_in(opened: Watched, address: str, who: str) -> Any:
    page = opened.page
    page.goto(f"{address}sign-in")
    page.fill("#token", TOKENS[who])
    page.keyboard.press("Enter")
    page.wait_for_url(address)
    return page


@pytest.mark.req("REL-4")
def test_every_cause_is_seen_at_once_in_order(site: tuple[str, Site], tab: Tab) -> None:
    """On a screen of 1400 × 900 every cause has its name above the fold: what fails first, what was put to
    rest on purpose last."""
    page = _signed_in(tab(viewport=SCREEN), site[0], "ann")
    found = page.evaluate(CAUSES)
    assert len(found) >= 9
    assert [one for one in found if one[2] >= SCREEN["height"]] == []
    ranks = [ORDER.index(word) for word, *_ in found]
    assert ranks == sorted(ranks), found
    names = [name for _, name, _ in found]
    assert sorted(names[:3]) == ["ks-air-quality", "ks-drought", "ks-wells"]


@pytest.fixture(scope="module")
def pages(site: tuple[str, Site]) -> list[str]:
    """A page of every route of the table, and every tab of one, as an approver comes to them."""
    found: dict[tuple[str, ...], str] = {}
    for path, _, _, _ in crawl(site[1].as_person("bob"), 1):
        route, *query = kind_of(path)
        kind = ("do" if route.startswith("do/") else route, *(one for one in query if "=" in one[:5]))
        found.setdefault(kind, path.removeprefix(CONSOLE))
    return [path for path in found.values() if "log.txt" not in path]


def _violations(page: Any, options: dict[str, Any]) -> list[Any]:
    found = page.evaluate(
        "(options) => axe.run(document, options).then(({violations}) => violations)", options
    )
    return [(rule["id"], [node["html"][:160] for node in rule["nodes"]][:3]) for rule in found]


@pytest.mark.req("REL-4")
def test_axe_finds_no_barrier_on_a_phone_nor_in_the_dark(
    site: tuple[str, Site], pages: list[str], tab: Tab
) -> None:
    """On 390 pixels nothing is wider than the screen, every target has 24 pixels or room around it, and axe
    finds nothing in light, nor in dark."""
    from axe_playwright_python.base import AXE_FILE_PATH

    page, axe = _signed_in(tab(viewport=PHONE), site[0], "bob"), AXE_FILE_PATH.read_text()
    troubles = []
    for path in pages:
        page.emulate_media(color_scheme="light")
        page.goto(site[0] + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        troubles += [(path, "wide", width)] if width > PHONE["width"] else []
        page.evaluate(SHORTER)
        page.evaluate(axe)
        troubles += [(path, "light", *one) for one in _violations(page, EVERYTHING)]
        page.emulate_media(color_scheme="dark")
        troubles += [(path, "dark", *one) for one in _violations(page, CONTRAST)]
    assert troubles == []


@pytest.mark.req("REL-4", "GOV-3")
@pytest.mark.parametrize("scripts", [True, False])
def test_each_change_is_made_by_keyboard(
    site: tuple[str, Site], tab: Tab, tmp_path: Path, scripts: bool
) -> None:
    """With scripts and without them: from the address of its form to its receipt with the keyboard alone, and
    one entry in the audit log."""
    changed = Site(copied_world(tmp_path / "world"))
    with closing(claim_running(changed.folder)), served(changed.app) as address:
        people = {
            who: _signed_in(tab(viewport=SCREEN, java_script_enabled=scripts), address, who)
            for who in ("ann", "bob")
        }
        for change in CHANGES:
            page = people[change.who]
            path = change.address(changed.as_person(change.who))
            page.goto(address + path)
            before = newest(changed)
            _fill_in(page, {"rationale": REASON, **change.more})
            page.wait_for_selector("main section[role=status]")
            made = [one.actor for one in entries(changed, before) if one.rationale == REASON]
            assert made == [change.who], change


def _fill_in(page: Any, values: dict[str, str]) -> None:
    """From field to field by Tab; what has to be typed is typed, and Enter on the button sends it."""
    left = dict(values)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to the content
    for _ in range(60):
        page.keyboard.press("Tab")
        name, kind, code = page.evaluate(FIELD)
        if kind == "submit":
            assert left == {}
            page.keyboard.press("Enter")
            return
        if name == "typed":
            page.keyboard.type(code)
        elif name in left:
            value = left.pop(name)
            if kind == "datetime-local":
                day, _, time = value.partition("T")
                year, month, number = day.split("-")
                assert time == "00:00"
                page.keyboard.type(f"{month}{number}{year}")
                page.keyboard.press("Tab")  # only from the year the browser does not go on by itself
                page.keyboard.type("120000AM")
            else:
                page.keyboard.type(value)
    raise AssertionError(f"the button is not come to: {page.url}")
