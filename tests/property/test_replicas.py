"""Deliveries to a replica that loses, repeats and delays: when that is over, it shows what we do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.catalogue import want, withdraw
from kfm.db.ledger import Ledger
from kfm.model.catalogue import AssetFacts, CatalogueEntry
from kfm.model.errors import CollectorRefused, UpstreamUnavailable
from kfm.model.records import Unit
from kfm.model.units import created
from kfm.nodd.catalogue.stac_items import render_collection, render_item
from kfm.nodd.replicas import CLAIM_MS, COLLECTION_MS, ITEM_MS, PARKED_MS, Replicator
from tests.conformance.db import ledgers
from tests.stand_ins import FakeClock
from tests.unit_pages import register

NAME = "far"
ITEMS = 12
HOUR_MS = 3_600_000
REFUSED = "item-3"  # this replica never takes it


class ModelReplica:
    """Items in memory. What reaches it may be answered or not, and may come late."""

    def __init__(self, dice: random.Random) -> None:
        self.items_shown: dict[tuple[str, str], dict[str, Any]] = {}
        self.collections: dict[str, list[dict[str, Any]]] = {}
        self.dice = dice
        self.faulty = False
        self.late: list[tuple[str, str, dict[str, Any] | None]] = []  # on their way, answered long ago
        self.meanwhile: list[Any] = []  # what others do while a request is on its way

    def _reached(self) -> None:
        if self.faulty and self.dice.random() < 0.2:
            raise UpstreamUnavailable("away")

    def _answered(self) -> None:
        if self.faulty and self.dice.random() < 0.2:
            raise UpstreamUnavailable("the answer was lost")

    def _land(self, collection_id: str, item_id: str, body: dict[str, Any] | None) -> None:
        if self.meanwhile and self.dice.random() < 0.3:
            self.meanwhile.pop()()
        if self.faulty and self.late is not None and self.dice.random() < 0.1:
            self.late.append((collection_id, item_id, body))
            raise UpstreamUnavailable("no answer in time")
        if body is None:
            self.items_shown.pop((collection_id, item_id), None)
        else:
            self.items_shown[collection_id, item_id] = body

    def arrive(self) -> None:
        for collection_id, item_id, body in self.late:
            if body is None:
                self.items_shown.pop((collection_id, item_id), None)
            else:
                self.items_shown[collection_id, item_id] = body
        self.late.clear()

    def ensure_collection(self, body: dict[str, Any]) -> None:
        self._reached()
        self.collections.setdefault(body["id"], []).append(body)

    def put_item(self, body: dict[str, Any]) -> None:
        self._reached()
        assert body["collection"] in self.collections, "a collection comes before its items"
        if body["id"] == REFUSED:
            raise CollectorRefused("not that one")
        self._land(body["collection"], body["id"], body)
        self._answered()

    def delete_item(self, collection_id: str, item_id: str) -> None:
        self._reached()
        self._land(collection_id, item_id, None)
        self._answered()

    def revisions(self, collection_id: str, ids: Sequence[str]) -> dict[str, int | None]:
        self._reached()
        return {
            item_id: self.items_shown[collection_id, item_id]["properties"]["kfm:revision"]
            for item_id in ids
            if (collection_id, item_id) in self.items_shown
        }

    def items(self, collection_id: str) -> Iterator[tuple[str, int | None]]:
        for name, item_id in sorted(self.items_shown):
            if name == collection_id:
                yield item_id, self.revisions(name, [item_id])[item_id]

    def close(self) -> None: ...


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = FakeClock()
        self.store: Ledger = ledgers.memory_store(self.clock)
        self.far = ModelReplica(self.dice)

    def deliverer(self) -> Replicator:
        return Replicator(
            NAME,
            self.far,
            self.store.replicas(),
            self.store.catalogue(),
            lambda item: render_item(item, "https://far.example"),
            lambda figures: render_collection(None, figures, "https://far.example"),
        )

    def change(self) -> None:
        """One item comes, changes, or goes."""
        number = self.dice.randrange(ITEMS)
        told = entry_of(number, self.dice.randrange(1_000))
        if self.dice.random() < 0.25:
            self.write(lambda session: withdraw(session, unit_of(told), self.clock.now_ms()), told)
        else:
            self.write(lambda session: register(session, [told], self.clock.now_ms())[0], told)

    def write(self, act: Any, told: CatalogueEntry) -> None:
        def change(session: Any) -> None:
            answer = act(session)
            if answer is None or getattr(answer, "status", "") == "no-op":
                return
            revision = answer[2] if isinstance(answer, tuple) else answer.revision
            want(session, [NAME], [(told.collection_id, told.item_id, revision)])

        self.store._database.write(change)

    def ours(self) -> dict[tuple[str, str], int]:
        catalogue = self.store.catalogue()
        found = [catalogue.item("hrrr", f"item-{number}") for number in range(ITEMS)]
        return {(one.collection_id, one.item_id): one.revision for one in found if one is not None}

    def theirs(self) -> dict[tuple[str, str], int]:
        return {key: body["properties"]["kfm:revision"] for key, body in self.far.items_shown.items()}

    def settle(self) -> None:
        """No faults any more, and time enough."""
        self.far.faulty = False
        self.far.meanwhile.clear()
        deliverer = self.deliverer()
        for _ in range(10):
            self.clock.sleep_ms(CLAIM_MS + 1)
            deliverer.step()


def entry_of(number: int, size: int) -> CatalogueEntry:
    return CatalogueEntry(
        collection_id="hrrr",
        item_id=f"item-{number}",
        asset=AssetFacts(
            role="data",
            wal_id=f"unit-{number}",
            content_version=1,
            href=f"s3://bucket/{number}",
            media_type="application/wmo-GRIB2",
            size=size,
        ),
        start_ms=HOUR_MS * number,
        end_ms=HOUR_MS * number + 1,
        properties="{}",
        bbox=(-100.0, 30.0, -90.0, 40.0),
        geometry='{"coordinates":[-95.0,35.0],"type":"Point"}',
        at_ms=HOUR_MS * number,
    )


def unit_of(told: CatalogueEntry) -> Unit:
    made = created(
        wal_id=told.asset.wal_id,
        dataset="hrrr",
        object_uri=told.asset.href,
        provider="aws",
        queue="q",
        event_time_ms=None,
        time_range_start_ms=None,
        time_range_end_ms=None,
        now_ms=0,
        extra={},
    )
    return replace(made, stac_collection_id=told.collection_id, stac_item_id=told.item_id)


def rough_life(world: World) -> None:
    """Changes, deliveries by two, outages, and deliverers that oversleep their claim."""
    world.far.faulty = True
    first, second, third = world.deliverer(), world.deliverer(), world.deliverer()

    def oversleep() -> None:
        world.clock.sleep_ms(CLAIM_MS + 1)
        world.change()
        third.step(1)

    for _ in range(40):
        for _ in range(world.dice.randrange(4)):
            world.change()
        if world.dice.random() < 0.2:
            world.far.meanwhile = [oversleep]
        world.dice.choice((first, second)).step(1)
        world.clock.sleep_ms(world.dice.choice((0, 2_000, 60_000)))


@pytest.mark.req("WAL-8")
@pytest.mark.parametrize("seed", range(40))
def test_a_replica_shows_what_we_do_when_faults_are_over(seed: int) -> None:
    """Nothing is lost by outages and lost answers; who overslept his claim puts right what he overwrote."""
    world = World(seed)
    world.far.late = None  # type: ignore[assignment] # nothing comes after its answer was given up
    rough_life(world)
    world.settle()
    assert {key: one for key, one in world.ours().items() if key[1] != REFUSED} == world.theirs()


@pytest.mark.req("WAL-8")
@pytest.mark.parametrize("seed", range(40))
def test_comparing_finds_what_came_late(seed: int) -> None:
    """A request that lands after everybody gave it up is found by comparing, and put right."""
    world = World(seed)
    rough_life(world)
    world.settle()
    world.far.arrive()
    world.deliverer().compare(repair=True)
    world.settle()
    compared = world.deliverer().compare(repair=False)
    ours = {key: one for key, one in world.ours().items() if key[1] != REFUSED}
    assert ours == world.theirs()
    assert (compared.stale, compared.extra, compared.equal) == (0, 0, len(ours))


def test_comparing_counts_what_differs() -> None:
    """Missing, older, and what we no longer have; what others put there is theirs."""
    world = World(1)
    for number in (0, 1, 2, 4):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)
    world.settle()
    key = ("hrrr", "item-0")
    shown = world.far.items_shown
    del shown["hrrr", "item-1"]
    shown[key] = {**shown[key], "properties": {"kfm:revision": 0}}
    shown["hrrr", "item-9"] = shown[key]
    compared = world.deliverer().compare(repair=False)
    assert (compared.items, compared.equal, compared.missing, compared.stale, compared.extra) == (
        4,
        2,
        1,
        1,
        1,
    )
    world.deliverer().compare(repair=True)
    assert world.deliverer().step().waiting == 0
    assert world.ours() == world.theirs()


def test_one_refused_item_holds_nothing_up() -> None:
    """It is told, waits for a day, and is offered again then; its neighbours are there at once."""
    world = World(1)
    for number in range(ITEMS):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)
    result = world.deliverer().step()
    assert (result.sent, result.refused, result.waiting) == (ITEMS - 1, 1, 1)
    assert "item-3 is refused: not that one" in (result.trouble or "")
    assert world.deliverer().step().refused == 0
    world.clock.sleep_ms(PARKED_MS + 1)
    assert world.deliverer().step().refused == 1


def test_an_item_in_trouble_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that always fails is tried ever less; those behind it are delivered."""
    world = World(1)
    for number in (0, 1, 2):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)
    plain = world.far.put_item

    def put(body: dict[str, Any]) -> None:
        if body["id"] == "item-0":
            raise UpstreamUnavailable("500")
        plain(body)

    monkeypatch.setattr(world.far, "put_item", put)
    result = world.deliverer().step(1)
    assert (result.sent, result.waiting, result.trouble) == (2, 1, "500")
    assert world.deliverer().step(1).trouble is None, "not before its time"
    world.clock.sleep_ms(1_001)
    assert world.deliverer().step(1).trouble == "500"
    world.clock.sleep_ms(1_001)
    assert world.deliverer().step(1).trouble is None, "the distance grows"


def test_an_outage_is_noticed_after_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is away is not asked for every item, and what was not tried is not charged."""
    world, asked = World(1), []
    for number in range(ITEMS):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)

    def away(body: dict[str, Any]) -> None:
        asked.append(body)
        raise UpstreamUnavailable("away")

    monkeypatch.setattr(world.far, "ensure_collection", away)
    result = world.deliverer().step()
    assert (result.sent, result.waiting, result.trouble, len(asked)) == (0, ITEMS, "away", 3)
    rows = world.store._database.session.all(
        "replica_items.claim", replica=NAME, now_ms=2**50, until_ms=2**50, row_limit=99
    )
    assert sorted(row[4] for row in rows) == [1] * (ITEMS - 3) + [2] * 3


def test_collections_follow_their_items() -> None:
    """Sent before the first item, and again as the extent grows, but not for every item."""
    world = World(1)
    deliverer = world.deliverer()
    for number in (0, 1, 2):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)
        deliverer.step()
        assert len(world.far.collections["hrrr"]) == 1
    world.clock.sleep_ms(COLLECTION_MS)
    deliverer.step()
    first, second = world.far.collections["hrrr"]
    ends = [body["extent"]["temporal"]["interval"][0][1] for body in (first, second)]
    assert ends == ["1970-01-01T00:00:00.001Z", "1970-01-01T02:00:00.001Z"]
    world.clock.sleep_ms(COLLECTION_MS)
    deliverer.step()
    assert len(world.far.collections["hrrr"]) == 2, "nothing is new"


def test_a_pass_ends_when_it_is_told_to() -> None:
    """What was claimed and not sent is due at once, for the next process."""
    world = World(1)
    for number in (0, 1, 2):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)
    seen: list[int] = []

    def stopping() -> bool:
        seen.append(1)
        return len(seen) > 2

    assert world.deliverer().step(stopping=stopping).sent == 1
    assert world.deliverer().step().sent == 2


def test_a_replica_that_forgets_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken has to be shown."""
    world = World(1)
    told = entry_of(0, 1)
    world.write(lambda session: register(session, [told], 5)[0], told)
    monkeypatch.setattr(world.far, "_land", lambda *_: None)
    result = world.deliverer().step()
    assert (result.sent, result.trouble) == (0, "far took item-0 and does not show it.")


def test_nothing_is_sent_near_the_end_of_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow replica a batch takes longer than its claim: what can't be sent in time is put back."""
    world, began = World(1), []
    for number in (0, 1, 2, 4, 5, 6, 7, 8):
        told = entry_of(number, 1)
        world.write(lambda session, told=told: register(session, [told], 5)[0], told)
    plain, start_ms = world.far.put_item, world.clock.monotonic_ms()

    def slow(body: dict[str, Any]) -> None:
        began.append(world.clock.monotonic_ms() - start_ms)
        world.clock.sleep_ms(ITEM_MS - 1)
        plain(body)

    monkeypatch.setattr(world.far, "put_item", slow)
    result = world.deliverer().step(1)
    assert (result.sent, result.waiting) == (len(began), 8 - len(began))
    assert max(began) + ITEM_MS <= CLAIM_MS
    for _ in range(8):
        world.deliverer().step(1)
    assert world.ours() == world.theirs()
    assert len(began) == 8, "each once"
