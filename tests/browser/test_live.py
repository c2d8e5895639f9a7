"""Regions that follow the ledger, views that a browser keeps, and graphs in the first look at a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfm.web.console import state_words
from kfm.web.console.views import pipeline_runs
from kfm.web.console.views.explanation import ShownExplanation, ShownSentence
from kfm.web.console.views.pipeline_runs import PipelineRunView, graph
from kfm.web.console.visit import Visit
from tests.browser.filled import Filled
from tests.integration.web.console.test_graphs import nodes_of

pytestmark = pytest.mark.req("REL-4")
Tab = Callable[..., Any]
FOLLOW = """() => new Promise(done => {
  const seen = new MutationObserver(() => { seen.disconnect(); done(true); });
  seen.observe(document.getElementById("as-of"), { childList: true, subtree: true, attributes: true });
  document.dispatchEvent(new Event("visibilitychange"));
  setTimeout(() => { seen.disconnect(); done(false); }, 4000);
})"""


def test_twenty_updates_keep_focus_scroll_details_and_what_was_typed(
    site: str, filled: Filled, tab: Tab
) -> None:
    """News moves and interrupts no person."""
    page = tab(viewport={"width": 1000, "height": 500}).page
    page.goto(f"{site}runs/{filled.failed_id}?tab=timeline")
    page.click("details.table summary")
    page.focus("details.table summary")
    page.evaluate("scrollTo(0, 321)")
    before = page.evaluate("scrollY")
    answers: list[str] = []
    page.on("response", lambda answer: answers.append(answer.url))
    for _ in range(20):
        assert page.evaluate(FOLLOW)
        assert page.evaluate("document.activeElement.localName") == "summary"
        assert abs(page.evaluate("scrollY") - before) <= 1
        assert page.evaluate("document.querySelector('details.table').open")
    assert sum("tab=timeline" in one for one in answers) >= 20  # it did follow
    page.goto(f"{site}activity")
    page.select_option("#filter-outcome", "failed")
    page.fill("#filter-text", "T-1")
    page.focus("#search")
    assert page.evaluate(FOLLOW)
    assert page.input_value("#filter-outcome") == "failed"
    assert page.input_value("#filter-text") == "T-1"


def test_a_pause_outlives_the_page_and_a_stale_page_says_so(site: str, tab: Tab) -> None:
    """What was paused stays so on the next page; after three updates without an answer it says its age."""
    page = tab().page
    page.clock.install()
    page.goto(site)
    page.keyboard.press(".")
    assert page.inner_text("#live [role=status]") == "paused"
    page.goto(f"{site}activity")
    page.wait_for_function("document.querySelector('#live [role=status]').textContent === 'paused'")
    page.keyboard.press(".")
    assert page.inner_text("#live [role=status]") == "live"
    page.route("**/activity*", lambda route: route.abort())
    page.clock.run_for(110_000)
    page.wait_for_function("document.querySelector('#live [role=status]').textContent.startsWith('stale')")


def test_a_view_is_saved_under_its_name(site: str, tab: Tab) -> None:
    """By script in this browser, as a link to the filters; the usual ones are links without scripts."""
    page = tab().page
    page.goto(f"{site}activity?last=7d&outcome=failed")
    page.fill("#view-name", "Mine")
    page.keyboard.press("Enter")
    page.goto(f"{site}activity")
    page.click("[data-views] a")
    assert page.url.endswith("activity?last=7d&outcome=failed")
    page.click("[data-views] button")
    page.reload()
    assert page.locator("[data-views] li").count() == 0
    plain = tab(java_script_enabled=False).page
    plain.goto(f"{site}activity")
    plain.click("a:text-is('Refused')")
    assert "outcome=refused" in plain.url
    assert not plain.locator("[data-save-view]").is_visible()


@pytest.mark.parametrize("size", [(1400, 900), (390, 844)])
def test_a_failed_node_is_in_the_first_look(
    site: str, tab: Tab, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    """Of a graph of 50, 200 and 1,000 nodes, without scrolling, also on a phone; the page is small."""

    def view(visit: Visit, run_id: str) -> PipelineRunView:
        sentence = ShownSentence(text="Node basin3_2 failed: no such column.", record="node", href=None)
        return PipelineRunView(
            run_id=run_id,
            title="Pipeline soil",
            pipeline_id="soil",
            branch="main",
            word=state_words.word("failed"),
            started_ms=0,
            ended_ms=1,
            attempt=1,
            graph=graph(visit, nodes_of(int(run_id), "basin3_2")),
            node=None,
            why=ShownExplanation(reason=sentence, chain=()),
            command="kfm graph last",
        )

    monkeypatch.setattr(pipeline_runs, "pipeline_run_view", view)
    width, height = size
    page = tab(viewport={"width": width, "height": height}).page
    for count in (50, 200, 1000):
        page.goto(f"{site}pipelines/{count}")
        box = page.locator(".box.bad").first.bounding_box()
        assert box["y"] >= 0, count
        assert box["y"] + box["height"] <= height, count
        assert box["x"] >= 0, count
        assert box["x"] + box["width"] <= width, count
        assert page.evaluate("document.documentElement.scrollWidth") <= width
