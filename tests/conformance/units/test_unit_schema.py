"""The stored schema is the record model, and the statements of the hot path find their indexes."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest

from kfm.db import queries
from kfm.db.ledger import Ledger
from kfm.model.errors import IllegalTransition
from kfm.model.records import Unit
from kfm.model.times import MS_MAX, MS_MIN, parse_rfc3339, rfc3339
from kfm.model.units import ClaimedUnit, StoredUnit, created
from tests.conformance.units.scene import START_MS, Scene, taken, unit

NAMES_OF_WAL_1 = """
wal_id dataset object_uri provider queue event_time time_range_start time_range_end status attempts
last_attempt_at last_error_code last_error_message integrity_status metadata_status stac_status
provenance_status stac_item_id stac_collection_id stac_item_href ingest_run_id worker_id replay_reason
created_at updated_at version
""".split()


def _columns_of(record: type) -> dict[str, tuple[str, bool]]:
    """Column → (kind, may be empty), as the record's fields ask for."""
    made = {}
    for name, kind in typing.get_type_hints(record).items():
        parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        (plain,) = [part for part in parts if part is not type(None)]
        text = plain is str or plain is dict or typing.get_origin(plain) in (typing.Literal, dict)
        assert text or plain in (int, Unit), (name, plain)
        made[name] = ("text" if text else "bigint", type(None) in parts)
    return made


def _model() -> dict[str, tuple[str, bool]]:
    beside = _columns_of(StoredUnit)
    del beside["unit"]
    return {**_columns_of(Unit), **beside}


@pytest.mark.req("WAL-21", "WAL-1")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True)
def test_stored_columns_and_types_are_the_record(scene: Scene, kind: str) -> None:
    """Name, type, order and emptiness of every column are those of the record, and of nothing else."""
    if kind == "sqlite":
        found = {row[1]: (row[2].lower(), not row[3]) for row in scene.sql("PRAGMA table_info(units)")}
    else:
        rows = scene.sql(
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
            "WHERE table_name = 'units' AND table_schema = current_schema() ORDER BY ordinal_position"
        )
        found = {name: (kind_, empty == "YES") for name, kind_, empty in rows}
    assert found == _model()
    assert list(found) == list(_model())


@pytest.mark.req("WAL-1")
def test_the_record_has_its_named_fields() -> None:
    """In their order, times in milliseconds, and one place for everything else."""
    assert [name.removesuffix("_ms") for name in Unit.__struct_fields__] == [*NAMES_OF_WAL_1, "extra"]


@pytest.mark.req("WAL-21")
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_statements_name_the_fields_in_the_record_s_order(dialect: Any) -> None:
    """A new field needs an entry that names its reader."""
    known = queries.queries(dialect)
    for name in ("units.get", "units.get_for_update"):
        match = re.match(r"SELECT\s+(.*?)\s+FROM", known[name], re.DOTALL)
        assert match is not None
        assert [part.strip() for part in match[1].split(",")] == list(_model()), name
    returned = known["units.claim"].rpartition("RETURNING")[2]
    names = [part.strip() for part in returned.split(",")]
    fields = [{"claimed_at_ms": "last_attempt_at_ms"}.get(f, f) for f in ClaimedUnit.__struct_fields__]
    assert names == [*fields, "trail"]  # by which its object's address is found
    values = [name for name in queries.parameters_of("units.bring_in") if name in Unit.__struct_fields__]
    assert values == list(Unit.__struct_fields__)


@pytest.mark.req("WAL-1")
@pytest.mark.parametrize("at_ms", [MS_MIN, -1, 0, 1, START_MS, START_MS + 999, MS_MAX])
def test_times_are_kept_to_the_millisecond(scene: Scene, at_ms: int) -> None:
    """From the year 1 to the year 9999, into the database and back, and as RFC 3339 text and back."""
    scene.take(taken("a", time_range_start_ms=at_ms, event_time_ms=at_ms, time_range_end_ms=None))
    kept = scene.stored("a").unit
    assert (kept.time_range_start_ms, kept.event_time_ms, kept.time_range_end_ms) == (at_ms, at_ms, None)
    assert parse_rfc3339(rfc3339(at_ms)) == at_ms


@pytest.mark.req("WAL-1")
def test_extra_fields_shadow_none(scene: Scene) -> None:
    """They are refused where they would, and come back as they were where they do not."""
    said = {"ünïcode": "水", "nested": {"a": [1, None, 2.5]}, "nul": "a\0b"}
    scene.take(taken("a", extra=said))
    assert scene.stored("a").unit.extra == {**said, "nul": "a\N{SYMBOL FOR NULL}b"}
    for name in Unit.__struct_fields__:
        with pytest.raises(IllegalTransition, match=name):
            made = unit("b")
            created(
                wal_id=made.wal_id,
                dataset="hrrr",
                object_uri=made.object_uri,
                provider="aws",
                queue="q",
                event_time_ms=None,
                time_range_start_ms=None,
                time_range_end_ms=None,
                now_ms=0,
                extra={name: 1},
            )


# --- plans ---------------------------------------------------------------------------

PLANS = {
    "units.claim": [
        r"SEARCH units USING (COVERING )?INDEX units_due \(dataset=\? AND provider=\? AND alone=\?"
    ],
    "units.next_lane": [r"SEARCH units USING COVERING INDEX units_due"],
    "units.last_due": [
        r"SEARCH units USING COVERING INDEX units_due \(dataset=\? AND provider=\? AND alone=\?"
    ],
    "units.make_due": [
        r"SEARCH units USING (COVERING )?INDEX units_due \(dataset=\? AND .* AND not_before_ms>"
    ],
    "units.lapsed": [r"SEARCH units USING INDEX units_leased \(lease_until_ms<\?\)"],
    "units.last_leased": [r"(SEARCH|SCAN) units USING INDEX units_leased"],
    "units.leased_by": [r"(SEARCH|SCAN) units USING INDEX units_leased"],
    "unit_workers.named": [r"SEARCH unit_workers USING .*\(worker_id=\?\)"],
    "units.of_page": [r"SEARCH units USING INDEX sqlite_autoindex_units_1 \(wal_id=\?\)"],
    "units.contents": [r"SEARCH units USING INDEX sqlite_autoindex_units_1 \(wal_id=\?\)"],
    "units.get": [r"SEARCH units USING INDEX sqlite_autoindex_units_1 \(wal_id=\?\)"],
    "units.succeed": [r"SEARCH units USING INDEX sqlite_autoindex_units_1 \(wal_id=\?\)"],
    "items.known": [
        r"SEARCH items USING INDEX items_by_digest \(name_order=\? AND name_digest=\?\)",
        r"SEARCH items USING INDEX items_by_id \(collection_id=\? AND <expr>=\? AND item_id=\?\)",
    ],
    "items.get_for_update": [
        r"SEARCH items USING INDEX items_by_digest \(name_order=\? AND name_digest=\?\)"
    ],
    "items.get_old_for_update": [
        r"SEARCH items USING INDEX items_by_id \(collection_id=\? AND <expr>=\? AND item_id=\?\)"
    ],
    "fact_pages.of": [r"SEARCH fact_pages USING INTEGER PRIMARY KEY"],
    "units.trails": [r"SEARCH units USING INDEX sqlite_autoindex_units_1 \(wal_id=\?\)"],
    "items.newest_in_box": [r"SEARCH items USING INDEX items_by_time \(collection_id=\? AND at_ms<\?\)"],
    "unit_pages.of": [r"SEARCH unit_pages USING"],
    "outbox.of_subject": [r"SEARCH outbox USING INDEX outbox_by_subject \(subject=\?\)"],
    "hook_deliveries.of_subject": [r"SEARCH o USING INDEX outbox_by_subject \(subject=\?\)"],
    "outbox.of_pages": [
        r"SEARCH p USING INTEGER PRIMARY KEY",
        r"SEARCH o USING INTEGER PRIMARY KEY \(rowid>\? AND rowid<\?\)",
        r"SEARCH l USING INTEGER PRIMARY KEY \(rowid>\?\)",
    ],
}


@pytest.mark.req("WAL-11")
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", PLANS)
def test_the_hot_path_finds_its_indexes(scene: Scene, name: str) -> None:
    """No statement that a unit goes through reads a table from end to end or sorts it."""
    connection: Any = scene.store._database._connection  # type: ignore[attr-defined]
    sql = queries.queries("sqlite")[name]
    parameters = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]+)", sql), 1)
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, parameters)]
    told = "\n".join(plan)
    for wanted in PLANS[name]:
        assert re.search(wanted, told), told
    assert not re.search(r"SCAN (units|items|unit_pages)(?! USING)", told), told
    if name not in ("unit_pages.of", "outbox.of_pages", "hook_deliveries.of_subject"):
        assert "TEMP B-TREE" not in told, told


@pytest.mark.req("WAL-11")
@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_claim_finds_its_index_on_postgresql(open_store: Callable[[], Ledger]) -> None:
    """Where there are rows enough to matter: the due ones by their lane, the claimed ones by their id."""
    scene = Scene(open_store())
    scene.sql(
        "INSERT INTO units SELECT 'w' || n, 'hrrr', 'u' || n, 'aws', 'q', NULL, NULL, NULL, 'succeeded', 1,"
        " NULL, NULL, NULL, 'ok', 'ok', 'ok', 'ok', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, '{}', NULL,"
        " NULL, NULL, NULL, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, '1' FROM generate_series(1, 20000) AS n"
    )
    scene.take(*(taken(f"n{number}") for number in range(50)))
    scene.sql("ANALYZE units")
    sql = queries.queries("postgresql")["units.claim"]
    request = scene.claim_request(limit=10)
    values = {
        "dataset": "hrrr", "provider": "aws", "alone": 0, "worker_id": "w", "ingest_run_id": "r",
        "now_ms": scene.store.now_ms(), "lease_until_ms": 1, "row_limit": request.limit, "trail": " 1",
        "first_part": 3,
    }  # fmt: skip
    database: Any = scene.store._database
    told = "\n".join(row[0] for row in database.execute("EXPLAIN " + sql, values))
    assert "units_due_apart" in told, told
    assert "units_pkey" in told, told
    assert "Seq Scan" not in told, told


@pytest.mark.req("WAL-11", "FLT-1")
@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
@pytest.mark.parametrize("name", ["units.succeed", "units.renew"])
def test_what_a_fleet_has_claimed_is_not_read_to_end_a_batch(
    open_store: Callable[[], Ledger], name: str
) -> None:
    """Units are found by their ids, also where statistics from a quiet hour say that none is being worked on:
    the index of leases would lead over all that every worker has."""
    scene = Scene(open_store())
    scene.take(*(taken(f"n{number:04}") for number in range(2000)))
    scene.sql("ANALYZE units")
    scene.claim(limit=2000)
    sql = queries.queries("postgresql")[name]
    values = dict.fromkeys(re.findall(r"%\(([a-z_]+)\)s", sql), 1) | {
        "wal_ids": '["a", "b"]', "integrity_status": "ok", "metadata_status": "ok", "stac_status": "created",
        "provenance_status": "ok", "stac_collection_id": "c", "trail": " 1",
    }  # fmt: skip
    database: Any = scene.store._database
    told = "\n".join(row[0] for row in database.execute("EXPLAIN " + sql, values))
    assert told.count("units_pkey") == 2, told
    assert "units_leased" not in told, told
    assert "Seq Scan" not in told, told
