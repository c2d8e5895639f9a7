"""Every number equals the list behind it, and every list ends with its last row, however long it is."""

from __future__ import annotations

import html
import pkgutil
import re
from importlib import import_module
from typing import NamedTuple

import apsw
import pytest

from bench.unit_rows import fill_sqlite
from kfm.app import App
from kfm.config.loader import load
from kfm.model.times import rfc3339
from kfm.runs.kernel import RunRequest
from kfm.web.console import views
from kfm.web.request_context import WebContext
from tests.history import multiply
from tests.integration.web.console.reading import Reader
from tests.seeded.site import Site, links, plain
from tests.world.story import NOW_MS

CONFIG = """\
version: 1
environment: test
datasets:
  - {id: rivers, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - {id: river, dataset: rivers, kind: files, folder: incoming, window: P1D}
  - {id: broken, dataset: rivers, kind: files, folder: incoming, partition: b, pipeline: "broken.py:publish"}
"""
OLDER = re.compile(r'<a href="([^"]+)" rel="next"')


class ListOf(NamedTuple):
    """A list of the console, the addresses of its rows, and the statement that counts them."""

    address: str
    row: str
    sql: str


LISTS = (
    ListOf("runs", '/console/runs/[^?"#]+', "SELECT COUNT(*) FROM runs"),
    ListOf("activity?last=all", '/console/calls/[^?"#]+', "SELECT COUNT(*) FROM invocations"),
    ListOf("held", '/console/held/[^?"#]+', "SELECT COUNT(*) FROM held WHERE state = 'held'"),
    ListOf("units", '/console/units/[^?"#]+', "SELECT COUNT(*) FROM units"),
)


@pytest.fixture(scope="module", params=[0, 1, 501, 10_001])
def sized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Reader, str]:
    """A ledger with so many runs, triggers, entries of the quarantine and units."""
    count: int = request.param
    folder = tmp_path_factory.mktemp(f"sized{count}")
    (folder / "incoming").mkdir()
    (folder / "incoming" / "a.csv").write_text("day,flow\n1,2\n")
    (folder / "broken.py").write_text("def publish(context):\n    raise ValueError('no such column')\n")
    (folder / "kfm.yml").write_text(CONFIG)
    loaded = load(str(folder / "kfm.yml"))
    app = App(loaded, read_only=False, progress=None)
    if count:
        app.run(RunRequest(source_id="broken", actor="ann"))
    else:
        app.kernel.store.heads()
    app.close()
    ledger = str(folder / ".kfm" / "kfm.db")
    if count > 1:
        multiply(ledger, count - 1)
        _quarantined(ledger, count - 1)
    if count:
        connection = apsw.Connection(ledger)
        fill_sqlite(connection.execute, count)
        connection.execute(
            "INSERT INTO unit_totals (dataset, name, amount, high_ms) "
            "SELECT dataset, status, COUNT(*), MAX(time_range_end_ms) FROM units GROUP BY dataset, status"
        )
        connection.close()
    return count, Reader(WebContext(loaded)), ledger


def _quarantined(ledger: str, rows: int) -> None:
    made = {
        "number": "NULL",
        "held_id": "printf('%08x-0000-8000-8000-%012x', i, i)",
        "subject": "printf('%08x-0000-8000-8000-%012x', i, i)",
        "held_at_ms": "o.held_at_ms - i * 1000",
    }
    connection = apsw.Connection(ledger)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(held)")]
    values = ", ".join(made.get(column, f"o.{column}") for column in columns)
    connection.execute(
        f"INSERT INTO held ({', '.join(columns)}) WITH RECURSIVE many (i) AS "
        f"(SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < {rows}) "
        f"SELECT {values} FROM many, (SELECT * FROM held LIMIT 1) AS o"
    )
    connection.close()


def _longer_pages(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Fewer pages to walk through; what leads from one to the next is the same."""
    for found in pkgutil.iter_modules(views.__path__):
        module = import_module(f"{views.__name__}.{found.name}")
        if hasattr(module, "ROWS"):
            monkeypatch.setattr(module, "ROWS", rows)


def _walked(reader: Reader, listed: ListOf) -> list[str]:
    """The rows that links to older ones lead to, to the end."""
    found: list[str] = []
    address = listed.address
    for _ in range(100):
        text = reader.ask(address).text
        main = text[text.index('<main id="main"') :]
        found += dict.fromkeys(re.findall(rf'<th scope="row"[^>]*><a href="({listed.row})"', main))
        older = OLDER.search(main)
        if older is None:
            return found
        address = f"http://127.0.0.1{html.unescape(older[1])}"
    raise AssertionError(f"{listed.address} has no end")


@pytest.mark.req("REL-4")
@pytest.mark.parametrize("listed", LISTS, ids=[one.address.partition("?")[0] for one in LISTS])
def test_a_list_ends_with_its_last_row(
    sized: tuple[int, Reader, str], listed: ListOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By links to older ones every row on record is come to, once: of none, one, 501 and 10,001."""
    count, reader, ledger = sized
    if count > 1000:
        _longer_pages(monkeypatch, 1000)
        monkeypatch.setattr("kfm.web.console.views.activity.LOOKED_MAX", 2000)
    connection = apsw.Connection(ledger, flags=apsw.SQLITE_OPEN_READONLY)
    (known,) = next(connection.execute(listed.sql))
    connection.close()
    assert known == count
    found = _walked(reader, listed)
    assert len(found) == len(set(found)) == known


@pytest.mark.req("REL-4")
def test_counts_of_units_are_those_of_their_lists(
    sized: tuple[int, Reader, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each figure of the table of feeds leads to a list with as many units."""
    count, reader, _ = sized
    _longer_pages(monkeypatch, 1000)
    page = reader.ask("feeds").text
    found = [
        (href, int(text.replace(",", ""))) for href, text in links(page) if re.fullmatch(r"[\d,]+", text)
    ]
    assert bool(found) == bool(count)
    for href, number in found[:6]:
        assert len(_walked(reader, ListOf(f"http://127.0.0.1{href}", LISTS[3].row, ""))) == number, href


@pytest.mark.req("REL-4", "DAT-1")
def test_counts_of_causes_are_those_of_their_lists(site: Site) -> None:
    """So many windows as Home says of a cause are on its datasets' lists, and so many objects are held."""
    ann = site.as_person("ann")
    needs = ann.api("/status")["needs"]
    assert needs
    states = {
        "failing": ("failed", "quarantined", "refused"),
        "late": ("missing", "overdue"),
        "incomplete": ("missing",),
        "paused": ("waiting",),  # of these, those past their time
    }
    now = rfc3339(NOW_MS)
    home = plain(ann.page())
    for need in needs:
        if need["unit"] == "window" and need["count"]:
            listed = sum(
                need["kind"] != "paused" or one["due_at"] <= now
                for name in need["about"]
                for state in states[need["kind"]]
                for one in ann.api(f"/datasets/{name}/coverage?limit=1000&state={state}")["windows"]
            )
        elif need["unit"] == "object":
            listed = sum(
                len(ann.api(f"/units?dataset={name}&status={status}&limit=500")["units"])
                for name in need["about"]
                for status in ("failed", "quarantined")
            )
        else:
            continue
        assert f"{need['count']} {need['unit']}" in home
        assert listed == need["count"], need
