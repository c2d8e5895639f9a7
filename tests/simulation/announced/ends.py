"""What must hold once everything has settled: the catalogue is what the announcements' order makes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.db.catalogue import CatalogueReader
from kfm.db.packing import joined
from kfm.db.units import UnitReader
from kfm.model.catalogue import AssetFacts, Search
from kfm.model.units import TOPIC, Content
from kfm.nodd.catalogue.item_facts import entry
from tests import unit_pages
from tests.simulation.announced.feed import Posted, Thing, registry
from tests.simulation.judging import require

if TYPE_CHECKING:
    from tests.simulation.announced.checks import Checks

STATUSES = ("pending", "in_progress", "succeeded", "failed", "quarantined")
COLUMNS = (
    "wal_id, status, etag, sequencer, content_version, done_version, removed, stac_collection_id, "
    "stac_item_id, last_error_code, grant_attempts, metadata_status"
)


class Row(msgspec.Struct, frozen=True):
    wal_id: str
    status: str
    etag: str | None
    sequencer: str | None
    content_version: int
    done_version: int
    removed: int
    collection_id: str | None
    item_id: str | None
    error_code: str | None
    grant_attempts: int
    metadata_status: str


def rows_of(checks: Checks) -> dict[str, Row]:
    names = unit_pages.item_names(checks.all)
    found = [Row(*row) for row in checks.all(f"SELECT {COLUMNS} FROM units")]
    return {row.wal_id: replace(row, item_id=names[row.wal_id]) for row in found}


# --- acknowledged --------------------------------------------------------------------------


def is_durable(checks: Checks, posted: Posted) -> None:
    for index in posted.dead:
        found = checks.all(
            "SELECT times FROM dead_messages WHERE envelope_hash = ? AND record_index = ?",
            posted.envelope_hash,
            index,
        )
        require(bool(found), "what can't be taken in is kept as a dead letter", index=index, body=posted.body)
    for event in posted.events:
        if event.kind != "put":
            continue
        found = checks.all("SELECT sequencer FROM units WHERE wal_id = ?", event.thing.reading.wal_id)
        require(bool(found), "an acknowledged object has its unit", event=event.number, uri=event.thing.uri)
        if event.sequencer is not None:
            require(
                order(found[0][0]) >= order(event.sequencer),
                "what is acknowledged is known",
                known=found[0][0],
                said=event.sequencer,
            )


def order(sequencer: str | None) -> str:
    return (sequencer or "").upper().ljust(24, "0")


# --- what should be ------------------------------------------------------------------------


def asks(checks: Checks, thing: Thing) -> bool:
    """Is upstream itself asked about each of these objects?"""
    integrity = checks.world.settings.policy_of(thing.reading.dataset).integrity
    return checks.world.has_look and integrity != "announced"


def to_be_mended(checks: Checks) -> list[Thing]:
    """Those that were given up, with reason; new bytes bring them back."""
    found = []
    for wal_id, row in rows_of(checks).items():
        thing = checks.thing(wal_id)
        if row.status in ("failed", "quarantined"):
            _given_up_rightly(checks, thing, row)
            if (
                checks.world.settings.policy_of(thing.reading.dataset).reissue == "update"
                and not thing.poison
            ):
                found.append(thing)
    return sorted(found, key=lambda thing: thing.uri)


def _given_up_rightly(checks: Checks, thing: Thing, row: Row) -> None:
    seen = checks.units[row.wal_id]
    if row.status == "quarantined":
        damaged = any(one.damaged for one in thing.events)
        require(
            (row.error_code == "SIZE_MISMATCH" and damaged and asks(checks, thing))
            or (row.error_code == "SIZE_MISMATCH" and damaged and not thing.sequenced),
            "only what is damaged is quarantined",
            row=row,
            moves=seen.moves,
        )
        checks.counts["damaged"] += 1
    else:
        checks.counts["spent"] += 1
        # A clock that jumps ahead spends the time that a grant has.
        early = seen.charged < 8 and not seen.lapsed and not checks.world.ahead
        require(not early, "nothing is given up early", row=row, seen=seen)
        if seen.code == "LEASE_EXPIRED":
            require(seen.alone, "only who was alone is given up for dying", row=row)
    held = checks.all(
        "SELECT COUNT(*) FROM held WHERE grain = 'unit' AND subject = ? AND state = 'held'", row.wal_id
    )
    require(held == [(1,)], "what was given up is held, once", row=row, found=held)


# --- the end -------------------------------------------------------------------------------


def at_the_end(checks: Checks) -> None:
    rows = rows_of(checks)
    things = [thing for thing in checks.world.feed.things.values() if thing.events]
    shown = _shown(checks)
    for thing in things:
        row = rows.get(thing.reading.wal_id)
        require(row is not None, "every announced object has its unit", uri=thing.uri)
        assert row is not None
        require(row.status in ("succeeded", "failed", "quarantined"), "everything settles", row=row)
        _ends(checks, thing, row, shown.pop(row.wal_id, None))
    require(not shown, "the catalogue has nothing that was not announced", shown=shown)
    require(len(rows) == len(things), "there are no units but those that were announced")
    checks.figures()
    checks.catalogue_is_theirs()
    _messages(checks)
    _dead_letters(checks)
    _histories(checks)
    _replicas(checks)
    _bursts(checks)


def _shown(checks: Checks) -> dict[str, tuple[Any, ...]]:
    """wal_id → its asset and its item's columns. One asset for each unit at most."""
    found: dict[str, tuple[Any, ...]] = {}
    items = {
        row[0]: (row[1], row[2], row[11], row[3], row[4], row[12]) for row in unit_pages.items(checks.all)
    }
    texts = [(number, item[-1]) for number, item in items.items() if item[-1] is not None]
    for number, text in texts + checks.all("SELECT item, facts FROM assets"):
        facts = msgspec.json.decode(text, type=AssetFacts)
        require(facts.wal_id not in found, "each object is one item or one asset", facts=facts)
        found[facts.wal_id] = (facts, *items[number][:-1])
    return found


def _ends(checks: Checks, thing: Thing, row: Row, shown: tuple[Any, ...] | None) -> None:
    policy = checks.world.settings.policy_of(thing.reading.dataset)
    facts = {"uri": thing.uri, "row": row, "shown": shown, "policy": policy, "events": thing.events}
    if row.status != "succeeded":
        explained = thing.poison > 0 or policy.reissue == "ignore" or thing.now is None
        require(explained, "what can succeed does in the end", moves=checks.units[row.wal_id].moves, **facts)
        return
    require(row.done_version == row.content_version, "what succeeded is the newest content", **facts)
    told = {version for wal_id, version in checks.told if wal_id == row.wal_id}
    require(row.done_version in told, "each success is in lineage", **facts)
    if row.removed and policy.removal == "remove":
        require(shown is None, "what was removed is not shown", **facts)
    else:
        require(shown is not None, "what succeeded is in the catalogue", **facts)
    if shown is not None:
        _is_right(checks, thing, row, shown, facts)
    ordered = thing.sequenced or (checks.world.has_look and policy.removal == "remove")
    if ordered:
        require(bool(row.removed) == (thing.now is None), "the last event decides what is there", **facts)
    if policy.reissue == "ignore" or not thing.sequenced:
        _loosely(checks, thing, row, facts)
        return
    if thing.now is not None:
        require(row.etag == thing.now.etag, "the catalogue has the newest bytes", **facts)


def _loosely(checks: Checks, thing: Thing, row: Row, facts: dict[str, Any]) -> None:
    """Without an order, or with re-issues ignored."""
    puts = [one.etag for one in thing.events if one.kind == "put"]
    policy = checks.world.settings.policy_of(thing.reading.dataset)
    removals = [one for one in thing.events if one.kind != "put"]
    taken_out = policy.removal == "remove" and bool(removals)
    is_tombstone = taken_out and bool(row.removed) and row.etag is None  # nothing else was ever heard of it
    require(is_tombstone or row.etag in puts, "the bytes are some that were announced", **facts)
    if policy.reissue == "ignore" and not removals:
        require(row.content_version == 1, "re-issues are ignored where the policy says so", **facts)
    elif policy.reissue != "ignore" and checks.world.has_look and thing.now is not None and not row.removed:
        require(row.etag == thing.now.etag, "where no order is told, upstream decides", **facts)


def _is_right(checks: Checks, thing: Thing, row: Row, shown: tuple[Any, ...], facts: dict[str, Any]) -> None:
    """The item is the one that this object makes, whichever worker made it."""
    asset, collection_id, item_id, properties, start_ms, end_ms = shown
    reading = thing.reading
    require(asset.etag == row.etag, "the asset is of the unit's bytes", **facts)
    require(asset.role == reading.asset, "a sidecar is an asset, and data are data", **facts)
    require((collection_id, item_id) == (row.collection_id, row.item_id), "the unit names its item", **facts)
    if reading.asset != "data":
        return
    dataset = registry().find(reading.dataset)
    made = entry(reading, Content(etag=row.etag, size=asset.size), row.done_version, None, dataset)
    require((start_ms, end_ms) == (made.start_ms, made.end_ms), "times are the key's", **facts)
    doubts = json.loads(properties).pop("kfm:suspect", [])
    # A ledger whose clock was a year ahead when it heard of it saw nothing early in it.
    is_early = "20270114" in reading.key
    is_early = is_early and not (row.metadata_status == "ok" and checks.world.was_years_ahead)
    require(doubts == (["TIME_FUTURE"] if is_early else []), "doubts are those of the record", **facts)
    require(row.metadata_status == ("suspect" if is_early else "ok"), "statuses follow the record", **facts)
    if not is_early:
        require(
            json.loads(properties) == json.loads(made.properties), "an item follows from its key", **facts
        )


def _messages(checks: Checks) -> None:
    found = checks.all("SELECT event_id, body, packed FROM outbox WHERE topic = ?", TOPIC)
    posted = {event_id: joined(body, packed) for event_id, body, packed in found}
    require(checks.world.arrived == posted, "what arrived is what was posted, byte by byte")


def _replicas(checks: Checks) -> None:
    """What others show of our catalogue is what it shows itself."""
    world = checks.world
    if not world.replicas:
        return
    catalogue = CatalogueReader(world.database)
    found = catalogue.find_items(Search(limit=10_000))
    ours = {
        (item.collection_id, item.item_id): (item.revision, tuple(asset.etag for asset in item.assets))
        for item in found
    }
    require(world.shelf.items == ours, "a replica shows what we do", theirs=world.shelf.items, ours=ours)


def _bursts(checks: Checks) -> None:
    """Each arrival that a source waits for is a member of one request, and a run has begun after it."""
    if not checks.world.downstream:
        return
    ((members,),) = checks.all("SELECT COUNT(*) FROM request_members")
    require(members == checks.arrivals, "each arrival is in one burst", found=members, came=checks.arrivals)
    checks.starts.at_rest()


def _dead_letters(checks: Checks) -> None:
    found = set(checks.all("SELECT envelope_hash, record_index FROM dead_messages"))
    wanted = {(one.envelope_hash, index) for one in checks.world.feed.posted for index in one.dead}
    require(found == wanted, "dead letters are those that must be", found=found, wanted=wanted)


def _histories(checks: Checks) -> None:
    reader = UnitReader(checks.world.database)
    for wal_id, seen in checks.units.items():
        moves = [(move.event, move.version) for move in reader.history_of(wal_id)]
        require(
            moves == seen.moves, "a unit's history is told whole and in order", told=moves, was=seen.moves
        )
