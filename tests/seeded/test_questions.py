"""What an operator asks is answered on Home, or within two clicks of it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

import pytest

from tests.seeded.site import CONSOLE, Site, links, plain

SEARCH = "search "


class Question(NamedTuple):
    """`clicks`: what is in the address or the text of each link, in order, or `search` and what is typed;
    `answers`: what the last page says, in order."""

    asks: str
    clicks: tuple[str, ...]
    answers: tuple[str, ...]


QUESTIONS = (
    Question(
        "what is broken", (), ("8 of 13 datasets are behind", "failing: ks-wells KFM303", "since 11-11 13:16")
    ),
    Question("is it fresh", ("/datasets/ks-streamflow",), ("ks-streamflow ~ incomplete", "past its time")),
    Question(
        "what ran last night",
        ("/activity",),
        ("last 24 hours", "06:01:00 ! failed ks-drought", "00:01:00 ✓ published ks-reservoirs"),
    ),
    Question(
        "why did this not run", ("/schedules/gauges",), ("paused", "ann", "API key is being rotated, OPS-481")
    ),
    Question(
        "what runs next",
        (),
        (
            "Next 24 h",
            "13:15 ks-rainfall",
            "ks-roads will wait: Frozen",
            "reviewed|The new ro",
        ),
    ),
    Question(
        "what changed in this version",
        ("/datasets/ks-counties", "/runs/"),
        ("ks-counties", "version 9"),
    ),
    Question(
        "which objects are missing",
        ("Incident",),
        ("57 (units|objects) dead-lettered", "s3://noaa-hrrr-bdp-pds/hrrr.20261115/conus/hrrr.t21z"),
    ),
    Question("where does the time go", ("/runs/", "Timeline"), ("1 attempt in", "fetch 1\\d ms", "publish")),
    Question("who stopped it", (), ("ks-soil-moisture Kill switch, paused by bob: USDA reissues October",)),
    Question(
        "find a ticket",
        (f"{SEARCH}OPS-477",),
        ("switch dataset:ks-soil-moisture", "bob: USDA reissues October"),
    ),
)


@pytest.mark.req("REL-4")
@pytest.mark.parametrize("question", QUESTIONS, ids=[one.asks for one in QUESTIONS])
@pytest.mark.parametrize("who", ["rea", "ann"])
def test_a_question_is_answered_within_two_clicks(site: Site, question: Question, who: str) -> None:
    """From Home on, by links that are there, as a reader and as an operator."""
    visitor = site.as_person(who)
    assert len(question.clicks) <= 2
    page = visitor.page(CONSOLE)
    for click in question.clicks:
        if click.startswith(SEARCH):
            page = visitor.page(f"search?q={quote(click.removeprefix(SEARCH))}")
            continue
        main = page[page.index('<main id="main"') :] if "/" not in click or click.count("/") > 1 else page
        href = next(href for href, text in links(main) if click in href or click == text)
        page = visitor.page(href)
    said = plain(page[page.index('<main id="main"') :])
    place = 0
    for answer in question.answers:
        found = re.compile(answer).search(said, place)
        assert found, (question.asks, answer, said[:3000])
        place = found.start()
