"""Search finds what people have a name, an id, an address, a ticket or a code of."""

from __future__ import annotations

import re

import pytest

from tests.browser.filled import Filled
from tests.integration.web.console.reading import Reader

FOUND = re.compile(r'<tr><td>([a-z]+)</td><th scope="row" class="text"><a href="(/console/[^"]+)"')


def _found(reader: Reader, text: str) -> list[tuple[str, str]]:
    from urllib.parse import quote

    return FOUND.findall(reader.ask(f"search?q={quote(text)}").text)


@pytest.mark.req("REL-4")
def test_a_thing_is_found_by_what_is_at_hand(reader: Reader, filled: Filled) -> None:
    """Part of a name, the beginning of an id, an object's address or key: each leads to its page."""
    with filled.context.reader() as ledger:
        unit = ledger.unit_reader().unit(filled.wal_id)
        assert unit is not None
    assert ("dataset", "/console/datasets/rivers") in _found(reader, "IVER")
    assert ("run", f"/console/runs/{filled.run_id}") in _found(reader, filled.run_id[:8])
    assert ("request", f"/console/requests/{filled.request_id}") in _found(reader, filled.request_id[:13])
    assert ("unit", f"/console/units/{filled.wal_id}") in _found(reader, filled.wal_id)


def test_every_answer_leads_to_a_page_that_is_there(reader: Reader, filled: Filled) -> None:
    """No link of a search is dead."""
    hrefs = {href for text in ("r", filled.run_id[:4], "KFM300") for _, href in _found(reader, text)}
    assert hrefs
    for href in hrefs:
        assert reader.ask(f"http://127.0.0.1{href}".replace("&amp;", "&")).status_code == 200, href


@pytest.mark.parametrize("text", ["", " ", "zzzz-nothing", "%", "../..", "s3://x", "a" * 200, "\x00", "é/ü"])
def test_nonsense_finds_nothing_and_says_what_would(reader: Reader, text: str) -> None:
    """Whatever is typed gets a page."""
    from urllib.parse import quote

    answer = reader.ask(f"search?q={quote(text)}")
    assert answer.status_code == 200
    assert FOUND.findall(answer.text) == []
