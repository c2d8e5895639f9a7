"""What the tests of units say in few words."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.catalogue import AssetFacts, CatalogueEntry, Search
from kfm.model.contracts import machine
from kfm.model.records import Unit
from kfm.model.units import (
    ClaimedUnit,
    ClaimRequest,
    Content,
    IntakeBatch,
    IntakeRemoval,
    IntakeReport,
    IntakeUnit,
    Lane,
    RejectedRecord,
    ResultBatch,
    ResultReport,
    StoredUnit,
    UnitFailure,
    UnitSuccess,
    UnitTransition,
    created,
    wal_id,
)

START_MS = 1_767_225_600_000
MINUTE_MS = 60_000
STATUSES = ("pending", "in_progress", "succeeded", "failed", "quarantined")
NOTES = ("reissued", "removed", "stale", "ignored")  # what is told of a unit that stays where it is


def uri_of(name: str) -> str:
    return f"s3://noaa-hrrr/{name}"


def id_of(name: str, dataset: str = "hrrr") -> str:
    return wal_id(dataset, uri_of(name), START_MS)


def unit(name: str, dataset: str = "hrrr", provider: str = "aws", **changes: Any) -> Unit:
    made = created(
        wal_id=id_of(name, dataset),
        dataset=dataset,
        object_uri=uri_of(name),
        provider=provider,
        queue="nodd",
        event_time_ms=START_MS + 5,
        time_range_start_ms=START_MS,
        time_range_end_ms=START_MS + 3_600_000,
        now_ms=START_MS,
        extra={"product": "sfc"},
    )
    return replace(made, **changes)


def taken(
    name: str,
    etag: str | None = "e1",
    sequencer: str | None = "01",
    *,
    size: int | None = 10,
    reissue: Any = "update",
    **changes: Any,
) -> IntakeUnit:
    content = Content(etag=etag, sequencer=sequencer, size=size)
    return IntakeUnit(unit=unit(name, **changes), content=content, reissue=reissue)


def gone(
    name: str, sequencer: str | None = "02", removing: Any = "keep", at_ms: int | None = None
) -> IntakeRemoval:
    return IntakeRemoval(wal_id=id_of(name), sequencer=sequencer, event_time_ms=at_ms, removing=removing)


def entry(
    claimed: ClaimedUnit,
    item_id: str | None = None,
    role: str = "data",
    collection: str = "hrrr",
    **changes: Any,
) -> CatalogueEntry:
    """What an operator would tell the catalogue of it."""
    made = CatalogueEntry(
        collection_id=collection,
        item_id=item_id or claimed.object_uri.rsplit("/", 1)[-1],
        asset=AssetFacts(
            role=role,
            wal_id=claimed.wal_id,
            content_version=claimed.content_version,
            href=claimed.object_uri,
            media_type="application/wmo-GRIB2",
            size=claimed.size,
            etag=claimed.etag,
        ),
        start_ms=START_MS,
        end_ms=START_MS + 3_600_000,
        properties='{"product":"sfc"}',
        bbox=(-102.0, 37.0, -94.5, 40.0),
        at_ms=START_MS,
    )
    return replace(made, **changes)


def done(claimed: ClaimedUnit, told: CatalogueEntry | None = None, **changes: Any) -> UnitSuccess:
    made = UnitSuccess(
        claimed=claimed,
        integrity_status="ok",
        metadata_status="ok",
        provenance_status="ok",
        entry=told or entry(claimed),
    )
    return replace(made, **changes)


def undone(claimed: ClaimedUnit, fate: Any = "retry", **changes: Any) -> UnitFailure:
    made = UnitFailure(
        claimed=claimed,
        error_code="HTTP_503",
        error_message="Upstream is away.",
        error_class="http",
        fate=fate,
        reason={"retry": "retry", "spent": "attempts-spent", "quarantine": "non-retryable"}[fate],
        not_before_ms=1 if fate == "retry" else None,
    )
    return replace(made, **changes)


class Scene:
    """A ledger of units and all that can be asked of it."""

    def __init__(self, store: Ledger) -> None:
        self.store = store
        self.units = store.units()
        self.catalogue = store.catalogue()

    # --- what happens ------------------------------------------------------------------

    def take(self, *said: IntakeUnit | IntakeRemoval | RejectedRecord) -> IntakeReport:
        return self.units.take_in(
            IntakeBatch(
                arrivals=tuple(one for one in said if isinstance(one, IntakeUnit)),
                removals=tuple(one for one in said if isinstance(one, IntakeRemoval)),
                rejected=tuple(one for one in said if isinstance(one, RejectedRecord)),
            )
        )

    def claim(self, dataset: str = "hrrr", limit: int = 100, **changes: Any) -> list[ClaimedUnit]:
        return list(self.units.exchange(None, self.claim_request(dataset, limit, **changes)).claimed)

    @staticmethod
    def claim_request(
        dataset: str = "hrrr",
        limit: int = 100,
        *,
        provider: str = "aws",
        alone: int = 0,
        worker: str = "w1",
        lease_ms: int = 10 * MINUTE_MS,
    ) -> ClaimRequest:
        lane = Lane(dataset=dataset, provider=provider, alone=alone)
        return ClaimRequest(
            lane=lane, limit=limit, worker_id=worker, ingest_run_id="run-1", lease_ms=lease_ms
        )

    def claimed(self, name: str, **changes: Any) -> ClaimedUnit:
        """Announced and claimed, or claimed again."""
        if self.units.unit(id_of(name)) is None:
            self.take(taken(name))
        seen = self.stored(name)
        (one,) = self.claim(alone=seen.alone, **changes)
        assert one.wal_id == id_of(name)
        return one

    def end(self, *ends: UnitSuccess | UnitFailure, **changes: Any) -> ResultReport:
        finish = ResultBatch(
            successes=tuple(one for one in ends if isinstance(one, UnitSuccess)),
            failures=tuple(one for one in ends if isinstance(one, UnitFailure)),
        )
        return self.units.exchange(replace(finish, **changes), None).results

    def succeeded(self, name: str) -> ClaimedUnit:
        claimed = self.claimed(name)
        assert self.end(done(claimed)).succeeded == (claimed.wal_id,)
        return claimed

    def failed(self, name: str, fate: Any = "spent", **changes: Any) -> ClaimedUnit:
        claimed = self.claimed(name)
        assert self.end(undone(claimed, fate, **changes)).failed == (claimed.wal_id,)
        return claimed

    def lapse(self) -> int:
        """All leases are over."""
        self.sql("UPDATE units SET lease_until_ms = 1 WHERE status = 'in_progress'")
        return self.units.reap_units(0.5)

    def due(self) -> None:
        """Whatever waits for its time need not wait any longer."""
        self.sql("UPDATE units SET not_before_ms = 1 WHERE status = 'pending'")

    # --- what is there -----------------------------------------------------------------

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        database: Any = self.store._database
        if hasattr(database, "execute"):
            return list(database.execute(text))
        return list(database._connection.execute(text))

    def stored(self, name: str) -> StoredUnit:
        stored = self.units.stored(id_of(name))
        assert stored is not None
        return stored

    def status(self, name: str) -> str:
        return self.stored(name).unit.status

    def history(self, name: str) -> list[UnitTransition]:
        return self.units.history_of(id_of(name))

    def events(self, name: str) -> list[str]:
        return [move.event for move in self.history(name)]

    def items(self) -> set[str]:
        return {item.item_id for item in self.catalogue.find_items(Search(limit=10_000))}

    def messages(self, topic: str = "unit-lineage") -> int:
        return int(self.sql(f"SELECT COUNT(*) FROM outbox WHERE topic = '{topic}'")[0][0])

    def count(self, name: str, dataset: str = "hrrr") -> int:
        return self.units.unit_counts().get((dataset, name), 0)

    def everything(self) -> tuple[Any, ...]:
        """All that an end of units may change."""
        tables = ("units", "items", "assets", "unit_pages", "held", "incidents", "outbox", "governance")
        rows = tuple(sorted(map(repr, self.sql(f"SELECT * FROM {table}"))) for table in tables)
        return (*rows, self.units.unit_counts())

    # --- what always holds --------------------------------------------------------------

    def check(self) -> None:
        """Counters are what counting finds; every history is complete, permitted and in order."""
        scanned = Counter({(row[0], row[1]): int(row[2]) for row in self.sql(_BY_STATUS)})
        told = {key: amount for key, amount in self.units.unit_counts().items() if key[1] in STATUSES}
        assert {key: amount for key, amount in told.items() if amount} == dict(scanned)
        shown = {row[0]: int(row[1]) for row in self.sql(_SHOWN)}
        assert {one.collection_id: one.items for one in self.catalogue.collections() if one.items} == shown
        for (one,) in self.sql("SELECT wal_id FROM units"):
            stored = self.units.stored(one)
            assert stored is not None
            check_history(stored, self.units.history_of(one))


_SHOWN = "SELECT collection_id, COUNT(*) FROM items WHERE data IS NOT NULL GROUP BY collection_id"
_BY_STATUS = "SELECT dataset, status, COUNT(*) FROM units GROUP BY dataset, status"


def check_history(stored: StoredUnit, moves: list[UnitTransition]) -> None:
    """From nothing to where it is, one permitted step after the other."""
    assert len(moves) == len(stored.trail.split()), "a page is missing"
    status: str | None = None
    version = 0
    for move in moves:
        if status is None and move.event == "imported":
            assert move.version >= 1, move
        elif move.event in NOTES:
            assert move.status == status, move
            assert move.version in (version, version + 1), move
        else:
            assert machine("unit").allows(status, move.status, move.event), (status, move)
            assert move.version == version + 1, move
        status, version = move.status, move.version
    assert (status, version) == (stored.unit.status, stored.unit.version)
    assert moves[-1].attempts == stored.unit.attempts
