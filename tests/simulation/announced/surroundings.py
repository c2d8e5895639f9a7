"""Queues that repeat, reorder and forget; objects that are there or not; a collector that comes and goes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm.model.errors import BackendUnavailable, UpstreamUnavailable
from kfm.model.records import ObjectStat
from kfm.model.runs import OutboxMessage
from kfm.ports import QueueMessage
from tests.simulation.announced.feed import BYTES, Feed, Posted
from tests.simulation.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from tests.simulation.announced.world import AnnouncedWorld

SECOND_MS = 1_000
INDEX = b"1:0:d=2026092012:TMP:surface:anl:\n".ljust(len(BYTES), b"2")


@dataclass(eq=False)
class Copy:
    """A message in the queue. There may be several of one."""

    posted: Posted
    visible_ms: int
    receives: int = 0


class Line:
    """One queue, as it is for everybody."""

    def __init__(self, world: AnnouncedWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(f"queue {name} {world.seed}")
        self.copies: dict[int, Copy] = {}
        self._numbers = 0
        self.visibility_ms = self.rng.choice((2, 8, 30)) * SECOND_MS
        self.repeats = self.rng.choice((0.0, 0.1, 0.3))
        self.delays_ms = self.rng.choice((1, 1_000, 20_000))
        self.forgets = self.rng.choice((0.0, 0.05, 0.2))

    def put(self, posted: Posted) -> None:
        for _ in range(1 + (self.rng.random() < self.repeats) + (self.rng.random() < self.repeats)):
            self._numbers += 1
            delay_ms = self.rng.randrange(self.delays_ms)
            self.copies[self._numbers] = Copy(posted, self.world.scheduler.now_ms + delay_ms)

    def receive(self, limit: int, now_ms: int) -> list[QueueMessage]:
        found = [number for number, copy in self.copies.items() if copy.visible_ms <= now_ms]
        self.rng.shuffle(found)
        messages = []
        for number in found[:limit]:
            copy = self.copies[number]
            copy.receives += 1
            copy.visible_ms = now_ms + self.visibility_ms
            messages.append(
                QueueMessage(
                    receipt=f"{number}/{copy.receives}",
                    body=copy.posted.body,
                    message_id=str(number),
                    receives=copy.receives,
                )
            )
        return messages

    def drop(self, receipt: str) -> bool:
        """A receipt of an earlier hand-out may count, or not."""
        number, receives = (int(text) for text in receipt.split("/"))
        copy = self.copies.get(number)
        if copy is None:
            return True
        if copy.receives != receives and self.rng.random() < 0.5:
            return False
        del self.copies[number]
        return True


class SimQueue:
    """Implements `ports.Queue` for one process."""

    def __init__(self, line: Line, process: Process) -> None:
        self._line = line
        self._scheduler = line.world.scheduler
        self._process = process

    @property
    def name(self) -> str:
        return self._line.name

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        scheduler, line = self._scheduler, self._line
        scheduler.point(self._process, "receive")
        line.world.go_on()
        if scheduler.unlucky(scheduler.chances.fail_before):
            raise BackendUnavailable("simulated: the queue does not answer")
        messages = line.receive(min(limit, line.rng.choice((1, 2, 10))), scheduler.now_ms)
        scheduler.point(self._process, "received")
        return messages

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        scheduler, line = self._scheduler, self._line
        scheduler.point(self._process, "acknowledge")
        if scheduler.unlucky(scheduler.chances.fail_before):
            raise BackendUnavailable("simulated: nothing was acknowledged")
        left = []
        for receipt in receipts:
            copy = line.copies.get(int(receipt.partition("/")[0]))
            if copy is not None:
                line.world.checks.acknowledged(copy.posted)
            if line.rng.random() < line.forgets * bool(scheduler.chances.switch) or not line.drop(receipt):
                left.append(receipt)
        if scheduler.unlucky(scheduler.chances.fail_after):
            raise BackendUnavailable("simulated: the queue's answer was lost")
        return left

    def put_back(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            copy = self._line.copies.get(int(receipt.partition("/")[0]))
            if copy is not None:
                copy.visible_ms = self._scheduler.now_ms

    def close(self) -> None: ...


class SimObjects:
    """Implements `ports.Upstream`."""

    def __init__(self, feed: Feed, away: Callable[[], bool], scheduler: Scheduler, process: Process) -> None:
        self._feed = feed
        self._away = away
        self._scheduler = scheduler
        self._process = process

    def head(self, object_uri: str) -> ObjectStat | None:
        self._scheduler.point(self._process, "head")
        if self._away():
            self._scheduler.counts["objects away"] += 1
            raise UpstreamUnavailable("simulated: no answer", transient=True)
        event = self._feed.things[object_uri].now
        if event is None or event.size is None:
            return None
        size = event.size + event.damaged
        return ObjectStat(key=object_uri, size=size, etag=f'"{event.etag}"', version=event.version)

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        self._scheduler.point(self._process, "read")
        if self._away():
            raise UpstreamUnavailable("simulated: the line went dead", transient=True)
        content = INDEX if object_uri.endswith(".idx") else BYTES
        return content[start : start + length]

    def stream(self, object_uri: str) -> Iterator[bytes]:
        yield BYTES

    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]:
        yield from ()


class Shelf:
    """An external catalogue, as it is for everybody."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], tuple[int, tuple[str | None, ...]]] = {}
        self.late: list[Process] = []  # those that took something newer away: they have to tell

    @property
    def has_untold(self) -> bool:
        """A process overslept, wrote all the same, and died before it could tell. Only comparing finds it."""
        return any(process.dead for process in self.late)


class SimReplica:
    """Implements `ports.StacReplica` for one process."""

    def __init__(self, world: AnnouncedWorld, process: Process) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._process = process

    def _reached(self) -> None:
        scheduler = self._scheduler
        scheduler.point(self._process, "replica")
        if scheduler.chances.switch and self._world.dice.random() < self._world.replica_away:
            raise UpstreamUnavailable("simulated: no replica")

    def _answered(self) -> None:
        if self._scheduler.unlucky(self._scheduler.chances.fail_after):
            raise UpstreamUnavailable("simulated: the replica's answer was lost")
        self._scheduler.point(self._process, "replicated")

    def ensure_collection(self, body: dict[str, Any]) -> None:
        self._reached()

    def put_item(self, body: dict[str, Any]) -> None:
        self._reached()
        key, items = (body["collection"], body["id"]), self._world.shelf.items
        if key in items and items[key][0] > body["revision"]:
            self._wrote_late()
        items[key] = (body["revision"], body["etags"])
        self._answered()

    def delete_item(self, collection_id: str, item_id: str) -> None:
        self._reached()
        if (collection_id, item_id) in self._world.shelf.items and self._world.checks.shows(
            collection_id, item_id
        ):
            self._wrote_late()
        self._world.shelf.items.pop((collection_id, item_id), None)
        self._answered()

    def _wrote_late(self) -> None:
        self._scheduler.counts["an older revision came late"] += 1
        self._world.shelf.late.append(self._process)

    def revisions(self, collection_id: str, ids: Sequence[str]) -> dict[str, int | None]:
        self._reached()
        found = ((item_id, self._world.shelf.items.get((collection_id, item_id))) for item_id in ids)
        return {item_id: item[0] for item_id, item in found if item is not None}

    def items(self, collection_id: str) -> Iterator[tuple[str, int | None]]:
        for (collection, item_id), (revision, _) in sorted(self._world.shelf.items.items()):
            if collection == collection_id:
                yield item_id, revision

    def close(self) -> None: ...


class SimCollector:
    """Takes messages, or not."""

    def __init__(self, world: AnnouncedWorld, process: Process) -> None:
        self._world = world
        self._process = process

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        scheduler = self._world.scheduler
        scheduler.point(self._process, "collector")
        if scheduler.chances.switch and self._world.dice.random() < self._world.collector_away:
            raise BackendUnavailable("simulated: no collector")
        for message in messages:
            self._world.arrived.setdefault(message.event_id, message.body)
        if scheduler.unlucky(scheduler.chances.fail_after):
            raise BackendUnavailable("simulated: the collector's answer was lost")
        return len(messages)

    def close(self) -> None: ...
