"""Catalogues elsewhere: they show the head, never go backwards, and are read back."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from kfm.model.errors import CircuitOpen, ConfigError, TargetUnavailable
from kfm.model.settings import Target
from kfm.model.versions import edited
from kfm.publish.manifest import merge_items
from kfm.publish.targets.target_kinds import TargetParts, build
from tests.stand_ins import FakeClock
from tests.unit.publish.stand_ins import DATASET, CountedIds, Database, MemoryObjects, asset, item

pytestmark = pytest.mark.req("UPD-6", "TRG-4")
ASSETS = "https://data.example/kfm"
TOKEN = "env:STAC_TOKEN"


class Catalogue:
    """A STAC API with transactions, and documents below /records; what it was asked is kept."""

    def __init__(self) -> None:
        self.collections: dict[str, Any] = {}
        self.items: dict[tuple[str, str], Any] = {}
        self.records: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()
        self.before: list[Callable[[], None]] = []  # one for each PUT, the last first
        self.broken = False
        self.address = ""

    def answer(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        self.tokens.add(headers.get("Authorization"))
        if method == "PUT" and self.before:
            self.before.pop()()
        if self.broken:
            return 503, {}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "records":
            return self._record(method, path, body, headers)
        if len(parts) == 1:
            return self._put(self.collections, json.loads(body)["id"], body)
        if len(parts) == 2:
            return self._one(method, self.collections, parts[1], body)
        if len(parts) == 3 and method == "POST":
            document = json.loads(body)
            return self._put(self.items, (parts[1], document["id"]), body)
        if len(parts) == 3:
            found = [item for (collection, _), item in self.items.items() if collection == parts[1]]
            return 200, {"type": "FeatureCollection", "features": found, "links": []}
        return self._one(method, self.items, (parts[1], parts[3]), body)

    def _one(self, method: str, kept: dict[Any, Any], key: Any, body: bytes) -> tuple[int, Any]:
        if key not in kept:
            return 404, {}
        if method == "PUT":
            return self._put(kept, key, body)
        return 200, kept.pop(key) if method == "DELETE" else kept[key]

    def _put(self, kept: dict[Any, Any], key: Any, body: bytes) -> tuple[int, Any]:
        kept[key] = json.loads(body)
        return 200, kept[key]

    def _record(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        there = self.records.get(path)
        if method == "GET":
            return (404, {}) if there is None else (200, json.loads(there))
        etag = None if there is None else f'"{sha256(there).hexdigest()}"'
        if (headers.get("If-None-Match") and there) or headers.get("If-Match") not in (None, etag):
            return 412, {}
        self.records[path] = body
        return 200, {}


@contextmanager
def serving() -> Iterator[Catalogue]:
    catalogue = Catalogue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            status, document = catalogue.answer(self.command, path, body, self.headers)
            data = json.dumps(document).encode()
            self.send_response(status)
            if path in catalogue.records:
                self.send_header("ETag", f'"{sha256(catalogue.records[path]).hexdigest()}"')
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    catalogue.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield catalogue
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    with serving() as found:
        yield found


@pytest.fixture
def database() -> Database:
    return Database(MemoryObjects())


@pytest.fixture(params=["ids", "versions"])
def known(request: pytest.FixtureRequest, database: Database) -> Any:
    """What is known of the versions that are shown: their ids, or all that they have."""
    return database if request.param == "versions" else database.known


def target(kind: str, catalogue: Catalogue, **more: Any) -> Any:
    url = catalogue.address if kind == "stac" else f"{catalogue.address}/records"
    around = TargetParts(
        root="/",
        files=None,  # type: ignore[arg-type]
        objects=None,  # type: ignore[arg-type]
        ids=CountedIds(),
        bucket=None,  # type: ignore[arg-type]
        append=lambda _path, _data: None,
        secret=lambda reference: {TOKEN: "s3cret"}[reference],
        clock=FakeClock(),
        **more,
    )
    (made,) = build([Target(kind=kind, url=url, options={"assets": ASSETS, "token": TOKEN})], around)
    return made


def shown(catalogue: Catalogue, kind: str) -> tuple[int, str]:
    """What a reader sees: the number of the version, and the hash of its changing file."""
    if kind == "stac":
        collection = catalogue.collections[DATASET.id]
        (item,) = catalogue.items.values()
        return collection["kfm:sequence"], item["assets"]["now.txt"]["file:checksum"][4:]
    record = json.loads(catalogue.records[f"/records/{DATASET.id}.jsonld"])
    (file,) = [one for one in record["dcat:distribution"] if one["dcterms:title"] == "now.txt"]
    return int(record["dcat:version"]), file["spdx:checksum"]["spdx:checksumValue"]["@value"]


def expected(sequence: int) -> tuple[int, str]:
    return sequence, sha256(f"version {sequence}".encode()).hexdigest()


@pytest.mark.parametrize("kind", ["stac", "dcat"])
def test_a_catalogue_shows_the_head(catalogue: Catalogue, database: Database, known: Any, kind: str) -> None:
    """Each promotion is shown, with addresses at which its files can be read; a repetition writes nothing."""
    made = target(kind, catalogue)
    assert made.project(DATASET.id, database.head, known) is None
    for sequence in (1, 2):
        database.promote()
        assert made.project(DATASET.id, database.head, known) == sequence
        assert shown(catalogue, kind) == expected(sequence)
    before = len(catalogue.requests)
    assert made.project(DATASET.id, database.head, known) == 2
    assert {request.partition(" ")[0] for request in catalogue.requests[before:]} == {"GET"}
    assert catalogue.tokens == {"Bearer s3cret"}
    assert made.stands(DATASET.id, database.history[-1][0])
    text = json.dumps([*catalogue.items.values(), *map(json.loads, catalogue.records.values())])
    assert f"{ASSETS}/{DATASET.id}/files/{expected(2)[1]}/now.txt" in text
    assert '"../' not in text


def test_items_that_are_gone_leave_the_catalogue(catalogue: Catalogue, database: Database) -> None:
    """A collection has the items of its version, and no others; unchanged ones are not put again."""
    made = target("stac", catalogue)
    database.promote()
    made.project(DATASET.id, database.head, database.known)
    catalogue.items[DATASET.id, "stray"] = {"id": "stray", "properties": {}}
    database.promote()
    made.project(DATASET.id, database.head, database.known)
    assert ("stray" in [name for _, name in catalogue.items]) is False
    (item,) = catalogue.items.values()
    assert item["collection"] == DATASET.id
    assert all(link["href"].startswith("http") for link in item["links"])


@pytest.mark.req("GRO-1")
def test_only_items_that_differ_are_asked_for_and_sent(catalogue: Catalogue, database: Database) -> None:
    """Of a version that is known, one window more is one item more, however many there are."""
    made = target("stac", catalogue)
    days = [item(day, asset(f"{day}.csv", b"day")) for day in range(150)]
    first = merge_items(None, DATASET, days[:-1], "merge")
    database.show(first)
    made.project(DATASET.id, database.head, database)
    before = len(catalogue.requests)
    fewer = edited(first, first.header, {first.items()[0].id: None})
    database.show(merge_items(fewer, DATASET, days[-1:], "merge"))
    assert made.project(DATASET.id, database.head, database) == 2
    assert {name for _, name in catalogue.items} == {one.id for one in database.history[-1][1].items()}
    asked = catalogue.requests[before:]
    assert len(asked) < 15
    assert f"GET /collections/{DATASET.id}/items" not in asked


@pytest.mark.parametrize("kind", ["stac", "dcat"])
@pytest.mark.parametrize("at", range(3))
def test_a_slow_process_ends_with_the_head(
    catalogue: Catalogue, database: Database, known: Any, kind: str, at: int
) -> None:
    """Another shows the next version in the middle of it: whatever is overwritten is sent again."""
    database.promote()

    def overtaken() -> None:
        database.promote()
        assert target(kind, catalogue).project(DATASET.id, database.head, known) == 2

    catalogue.before = [overtaken, *[lambda: None] * at]
    made = target(kind, catalogue)
    sequence = made.project(DATASET.id, database.head, known)
    assert shown(catalogue, kind) == expected(len(database.history))
    assert sequence == len(database.history)


@pytest.mark.parametrize("kind", ["stac", "dcat"])
def test_what_was_undone_is_noticed(catalogue: Catalogue, database: Database, known: Any, kind: str) -> None:
    """A late request has put an older version back: the target does not stand, and is projected again."""
    made = target(kind, catalogue)
    database.promote()
    made.project(DATASET.id, database.head, known)
    old = (dict(catalogue.collections), dict(catalogue.items), dict(catalogue.records))
    database.promote()
    made.project(DATASET.id, database.head, known)
    catalogue.collections, catalogue.items, catalogue.records = old
    assert not made.stands(DATASET.id, database.history[-1][0])
    assert made.project(DATASET.id, database.head, known) == 2
    assert shown(catalogue, kind) == expected(2)


@pytest.mark.parametrize("kind", ["stac", "dcat"])
def test_what_is_not_ours_is_left(catalogue: Catalogue, database: Database, known: Any, kind: str) -> None:
    """Neither a record of others nor a version of another ledger is replaced."""
    made = target(kind, catalogue)
    database.promote()
    made.project(DATASET.id, database.head, known)
    other = Database(database.objects, "another past")
    other.promote()
    with pytest.raises(TargetUnavailable, match="not of this database"):
        made.project(DATASET.id, other.head, other.known)
    catalogue.collections[DATASET.id] = {"id": DATASET.id}
    catalogue.records = dict.fromkeys(catalogue.records, b'{"@id": "theirs"}')
    with pytest.raises(TargetUnavailable, match="not put there by kfm"):
        made.project(DATASET.id, database.head, known)


@pytest.mark.parametrize("kind", ["stac", "dcat"])
def test_a_catalogue_that_is_away(catalogue: Catalogue, database: Database, known: Any, kind: str) -> None:
    """The error names the target, not the token; calls pass the circuit, which may be open."""
    database.promote()
    catalogue.broken = True
    with pytest.raises(TargetUnavailable, match=f"{kind}: .*503") as caught:
        target(kind, catalogue).project(DATASET.id, database.head, known)
    assert "s3cret" not in str(caught.value)

    def refused(_target: Target, _work: Callable[[], Any]) -> Any:
        raise CircuitOpen("simulated")

    with pytest.raises(CircuitOpen):
        target(kind, catalogue, call=refused).project(DATASET.id, database.head, known)


def test_a_catalogue_needs_to_know_where_files_are_read() -> None:
    """Without `assets` no address of a file can be told: that is said when the target is made."""
    with pytest.raises(ConfigError, match="assets"):
        build([Target(kind="stac", url="https://stac.example")], None)  # type: ignore[arg-type]
