"""The same work in a plain loop: what Python itself costs for each announced object.

Messages are those of our side. Of each the loop decodes both documents, reads the key by one pattern, makes
id, times and item, and ends a batch, takes in the next and claims it in one commit; history and lineage are
packed pages. Nothing is checked, nothing can fail, there is one dataset, and no one else: whatever a service
needs beyond that is what ours has to add.
"""

from __future__ import annotations

import calendar
import re
import time
import zlib
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import unquote_plus

import apsw
import msgspec

from bench.ingest_references import COLUMNS, EPOCH_SHIFT_MS, LEASE_MS, RUN, SCHEMA, WORKER
from kfm.db.sqlite import CHECKPOINT_PAGES
from kfm.ports import QueueMessage

KEY = re.compile(
    r"(ABI-L1b-RadC)/\d{4}/\d{3}/\d{2}/(OR_ABI-L1b-RadC-M6C\d\d_G19_s(\d{7})(\d{2})(\d{2})(\d{2})(\d)"
    r"_e(\d{7})(\d{2})(\d{2})(\d{2})(\d)_c\d{14})\.nc"
)
TABLES = (
    *SCHEMA,
    "CREATE TABLE items (number INTEGER PRIMARY KEY, collection TEXT, item TEXT, at_ms BIGINT, west REAL, "
    "south REAL, east REAL, north REAL, page BIGINT)",
    "CREATE UNIQUE INDEX items_by_id ON items (item)",
    "CREATE INDEX items_by_time ON items (collection, at_ms)",
    "CREATE TABLE pages (number INTEGER PRIMARY KEY, event TEXT, packed BLOB)",
)
Taken = tuple[tuple[object, ...], tuple[object, ...], tuple[object, ...]]  # a row, what pages tell, an item
_ENCODE = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, gc=False):
    Message: str


class Object(msgspec.Struct, gc=False):
    key: str
    size: int
    eTag: str  # noqa: N815 (as S3 writes it)
    sequencer: str


class Bucket(msgspec.Struct, gc=False):
    name: str


class S3(msgspec.Struct, gc=False):
    bucket: Bucket
    object: Object


class Announced(msgspec.Struct, gc=False):
    eventTime: str  # noqa: N815
    s3: S3


class Records(msgspec.Struct, gc=False):
    Records: list[Announced]


_OPEN = msgspec.json.Decoder(Envelope).decode
_RECORDS = msgspec.json.Decoder(Records).decode
_DAYS: dict[str, int] = {}


def _ms(day: str, hour: str, minute: str, second: str, tenth: str) -> int:
    start = _DAYS.get(day)
    if start is None:
        start = _DAYS[day] = calendar.timegm(time.strptime(day, "%Y%j")) * 1000
    return start + ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 1000 + int(tenth) * 100


class PlainLoop:
    """One database of its own, WAL and FULL, checkpoints as rare as ours."""

    INSERT = f"INSERT INTO units ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    SUCCEED = """\
UPDATE units SET status = 'succeeded', version = version + 1, integrity_status = 'ok', metadata_status = 'ok',
  stac_status = 'created', provenance_status = 'ok', stac_collection_id = ?1, updated_at_ms = ?2,
  lease_until_ms = 0
WHERE wal_id = ?3 AND version = ?4"""
    ITEM = "INSERT INTO items VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"
    PAGE = "INSERT INTO pages VALUES (NULL, ?, ?)"

    def __init__(self, path: str) -> None:
        self._database = apsw.Connection(path)
        pragma = self._database.pragma
        assert pragma("journal_mode", "wal") == "wal"
        pragma("synchronous", "FULL")
        pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        for statement in TABLES:
            self._database.execute(statement)

    def units_per_second(self, messages: Sequence[QueueMessage], batch: int) -> float:
        began_s = time.perf_counter()
        self.work_off(messages, batch)
        return len(messages) / (time.perf_counter() - began_s)

    def work_off(self, messages: Sequence[QueueMessage], batch: int) -> None:
        done: list[tuple[object, ...]] = []
        for first in range(0, len(messages), batch):
            now_ms = time.time_ns() // 1_000_000
            taken = [self._unit(message.body, now_ms) for message in messages[first : first + batch]]
            self._exchange(done, taken, now_ms)
            done = taken
        self._exchange(done, [], time.time_ns() // 1_000_000)

    def _unit(self, body: bytes, now_ms: int) -> Taken:
        (record,) = _RECORDS(_OPEN(body).Message).Records
        found = record.s3.object
        key = unquote_plus(found.key)
        match = KEY.fullmatch(key)
        assert match is not None
        product, item, *stamps = match.groups()
        start_ms, end_ms = _ms(*stamps[:5]), _ms(*stamps[5:])
        uri = f"s3://{record.s3.bucket.name}/{key}"
        digest = sha256(f"goes-abi {uri}".encode()).hexdigest()[:20]
        wal_id = f"{start_ms + EPOCH_SHIFT_MS:013x}-{digest}"
        row = (
            *(wal_id, "goes-abi", "", "aws", "nodd", now_ms, start_ms, end_ms),
            *("in_progress", 1, now_ms, None, None, "unknown", "unknown", "unknown", "unknown"),
            *(None, None, None, RUN, WORKER, None, now_ms, now_ms, 2, now_ms + LEASE_MS, now_ms),
        )
        told = (wal_id, uri, item, product, found.eTag, found.size, found.sequencer, record.eventTime)
        return row, told, ("goes-abi", item, start_ms, -152.1093, 14.5713, -52.9469, 56.7615)

    def _exchange(self, done: Sequence[Taken], taken: Sequence[Taken], now_ms: int) -> None:
        execute, many = self._database.execute, self._database.executemany
        execute("BEGIN IMMEDIATE")
        if done:
            many(self.SUCCEED, [("goes-abi", now_ms, row[0], 2) for row, _, _ in done])
            execute(self.PAGE, ("succeeded", _packed([told for _, told, _ in done])))
            number = self._database.last_insert_rowid()
            many(self.ITEM, [(*item, number) for _, _, item in done])
            execute(self.PAGE, ("lineage", _packed([(*told, now_ms) for _, told, _ in done])))
            execute(self.PAGE, ("moved", _packed([(row[0], 3, 1) for row, _, _ in done])))
        if taken:
            many(self.INSERT, [row for row, _, _ in taken])
            execute(self.PAGE, ("created", _packed([told[:2] for _, told, _ in taken])))
            execute(self.PAGE, ("claimed", _packed([(row[0], 2, 1) for row, _, _ in taken])))
        execute("COMMIT")

    def close(self) -> None:
        self._database.close()


def _packed(value: object) -> bytes:
    return zlib.compress(_ENCODE(value), 1)
