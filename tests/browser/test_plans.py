"""Selections of cells with a real browser: mouse, keys and boxes lead to one plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

CELLS = "[data-state][data-window]"


@pytest.mark.req("REL-4")
def test_cells_are_selected_by_mouse_keys_and_boxes(tab: Callable[..., Any], site: str) -> None:
    """A drag selects what it passes over, keys add to it, boxes show it, and the button leads to its plan."""
    watched = tab(viewport={"width": 1400, "height": 1000})
    page = watched.page
    page.goto(f"{site}datasets/lakes")
    cells = page.locator(CELLS)
    cells.first.scroll_into_view_if_needed()
    places = [one.bounding_box() for one in cells.all()]
    start, end = next(pair for pair in itertools.pairwise(places) if pair[0]["y"] == pair[1]["y"])
    page.mouse.move(start["x"] + 8, start["y"] + 8)
    page.mouse.down()
    page.mouse.move(end["x"] + 8, end["y"] + 8, steps=4)
    page.mouse.up()
    picked = page.locator(f"{CELLS}[aria-checked=true]").count()
    assert picked == 2
    button = page.locator("[data-brush]")
    assert button.inner_text() == f"Plan these {picked}"
    assert page.locator("input[name=cell]:checked").count() >= picked
    page.locator(f"{CELLS}[aria-checked=false]").first.focus()
    page.keyboard.press("Space")
    assert button.inner_text() == f"Plan these {picked + 1}"
    page.keyboard.press("Escape")
    assert button.inner_text() == "Plan the selected windows"
    boxes = page.locator("#windows ~ * input[name=cell], section:has(#windows) input[name=cell]")
    boxes.first.check()
    assert button.inner_text() == "Plan these 1"
    button.click()
    page.wait_for_url("**/plans/new?**")
    assert unquote(page.url).count("window:lake@") == 1
    assert "1 selected cell." in page.inner_text("main")
    assert watched.odd == []


def test_boxes_work_without_scripts(tab: Callable[..., Any], site: str) -> None:
    """Two boxes and the button: the same address of a plan, made by the form itself."""
    watched = tab(java_script_enabled=False)
    page = watched.page
    page.goto(f"{site}datasets/lakes")
    boxes = page.locator("section:has(#windows) input[name=cell]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.locator("[data-brush]").click()
    page.wait_for_url("**/plans/new?**")
    assert "2 selected cells." in page.inner_text("main")
