"""Rows of units to records and back, and the counters that transactions change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kfm.db import duties, fact_pages, rows
from kfm.db.catalogue import PREFIX, Line
from kfm.db.session import Row, Session
from kfm.model.errors import IllegalTransition
from kfm.model.records import Unit
from kfm.model.units import ClaimedUnit, ClaimRequest, StoredUnit

_UNIT_FIELDS = Unit.__struct_fields__
_BESIDE = StoredUnit.__struct_fields__[1:]
_EXTRA = len(_UNIT_FIELDS) - 1
_TRAIL = _EXTRA + 1 + _BESIDE.index("trail")
_OBJECT, _ITEM, _COLLECTION, _HREF, _RUN, _WORKER = map(
    _UNIT_FIELDS.index,
    ("object_uri", "stac_item_id", "stac_collection_id", "stac_item_href", "ingest_run_id", "worker_id"),
)
UNCHANGING = ("wal_id", "dataset", "object_uri", "provider", "queue", "created_at_ms")
AS_WORKER = ""  # instead of a run's id that is its worker's
NUMBERED = "#"


def stored(session: Session, found: Sequence[Row]) -> list[StoredUnit]:
    """Units of their rows, and of the pages that tell the rest of them."""
    afar = {row[0]: row[_TRAIL] for row in found if not row[_OBJECT]}
    done = {row[0]: row[_TRAIL] for row in found if row[_ITEM] is None and row[_COLLECTION] is not None}
    objects, items = fact_pages.objects(session, afar), fact_pages.items(session, done)
    known = workers(session, (row[_WORKER] for row in found))
    return [_stored(_whole(row, objects, items, known)) for row in found]


def _stored(row: Sequence[Any]) -> StoredUnit:
    unit = rows.converted(_UNIT_FIELDS, (*row[:_EXTRA], rows.value_of(row[_EXTRA])), Unit)
    return StoredUnit(unit, *row[_EXTRA + 1 :])


def _whole(
    row: Row, objects: Mapping[str, str], items: Mapping[str, str | None], known: Mapping[str, str]
) -> Sequence[Any]:
    values = list(row)
    values[_WORKER] = known.get(row[_WORKER], row[_WORKER])
    values[_OBJECT] = row[_OBJECT] or objects[row[0]]
    values[_ITEM] = items.get(row[0], row[_ITEM])
    if row[_HREF] is None and values[_ITEM] is not None:
        values[_HREF] = item_href(row[_COLLECTION], values[_ITEM])
    if row[_RUN] == AS_WORKER:
        values[_RUN] = values[_WORKER]
    return values


def worker_text(session: Session, worker_id: str) -> str:
    """How rows name a worker: by its number, which it gets here if it has none."""
    row = session.one("unit_workers.enter", worker_id=worker_id)
    assert row is not None
    return f"{NUMBERED}{row[0]}"


def workers(session: Session, texts: Iterable[str | None]) -> dict[str, str]:
    """What rows say → the worker's id."""
    numbers = {int(text[1:]) for text in texts if text is not None and text.startswith(NUMBERED)}
    if not numbers:
        return {}
    found = session.all("unit_workers.of", numbers=msgspec.json.encode(sorted(numbers)).decode())
    return {f"{NUMBERED}{number}": worker_id for number, worker_id in found}


def texts_of(session: Session, worker_ids: Collection[str]) -> list[str]:
    """How rows name those of these workers that ever claimed a unit."""
    found = session.all("unit_workers.named", worker_ids=msgspec.json.encode(sorted(worker_ids)).decode())
    return [f"{NUMBERED}{number}" for (number,) in found]


def run_text(claim: ClaimRequest) -> str:
    return AS_WORKER if claim.ingest_run_id == claim.worker_id else claim.ingest_run_id


def item_href(collection_id: str, item_id: str) -> str:
    return f"collections/{collection_id}/items/{item_id}"


def addresses(session: Session, known: Mapping[str, str | None]) -> dict[str, str]:
    """Unit → its object, where a row does not say it."""
    wanted = [wal_id for wal_id, object_uri in known.items() if object_uri == ""]
    if not wanted:
        return {}
    trails: dict[str, str] = dict(session.all("units.trails", wal_ids=msgspec.json.encode(wanted).decode()))
    return fact_pages.objects(session, trails)


def get(session: Session, wal_id: str) -> StoredUnit | None:
    found = stored(session, session.all("units.get", wal_id=wal_id))
    return found[0] if found else None


def held(session: Session, wal_id: str) -> StoredUnit | None:
    """The unit, locked until this transaction ends."""
    found = stored(session, session.all("units.get_for_update", wal_id=wal_id))
    return found[0] if found else None


def hold_all(session: Session, wal_ids: Sequence[str]) -> None:
    """Locks these until this transaction ends, in the order of their ids."""
    session.all("units.hold_all", wal_ids=msgspec.json.encode(wal_ids).decode())


def put(session: Session, seen: StoredUnit, made: StoredUnit) -> None:
    """The unit as it is now. Held before, so it must land."""
    parameters = msgspec.structs.asdict(made.unit)
    parameters["extra"] = extra_text(made.unit.extra)
    _without_what_follows(parameters)
    for name in UNCHANGING[1:]:
        del parameters[name]
    for name in _BESIDE:
        parameters[name] = getattr(made, name)
    rows.with_storable(parameters, ("last_error_message",))
    landed = session.one("units.put", seen_version=seen.unit.version, **parameters)
    assert landed is not None, "the unit's row is ours inside this transaction"


def _without_what_follows(parameters: dict[str, Any]) -> None:
    """What follows from the others is not written."""
    item, collection = parameters["stac_item_id"], parameters["stac_collection_id"]
    if item is not None and parameters["stac_item_href"] == item_href(collection, item):
        parameters["stac_item_href"] = None
    if parameters["ingest_run_id"] is not None and parameters["ingest_run_id"] == parameters["worker_id"]:
        parameters["ingest_run_id"] = AS_WORKER


def written(
    session: Session, name: str, lines: Sequence[tuple[Any, ...]], wal_ids: list[str], *trails: str
) -> set[str]:
    """Write these lines; the ids of those that landed, known by how their trail ends now.

    Looked for only where not all did, which is rare: returning an id for each row would cost more.
    """
    if session.bulk(name, lines) == len(wal_ids):
        return set(wal_ids)
    asked = msgspec.json.encode(wal_ids).decode()
    found = [row for trail in trails for row in session.all("units.of_page", wal_ids=asked, trail=trail)]
    return {wal_id for (wal_id,) in found}


def check_extra(text: str) -> None:
    """What operators add must not shadow the record's own fields."""
    shadowed = sorted(set(rows.value_of(text)) & set(_UNIT_FIELDS))
    if shadowed:
        raise IllegalTransition(f"unit: extra fields shadow the record's own: {', '.join(shadowed)}.")


def extra_text(extra: dict[str, Any]) -> str:
    return rows.payload_of(extra) if extra else "{}"


def claimed_of(seen: StoredUnit) -> ClaimedUnit:
    unit = seen.unit
    return ClaimedUnit(
        wal_id=unit.wal_id,
        version=unit.version,
        dataset=unit.dataset,
        provider=unit.provider,
        queue=unit.queue,
        object_uri=unit.object_uri,
        event_time_ms=unit.event_time_ms,
        attempts=unit.attempts,
        replay_reason=unit.replay_reason,
        extra=extra_text(unit.extra),
        claimed_at_ms=unit.last_attempt_at_ms or 0,
        **{
            name: getattr(seen, name)
            for name in ClaimedUnit.__struct_fields__
            if name in StoredUnit.__struct_fields__
        },
    )


LOST = "lost"  # amount: results that did not count, since the unit was not its worker's any more
WATERMARK = "watermark"  # amount: units that succeeded; high: the newest time that they cover


class CountChanges:
    """Changes of the units' counters by one transaction."""

    def __init__(self) -> None:
        self._amounts: Counter[tuple[str, str]] = Counter()
        self._highs: dict[tuple[str, str], int] = {}

    def add(self, dataset: str, name: str, amount: int = 1) -> None:
        self._amounts[dataset, name] += amount

    def moved(self, dataset: str, old: str | None, new: str, amount: int = 1) -> None:
        if old is not None:
            self._amounts[dataset, old] -= amount
        self._amounts[dataset, new] += amount

    def reached(self, dataset: str, name: str, high_ms: int | None, amount: int = 1) -> None:
        self._amounts[dataset, name] += amount
        if high_ms is not None and high_ms > self._highs.get((dataset, name), high_ms - 1):
            self._highs[dataset, name] = high_ms

    def write(self, session: Session, beside: Iterable[Line] = ()) -> None:
        rows: list[Line] = [
            (dataset, name, amount, self._highs.get((dataset, name)))
            for (dataset, name), amount in self._amounts.items()
            if amount or (dataset, name) in self._highs
        ]
        rows += beside
        if rows:
            session.send_all("unit_deltas.add", rows)


def fold(session: Session, limit: int) -> int:
    """Add up the oldest changes; how many there were: none, while another process does."""
    if not duties.take(session, "figures"):
        return 0
    taken = session.all("unit_deltas.take", row_limit=limit)
    sums: Counter[tuple[str, str]] = Counter()
    highs: dict[tuple[str, str], int] = {}
    for dataset, name, amount, high_ms in taken:
        sums[dataset, name] += amount
        if high_ms is not None:
            highs[dataset, name] = max(high_ms, highs.get((dataset, name), high_ms))
    # In one order, so that two who add up at once never wait for each other in a circle.
    for dataset, name in sorted(sums):
        session.all(
            "unit_totals.add",
            dataset=dataset,
            name=name,
            amount=sums[dataset, name],
            high_ms=highs.get((dataset, name)),
        )
    return len(taken)


def totals(session: Session) -> dict[tuple[str, str], tuple[int, int | None]]:
    """(dataset, name) → amount and high, changes that are not added up yet included."""
    found: Iterable[tuple[str, str, int, int | None]] = session.all("unit_totals.list")
    return {
        (dataset, name): (int(amount), high_ms)
        for dataset, name, amount, high_ms in found
        if not name.startswith(PREFIX)  # of the catalogue
    }
