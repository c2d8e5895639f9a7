"""Records of an older ledger: entered as they were, once, and lines that can't be read harm no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfm.model.records import Unit
from kfm.model.redaction import mask
from kfm.model.settings import Settings
from kfm.model.times import parse_rfc3339
from kfm.model.units import IntakeReport
from kfm.nodd.dataset_registry import Registry, load_registry
from kfm.nodd.unit_import import TIMES, Cleaning, ImportReport, import_units, read_line
from kfm.reports.explain.units import explain_unit, is_catalogued
from kfm.reports.units import unit_document
from tests.conformance.units.scene import MINUTE_MS, START_MS, Scene, done, id_of, taken

pytestmark = pytest.mark.req("WAL-21")
KEY = "s3://noaa-hrrr-bdp-pds/hrrr.20260101/conus/hrrr.t00z.wrfsfcf06.grib2"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry()


def record(name: str = "a", **changes: Any) -> dict[str, Any]:
    """As an older ledger wrote it."""
    made = {
        "wal_id": f"0190b6a2-7b1c-7000-8000-{name:>012}",
        "dataset": "hrrr",
        "object_uri": f"s3://noaa-hrrr/{name}",
        "provider": "aws",
        "queue": "nodd-hrrr",
        "event_time": "2026-01-01T00:00:00.005Z",
        "time_range_start": "2026-01-01T00:00:00Z",
        "time_range_end": "2026-01-01T02:00:00+01:00",
        "status": "succeeded",
        "attempts": 3,
        "last_attempt_at": "2026-01-01T00:10:00Z",
        "last_error_code": None,
        "integrity_status": "ok",
        "metadata_status": "ok",
        "stac_status": "created",
        "provenance_status": "partial",
        "stac_item_id": name,
        "stac_collection_id": "hrrr",
        "ingest_run_id": "run-7",
        "worker_id": "worker-3",
        "replay_reason": "none",
        "created_at": "2026-01-01T00:00:01Z",
        "updated_at": "2026-01-01T00:10:01.25Z",
        "version": 9,
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def bring(scene: Scene, registry: Registry, *lines: dict[str, Any] | str) -> ImportReport:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return import_units(texts, scene.units, registry, now_ms=START_MS, actor="ada", rationale="moving over")


def test_a_record_is_taken_over_field_by_field(scene: Scene, registry: Registry) -> None:
    """Times to the millisecond, status, attempts and version as they were; the id is the one it has here."""
    assert bring(scene, registry, record(), record()) == ImportReport(lines=2, created=1, known=1)
    unit = scene.stored("a").unit
    assert unit.wal_id == id_of("a")
    assert unit.extra == {"imported_wal_id": "0190b6a2-7b1c-7000-8000-00000000000a"}
    document, said = unit_document(unit), record()
    for name in said.keys() - {"wal_id", "time_range_end"}:
        same = parse_rfc3339(document[name]) == parse_rfc3339(said[name]) if name in TIMES else None
        assert same or document[name] == said[name], name
    assert unit.time_range_end_ms == START_MS + 60 * MINUTE_MS
    assert [(move.event, move.version) for move in scene.history("a")] == [("imported", 9)]
    (entered,) = scene.store.governance(kind="units-imported")
    assert (entered.actor, entered.rationale) == ("ada", "moving over")
    assert entered.details == {"created": 1, "succeeded": 1}
    scene.check()


def test_reading_a_file_again_changes_nothing(scene: Scene, registry: Registry) -> None:
    """Neither what was brought in nor what was known before."""
    scene.take(taken("b"))
    lines = [record("a"), record("b", status="quarantined"), record("c", status="failed")]
    assert bring(scene, registry, *lines) == ImportReport(lines=3, created=2, known=1)
    before = scene.everything()
    assert bring(scene, registry, *lines) == ImportReport(lines=3, known=3)
    assert scene.everything() == before
    assert scene.status("b") == "pending"
    scene.check()


def test_what_older_writers_left_out(scene: Scene, registry: Registry) -> None:
    """Attempts, version and times have defaults; what is not ours stands under extra."""
    bare = {"dataset": "hrrr", "object_uri": "gs://bucket/x", "status": "pending"}
    done_before = {**bare, "object_uri": "gs://bucket/y", "status": "succeeded", "radar": {"site": "KTWX"}}
    done_before["extra"] = {"product": "sfc"}
    assert bring(scene, registry, bare, "", done_before).created == 2
    units = {unit.object_uri: unit for unit in _units(scene)}
    first, second = units["gs://bucket/x"], units["gs://bucket/y"]
    assert (first.provider, first.queue, first.attempts, first.version) == ("gcp", "imported", 0, 1)
    assert (first.created_at_ms, first.updated_at_ms, first.event_time_ms) == (START_MS, START_MS, None)
    assert (second.attempts, second.extra) == (1, {"radar": {"site": "KTWX"}, "product": "sfc"})
    scene.check()


def _units(scene: Scene) -> list[Unit]:
    found = [scene.units.unit(row[0]) for row in scene.sql("SELECT wal_id FROM units")]
    return [unit for unit in found if unit is not None]


def test_the_id_is_that_of_the_next_announcement(scene: Scene, registry: Registry) -> None:
    """Where the key can be read, whatever the old record said of its time."""
    bring(scene, registry, record(object_uri=KEY.replace("wrf", "%77rf"), time_range_start=...))
    (unit,) = _units(scene)
    reading = registry.read("aws", "noaa-hrrr-bdp-pds", KEY.split("/", 3)[3])
    assert (unit.wal_id, unit.object_uri) == (reading.wal_id, KEY)
    assert unit.time_range_start_ms == reading.time_range_start_ms


def test_each_status_goes_on_from_where_it_was(scene: Scene, registry: Registry) -> None:
    """A lease from elsewhere has lapsed; what was given up is held; new bytes of a success are news."""
    names = {"pending": "p", "in_progress": "i", "failed": "f", "quarantined": "q", "succeeded": "s"}
    report = bring(scene, registry, *(record(name, status=status) for status, name in names.items()))
    assert report.created == 5
    assert {held.subject: held.kind for held in scene.store.held()} == {
        id_of("f"): "dead-letter",
        id_of("q"): "quarantine",
    }
    assert scene.units.reap_units(0.5) == 1
    assert scene.status("i") == "pending"
    (claimed,) = scene.claim(lease_ms=MINUTE_MS)
    assert (claimed.wal_id, claimed.version, claimed.attempts) == (id_of("p"), 10, 3)
    scene.end(done(claimed))
    assert scene.take(taken("s", "e2", "02")) == IntakeReport(reissued=1)
    assert scene.claimed("s").unclear == 1
    scene.check()


@pytest.mark.req("WAL-1")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "Not JSON"),
        ("[]", "Not a JSON object"),
        (json.dumps(record(dataset=...)), "`dataset` is missing"),
        (json.dumps(record(status="lost")), "Invalid enum value 'lost'"),
        (json.dumps(record(event_time="yesterday")), "`event_time`: 'yesterday' is not an RFC 3339 time"),
        (json.dumps(record(created_at=5)), "`created_at` is not an RFC 3339 time"),
        (json.dumps(record(version=0)), "`version` is not a number from 1 on"),
        (json.dumps(record(attempts=True)), "`attempts` is not a number"),
        (json.dumps(record(attempts=2**70)), "`attempts` is not a number"),
        (json.dumps(record(queue="a\0b")), "`queue` holds characters that can't be printed"),
        (json.dumps(record(object_uri="no/uri")), "is not a URI"),
        (json.dumps(record(extra=[])), "`extra` is not an object"),
        (json.dumps(record(extra={"status": "ok"})), "Extra fields shadow the record's own: status"),
        (json.dumps(record(extra={"event_time": "x"})), "shadow the record's own: event_time"),
        (json.dumps(record(event_time_ms=5)), "shadow the record's own: event_time_ms"),
        (json.dumps(record(extra={"site": 1}, site=2)), "Said twice, beside `extra` and in it: site"),
        (json.dumps(record(object_uri=KEY, dataset="gfs")), "belongs to the dataset hrrr"),
        (json.dumps(record(object_uri="https://example.org/x", provider=...)), "`provider` is missing"),
        ('{"dataset": "' + "x" * 2_000_000 + '"}', "The line has more than"),
    ],
)
def test_a_line_that_cannot_be_read(registry: Registry, line: str, told: str) -> None:
    """It is told of by its number with what is wrong, and the others are taken."""
    brought: list[Unit] = []

    class Ledger:
        def bring_in(self, units: Any, actor: str, rationale: str) -> int:
            brought.extend(units)
            return len(units)

    lines = [json.dumps(record("x")), line, json.dumps(record("y"))]
    report = import_units(lines, Ledger(), registry, now_ms=START_MS, actor="ada", rationale="")
    assert (report.lines, report.created, report.refused) == (3, 2, 1)
    assert [unit.stac_item_id for unit in brought] == ["x", "y"]
    (error,) = report.errors
    assert error.line == 2
    assert told in error.error


@pytest.mark.req("WAL-19")
def test_texts_are_redacted_on_the_way_in(registry: Registry) -> None:
    """Older ledgers may have kept too much: in messages, addresses, and fields of their own."""
    said = record(
        last_error_message="GET https://u:hunter2@host/x?X-Amz-Signature=abcdefgh "
        "Authorization: Bearer xyz12345678",
        stac_item_href="https://u:hunter2@host/items/a?token=abcdefgh",
        note={"deep": ["password=hunter2"]},
    )
    unit = read_line(json.dumps(said), registry, START_MS)
    for secret in ("hunter2", "abcdefgh", "xyz12345678"):
        assert secret not in json.dumps(unit_document(unit))
    known = Cleaning(hide=lambda text: text.replace("swordfish", "***"))
    unit = read_line(json.dumps(record(last_error_message="a swordfish")), registry, START_MS, known)
    assert unit.last_error_message == "a ***"


@pytest.mark.req("WAL-19")
def test_host_names_become_logical(registry: Registry) -> None:
    """A worker is known by a logical name, wherever the record repeats it; what tells no host is kept."""
    host = "ip-10-0-0-7.ec2.internal"
    said = record(worker_id=host, last_error_message=f"{host} lost its disk", hostname="db-4.example.org")
    cleaning = Cleaning(logical=lambda name: mask(name, "key"))
    first, second = (read_line(json.dumps(said), registry, START_MS, cleaning) for _ in range(2))
    assert first == second
    assert first.worker_id == mask(host, "key")
    assert first.last_error_message == f"{mask(host, 'key')} lost its disk"
    for name in (host, "db-4"):
        assert name not in json.dumps(unit_document(first))
    assert read_line(json.dumps(said), registry, START_MS).worker_id == "masked"
    for name in ("0190b6a2-7b1c-7000-8000-000000000001", "worker-3", mask(host, "key")):
        assert read_line(json.dumps(record(worker_id=name)), registry, START_MS, cleaning).worker_id == name


@pytest.mark.req("WAL-9")
@pytest.mark.parametrize(
    "status", ["integrity_status", "metadata_status", "stac_status", "provenance_status"]
)
def test_a_success_that_failed_is_refused(scene: Scene, registry: Registry, status: str) -> None:
    """`succeeded` with a failed status is no success: the line is named, and no such unit is made."""
    report = bring(scene, registry, record("a"), record("b", **{status: "failed"}))
    assert (report.created, report.refused) == (1, 1)
    (error,) = report.errors
    assert (error.line, error.error) == (2, f"`status` is succeeded, but {status} failed.")
    assert bring(scene, registry, record("c", status="failed", **{status: "failed"})).created == 1


@pytest.mark.req("RS-12")
def test_explanations_of_imported_units_are_true(scene: Scene, registry: Registry) -> None:
    """No item is claimed that the catalogue does not have; attempts elsewhere count; the way out works."""
    lines = [
        record("s"),
        record("q", status="quarantined", attempts=2, last_error_code="SIZE_MISMATCH"),
        record("n", stac_item_id=..., stac_status=..., attempts=1),
    ]
    bring(scene, registry, *lines)

    def said(name: str) -> str:
        unit = scene.stored(name).unit
        found = explain_unit(
            scene.stored(name),
            scene.history(name),
            (),
            Settings(),
            START_MS,
            is_catalogued=is_catalogued(scene.store, unit),
        )
        return found.reason.text

    for name in ("s", "n"):
        assert "is in the catalogue" not in said(name)
        assert "is gone" not in said(name)
        assert (
            "succeeded in the ledger that it was taken over from, but the catalogue here has no item"
            in said(name)
        )
    assert f"kfm replay run --unit {id_of('s')} --mode repair-and-replace" in said("s")
    assert "is quarantined after 2 attempts: SIZE_MISMATCH" in said("q")


@pytest.mark.req("WAL-1")
def test_our_own_records_come_back_as_they_were(scene: Scene, registry: Registry) -> None:
    """What is printed of a unit, read again, is the unit: no time loses a millisecond."""
    claimed = scene.claimed("a")
    scene.end(done(claimed, extra='{"site":"KTWX"}'))
    unit = scene.stored("a").unit
    assert read_line(json.dumps(unit_document(unit)), registry, START_MS) == unit
