"""Activity: every trigger with its outcome, to the last one, within the time that was asked for."""

from __future__ import annotations

import re

import pytest

from tests.browser.filled import Filled
from tests.integration.web.console.reading import Reader

ROWS = re.compile(r'<tr><th scope="row"><a href="(/console/calls/[^"]+)">')
OLDER = re.compile(r'<a href="/console/(activity[^"]+)" rel="next">')


def _rows(text: str) -> list[str]:
    return ROWS.findall(text)


def _to_the_end(reader: Reader, path: str) -> list[str]:
    found: list[str] = []
    pages = 0
    while path:
        text = reader.ask(path).text
        found += _rows(text)
        older = OLDER.search(text)
        path = older[1].replace("&amp;", "&") if older else ""
        pages += 1
        assert pages < 100
    return found


@pytest.mark.req("REL-4")
def test_every_invocation_is_listed_unchanged_and_refused_ones_too(reader: Reader, filled: Filled) -> None:
    """As many rows as the ledger has invocations, newest first."""
    with filled.context.reader() as ledger:
        known = [call.invocation_id for call in ledger.invocations(limit=1000)]
    assert [href.rpartition("/")[2] for href in _to_the_end(reader, "activity?last=all")] == known
    text = reader.page("activity?last=all").text
    assert all(word in text for word in ("published", "unchanged", "refused", "failed"))


def test_pages_lead_to_the_last_row_however_rarely_one_matches(
    reader: Reader, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page reads a bounded number of rows; the link to older ones goes on where it stopped reading."""
    whole = _to_the_end(reader, "activity?last=all&outcome=refused")
    assert whole
    monkeypatch.setattr("kfm.web.console.views.activity.LOOKED_MAX", 2)
    assert _to_the_end(reader, "activity?last=all&outcome=refused") == whole
    monkeypatch.setattr("kfm.web.console.views.activity.ROWS", 1)
    assert len(set(_to_the_end(reader, "activity?last=all"))) == len(_to_the_end(reader, "activity?last=all"))


@pytest.mark.parametrize(
    ("query", "outcomes"),
    [
        ("outcome=noop", {"unchanged"}),
        ("outcome=refused", {"refused"}),
        ("dataset=wells&outcome=failed", {"failed"}),
    ],
)
def test_filters_leave_what_was_asked_for(reader: Reader, query: str, outcomes: set[str]) -> None:
    """Each filter is in the address, and every row is as it says."""
    text = reader.ask(f"activity?last=all&{query}").text
    assert set(re.findall(r'</span>(\w+)</span></td><td><a href="/console/datasets', text)) == outcomes


def test_time_comes_first(reader: Reader) -> None:
    """A span without triggers is empty, one that holds them has them all, and nonsense is refused with a way
    to write it."""
    assert _rows(reader.ask("activity?from=2001-01-01&to=2001-02-01").text) == []
    assert _rows(reader.ask("activity?from=2001-01-01%2006:00").text) == _rows(
        reader.ask("activity?last=all").text
    )
    for nonsense in (
        "from=yesterday",
        "to=2026-13-01",
        "from=2026-02-01&to=2026-01-01",
        "before=x.y",
        "last=2h",
    ):
        answer = reader.ask(f"activity?{nonsense}")
        assert answer.status_code == 400, nonsense
    assert "2026-01-31 06:00" in reader.ask("activity?from=yesterday").text
