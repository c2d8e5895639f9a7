"""The audit log as a page: sentences, filters, and a verdict in parts."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from kfm.audit import chain
from kfm.model.records import GovernanceEntry
from kfm.reports.audit import entry_sentence
from tests.browser.filled import Filled
from tests.integration.web.api.world import World
from tests.integration.web.console.reading import Reader

pytestmark = pytest.mark.req("GOV-2", "REL-4")
PARTS = re.compile(r"Entries ([\d,]+) to ([\d,]+) of")


@pytest.fixture
def entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A log of 25 entries, of which a page checks ten."""
    monkeypatch.setattr(chain, "PART_ROWS", 10)
    monkeypatch.setattr(chain, "PAGE_ROWS", 5)
    world = World(tmp_path / "p", people=False)
    app = world.opened()
    try:
        for number in range(25):
            app.set_switch("all", "running", rationale=f"number {number}", actor="ann")
    finally:
        app.close()
    return world


def _parts(world: World) -> list[str]:
    """What each page says, one after the other to the end."""
    reader, said = Reader(world.context), []
    later = [0]
    while later:
        (after,) = later
        page = reader.page(f"audit/verify?after={after}")
        said.append(page.text.partition("Audit log ")[2].partition(" That the end")[0])
        found = (re.search(r"verify\?after=(\d+)$", link) for link in page.links())
        later = sorted({int(one[1]) for one in found if one is not None and int(one[1]) > after})
    return said


def test_parts_one_after_the_other_are_the_whole(entered: World) -> None:
    """Each page checks so many rows and leads to the next; together they begin at 1 and end at the end."""
    said = _parts(entered)
    assert [PARTS.search(each).groups() for each in said] == [("1", "10"), ("11", "20"), ("21", "25")]  # type: ignore[union-attr]
    assert all("✓ sound" in each for each in said)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE governance SET actor = 'eve' WHERE number = 13", "Entry 13 is not"),
        ("DELETE FROM governance WHERE number = 21", "Entry 21 is not"),
        ("UPDATE governance SET hash = lower(hex(zeroblob(32))) WHERE number = 10", "Entry 10 is not"),
        ("DELETE FROM governance WHERE number > 22", "Entry 23 is not"),
        ("DELETE FROM chain_heads", "Entry 1 is not"),
    ],
)
def test_what_was_changed_is_named_in_its_part(entered: World, statement: str, named: str) -> None:
    """An entry that was edited, deleted or cut off, also at the border of two parts."""
    connection = apsw.Connection(str(entered.folder / ".kfm" / "kfm.db"))
    connection.execute(statement)
    connection.close()
    *before, last = _parts(entered)
    assert all("✓ sound" in each for each in before)
    assert "! broken" in last
    assert named in last


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=99999999999999999999", "before=1"])
def test_nonsense_is_refused(reader: Reader, query: str) -> None:
    """An address that no page links to is an answer that says so."""
    assert reader.ask(f"audit/verify?{query}").status_code == 400


def test_a_place_beyond_the_end_is_no_error(reader: Reader) -> None:
    """There is nothing to check."""
    assert "! broken" not in reader.page("audit/verify?after=999999").text


def test_entries_are_read_as_sentences(reader: Reader, filled: Filled) -> None:
    """Who did what to what, and where that leads; a person's entries are a link away."""
    page = reader.page("audit?kind=promotion")
    assert "published version 1 of rivers" in page.text
    assert f"/console/runs/{filled.run_id}" in page.links()
    mine = reader.page("audit?actor=ann&kind=schedule-pause")
    assert mine.text.count("schedule pause") == 1
    assert "No entry matches" in reader.page("audit?actor=someone-else").text
    assert "No entry matches" in reader.page("audit?to=2020-01-01").text
    assert reader.ask("audit?from=noon").status_code == 400


def test_a_fact_that_is_not_told_leaves_no_gap() -> None:
    """Where facts are withheld, or the kind is of another kfm, the sentence is whole all the same."""
    entry = GovernanceEntry(kind="promotion", subject="r", actor="ann", recorded_at_ms=1)
    assert entry_sentence(entry) == "published a version"
    told = {"sequence": 3, "dataset_id": "rivers", "windows": ["a", "b", "c", "d"]}
    assert entry_sentence(GovernanceEntry(**{**_fields(entry), "details": told})) == (
        "published version 3 of rivers"
    )
    dismissed = GovernanceEntry(**{**_fields(entry), "kind": "window-dismissed", "details": told})
    assert entry_sentence(dismissed) == "dismissed a, b, c and 1 more"
    assert entry_sentence(GovernanceEntry(**{**_fields(entry), "kind": "some-new-kind"})) == "some new kind"


def _fields(entry: GovernanceEntry) -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}
