"""Those who make objects and announce them: what is true upstream, and what messages say about it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from kfm.model.times import rfc3339
from kfm.nodd.dataset_registry import Generic, IntakePolicy, Registry, load_registry
from kfm.nodd.grammar import Reading
from tests.nodd_objects import grib2

HRRR, RADAR, GAUGES = "noaa-hrrr-bdp-pds", "unidata-nexrad-level2", "river-gauges"
TOPIC = "arn:aws:sns:us-east-1:123901341784:NewHRRRObject"
CERTIFICATE = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"
# With the records that are dead; a list of none asks for nothing.
HOSTILE_BODIES: tuple[tuple[bytes, list[int]], ...] = (
    (b"", [0]),
    (b"{", [0]),
    (b"\xff\xfe", [0]),
    (b"[]", [0]),
    (b'{"Records": []}', []),
    (b'{"Type": "Notification", "TopicArn": "arn:aws:sns:us-east-1:1:Evil", "Message": "{}"}', [0]),
)
BYTES = grib2()


@cache
def registry() -> Registry:
    return load_registry(IntakePolicy(generic=(Generic(dataset="gauges", bucket=GAUGES),)))


@dataclass
class Thing:
    """One key, and what happened to it."""

    reading: Reading
    sequenced: bool  # its publisher says which version is newer
    poison: int = 0  # so many of those who look at it die
    versioned: bool = False  # its bucket keeps versions
    events: list[Event] = field(default_factory=list)
    stack: list[Event] = field(default_factory=list)  # what the bucket keeps, the present version last

    @property
    def uri(self) -> str:
        return self.reading.object_uri

    @property
    def now(self) -> Event | None:
        """What is upstream; None: nothing."""
        last = self.stack[-1] if self.stack else None
        return last if last is not None and last.kind == "put" else None


@dataclass(eq=False)
class Event:
    thing: Thing
    number: int
    kind: Literal["put", "delete", "delete-of-version", "marker"]
    at_ms: int
    etag: str | None = None
    size: int | None = None
    sequencer: str | None = None
    damaged: bool = False  # upstream has another size than it announces
    version: str | None = None


@dataclass(eq=False)
class Posted:
    """A message: its body, which of its records are to become what."""

    body: bytes
    events: list[Event]
    dead: list[int]  # indices of records that no worker can take in

    @property
    def envelope_hash(self) -> str:
        return f"sha256:{hashlib.sha256(self.body).hexdigest()}"


class Feed:
    """Has dice of its own."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self.rng = random.Random(f"feed {seed}")
        self.versions = random.Random(f"versions {seed}")
        self.things: dict[str, Thing] = {}
        self.posted: list[Posted] = []
        self._number = self.rng.randrange(1_000)
        self._unsaid: list[Event] = []
        self._keys(now_ms)
        self._plan = self._drawn()

    # --- what there is ----------------------------------------------------------------

    def _keys(self, now_ms: int) -> None:
        rng = self.rng
        hours = rng.sample(range(18), rng.randrange(1, 5))
        for hour in hours:
            key = f"hrrr.20260920/conus/hrrr.t12z.wrfsfcf{hour:02d}.grib2"
            self._add(HRRR, key)
            if rng.random() < 0.6:
                self._add(HRRR, f"{key}.idx")
        if rng.random() < 0.2:  # the provider can't have made it yet
            self._add(HRRR, "hrrr.20270114/conus/hrrr.t00z.wrfsfcf00.grib2")
        for minute in rng.sample(range(60), rng.randrange(1, 4)):
            self._add(RADAR, f"2026/09/20/KTWX/KTWX20260920_12{minute:02d}00_V06")
        for name in rng.sample("abcd", rng.randrange(0, 3)):
            self._add(GAUGES, f"{name}/levels.csv")
        if rng.random() < 0.2:
            thing = rng.choice(list(self.things.values()))
            thing.poison = rng.choice((1, 3, 1_000))

    def _add(self, bucket: str, key: str) -> None:
        reading = registry().read("aws", bucket, key)
        self.things[reading.object_uri] = Thing(reading, sequenced=self.rng.random() < 0.85)

    def _drawn(self) -> list[tuple[Thing, Literal["put", "delete"]]]:
        """What will happen, in which order."""
        rng = self.rng
        plan: list[tuple[Thing, Literal["put", "delete"]]] = []
        for thing in self.things.values():
            plan.append((thing, "put"))
            for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
                plan.append((thing, rng.choice(("put", "put", "delete"))))
        rng.shuffle(plan)
        return plan

    # --- what happens -----------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return not self._plan and not self._unsaid

    def advance(self, now_ms: int) -> Iterator[Posted]:
        """Perhaps something happens, and perhaps it is announced."""
        if self._plan and self.rng.random() < 0.7:
            self.happen(*self._plan.pop(), now_ms)
        if self._unsaid and (self.rng.random() < 0.6 or not self._plan):
            yield from self.messages(now_ms)

    def happen(
        self, thing: Thing, kind: Literal["put", "delete"], now_ms: int, *, good: bool = False
    ) -> None:
        rng = self.rng
        if kind == "delete" and not thing.stack:
            kind = "put"
        self._number += rng.randrange(1, 300)
        event = Event(thing, self._number, kind, now_ms)
        if thing.versioned:
            self._versioned(event)
        if thing.sequenced:
            tail = f"{rng.randrange(16**6):06x}"[: rng.randrange(7)]
            event.sequencer = f"00{self._number:07X}{tail}"
            if rng.random() < 0.3:
                event.sequencer = event.sequencer.lower()
        if kind == "put":
            earlier = [one.etag for one in thing.events if one.kind == "put"]
            again = bool(earlier) and rng.random() < 0.2 and not good
            event.etag = rng.choice(earlier) if again else f"{rng.getrandbits(128):032x}"
            event.size = len(BYTES)
            event.damaged = rng.random() < 0.05 and not again and not good and not thing.versioned
        if not thing.versioned:
            thing.stack = [event] if kind == "put" else []
        thing.events.append(event)
        self._unsaid.append(event)

    def _versioned(self, event: Event) -> None:
        """A deletion adds a marker, or is of any version that there is: of a marker, too."""
        thing = event.thing
        if event.kind == "delete" and (thing.now is None or self.versions.random() < 0.6):
            victim = self.versions.choice(thing.stack)
            event.kind, event.version = "delete-of-version", victim.version
            thing.stack.remove(victim)
            return
        event.version = f"v{event.number}"
        event.kind = "put" if event.kind == "put" else "marker"
        thing.stack.append(event)

    def messages(self, now_ms: int) -> Iterator[Posted]:
        """Everything that was not announced yet."""
        rng = self.rng
        while self._unsaid:
            told = [self._unsaid.pop(0)]
            while self._unsaid and rng.random() < 0.3 and self._unsaid[0].thing is not told[0].thing:
                told.append(self._unsaid.pop(0))
                break
            yield self._message(told, now_ms)
        if rng.random() < 0.1:
            body, dead = rng.choice(HOSTILE_BODIES)
            yield self._kept(Posted(body, [], dead))

    def _message(self, told: list[Event], now_ms: int) -> Posted:
        rng = self.rng
        records: list[Any] = [_record(one) for one in told]
        dead: list[int] = []
        if rng.random() < 0.1:
            dead = [rng.randrange(len(records) + 1)]
            wrong = rng.choice((7, {"eventVersion": "9.9"}, _wrong(), {**_record(told[0]), "s3": None}))
            records.insert(dead[0], wrong)
        document = json.dumps({"Records": records, "id": rng.getrandbits(32)})
        if rng.random() < 0.5:
            document = json.dumps(
                {
                    "Type": "Notification",
                    "MessageId": f"{rng.getrandbits(64):x}",
                    "TopicArn": TOPIC,
                    "Message": document,
                    "Timestamp": rfc3339(now_ms),
                    "SigningCertURL": CERTIFICATE,
                }
            )
        return self._kept(Posted(document.encode(), told, dead))

    def _kept(self, posted: Posted) -> Posted:
        self.posted.append(posted)
        return posted


def _record(event: Event) -> dict[str, Any]:
    reading = event.thing.reading
    names = {"put": "ObjectCreated:Put", "marker": "LifecycleExpiration:DeleteMarkerCreated"}
    thing = {
        "key": reading.key,
        "size": event.size,
        "eTag": event.etag,
        "sequencer": event.sequencer,
        "versionId": event.version,
    }
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": rfc3339(event.at_ms),
        "eventName": names.get(event.kind, "ObjectRemoved:Delete"),
        "s3": {
            "bucket": {"name": reading.bucket},
            "object": {name: value for name, value in thing.items() if value is not None},
        },
    }


def _wrong() -> dict[str, Any]:
    return {
        "eventVersion": "2.1",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "nobodys-bucket"}, "object": {"key": "x/y"}},
    }
