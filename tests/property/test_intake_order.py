"""The order in which messages of one key are delivered does not matter: the end is the same, and true."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.model.records import GateResult, ObjectStat
from kfm.model.settings import Ingest, IngestPolicy
from kfm.model.times import rfc3339
from kfm.nodd.dataset_registry import Generic, IntakePolicy, load_registry
from kfm.nodd.inspect.inspection import make_inspector
from kfm.nodd.intake import KeyCache
from kfm.nodd.poller import intake_builder
from kfm.nodd.worker import IngestContext, StepReport, Worker
from kfm.ports import QueueMessage
from tests import unit_pages
from tests.conformance.db.ledgers import memory_store
from tests.stand_ins import START_MS, FakeClock, FixedRng

LONGEST = 4  # messages of one key
BUCKETS = {"aws": "levels", "gcp": "levels", "azure": "account/levels"}
SCHEMES = {"aws": "s3", "gcp": "gs", "azure": "az"}


@dataclass(frozen=True)
class Event:
    """What a provider tells of one key."""

    kind: str  # put | delete | delete-of-version | marker | overwritten
    number: int  # in the provider's own order
    etag: str | None = None
    version: str | None = None  # of a bucket that keeps versions
    generation: int = 0  # Google's


@dataclass
class Bucket:
    """One key of a bucket: what happened to it, and what is there now."""

    versioned: bool = False
    events: list[Event] = field(default_factory=list)
    stack: list[Event] = field(default_factory=list)  # versions, the present one last; a marker is one

    @property
    def present(self) -> Event | None:
        last = self.stack[-1] if self.stack else None
        return None if last is None or last.kind == "marker" else last

    def did(self, kind: str, of: Event | None = None) -> Bucket:
        """A copy in which one more thing has happened."""
        number = len(self.events) + 1
        after = Bucket(self.versioned, list(self.events), list(self.stack))
        version = f"{kind}{number}" if self.versioned else None
        if kind == "put":
            etag = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()
            made = Event("put", number, etag, version, generation=number)
            if not self.versioned:
                after.stack.clear()
            after.stack.append(made)
        elif kind == "marker":
            made = Event("marker", number, version=version)
            after.stack.append(made)
        else:
            assert of is not None
            made = Event(kind, number, version=of.version, generation=of.generation)
            after.stack = [one for one in after.stack if one is not of]
        after.events.append(made)
        return after


def histories(versioned: bool, longest: int = LONGEST) -> Iterator[Bucket]:
    """Everything that can happen to a key that begins with a put."""
    waiting = [Bucket(versioned).did("put")]
    while waiting:
        now = waiting.pop()
        yield now
        if len(now.events) == longest:
            continue
        waiting.append(now.did("put"))
        if versioned:
            waiting += [now.did("delete-of-version", one) for one in now.stack]
        if now.present is not None:
            waiting.append(now.did("marker") if versioned else now.did("delete", now.present))


# --- what each provider writes -------------------------------------------------------------


def amazon(event: Event, key: str, *, sequenced: bool = True) -> Any:
    names = {
        "put": "ObjectCreated:Put",
        "delete": "ObjectRemoved:Delete",
        "delete-of-version": "LifecycleExpiration:Delete" if event.number % 2 else "ObjectRemoved:Delete",
        "marker": "ObjectRemoved:DeleteMarkerCreated",
    }
    stored = {"key": key, "size": 3, "eTag": event.etag, "versionId": event.version}
    if sequenced:
        stored["sequencer"] = f"00{event.number}A{'F' * (event.number % 3)}"
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": rfc3339(START_MS + event.number),
        "eventName": names[event.kind],
        "s3": {
            "bucket": {"name": BUCKETS["aws"]},
            "object": {name: value for name, value in stored.items() if value is not None},
        },
    }
    return {"Records": [record]}


def unsequenced(event: Event, key: str) -> Any:
    return amazon(event, key, sequenced=False)


def eventbridge(event: Event, key: str) -> Any:
    stored = {
        "key": key,
        "size": 3,
        "etag": event.etag,
        "sequencer": f"00{event.number}A",
        "version-id": event.version,
    }
    detail: dict[str, Any] = {
        "bucket": {"name": BUCKETS["aws"]},
        "object": {name: value for name, value in stored.items() if value is not None},
    }
    if event.kind != "put":
        marker = event.kind == "marker"
        detail["deletion-type"] = "Delete Marker Created" if marker else "Permanently Deleted"
    kind = "Object Created" if event.kind == "put" else "Object Deleted"
    time = rfc3339(START_MS + event.number)
    return {"source": "aws.s3", "detail-type": kind, "time": time, "detail": detail}


def google(event: Event, key: str) -> Any:
    """Attributes alone."""
    attributes = {
        "eventType": "OBJECT_FINALIZE" if event.kind == "put" else "OBJECT_DELETE",
        "bucketId": BUCKETS["gcp"],
        "objectId": key,
        "objectGeneration": str(1_000 + event.generation),
        "eventTime": rfc3339(START_MS + event.number),
    }
    return {"message": {"attributes": attributes}}


def google_cloud_event(event: Event, key: str) -> Any:
    kind = "finalized" if event.kind == "put" else "deleted"
    stored = {"bucket": BUCKETS["gcp"], "name": key, "size": "3", "generation": str(1_000 + event.generation)}
    stored |= {"etag": event.etag} if event.etag else {}
    time = rfc3339(START_MS + event.number)
    return {
        "specversion": "1.0",
        "type": f"google.cloud.storage.object.v1.{kind}",
        "time": time,
        "data": stored,
    }


def azure(event: Event, key: str) -> bytes:
    account, container = BUCKETS["azure"].split("/")
    document = {
        "eventType": f"Microsoft.Storage.Blob{'Created' if event.kind == 'put' else 'Deleted'}",
        "topic": f"/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/{account}",
        "subject": f"/blobServices/default/containers/{container}/blobs/{key}",
        "eventTime": rfc3339(START_MS + event.number),
        "data": {"contentLength": 3, "eTag": event.etag or "0x0", "sequencer": f"{event.number:032X}"},
    }
    return base64.b64encode(json.dumps([document]).encode())


def overwriting(bucket: Bucket) -> Bucket:
    """Google also tells of each generation that made room for another."""
    told: list[Event] = []
    for before, event in zip([None, *bucket.events], bucket.events, strict=False):
        told.append(event)
        if event.kind == "put" and before is not None and before.kind == "put":
            told.append(Event("overwritten", event.number, generation=before.generation))
    return Bucket(False, told, bucket.stack)


PROVIDERS: dict[str, tuple[str, bool, Callable[[Event, str], Any]]] = {
    "s3": ("aws", False, amazon),
    "s3 with versions": ("aws", True, amazon),
    "eventbridge with versions": ("aws", True, eventbridge),
    "s3 without sequencers": ("aws", False, unsequenced),
    "google": ("gcp", False, google),
    "google as cloud events": ("gcp", False, google_cloud_event),
    "azure": ("azure", False, azure),
}


# --- delivering ----------------------------------------------------------------------------


class Upstream:
    """Everything has happened long ago; only the messages are late."""

    def __init__(self, keys: dict[str, Bucket]) -> None:
        self._keys = keys

    def head(self, object_uri: str) -> ObjectStat | None:
        present = self._keys[object_uri.rpartition("/")[2]].present
        if present is None:
            return None
        return ObjectStat(key=object_uri, size=3, etag=f'"{present.etag}"', version=present.version)


def world(keys: dict[str, Bucket], provider: str, policy: IngestPolicy) -> tuple[Ledger, IngestContext]:
    clock = FakeClock()
    store = memory_store(clock)
    generic = Generic(dataset="gauges", bucket=BUCKETS[provider], provider=provider)
    registry = load_registry(IntakePolicy(generic=(generic,)))
    upstream: Any = Upstream(keys)
    return store, IngestContext(
        settings=Ingest(policies=(policy,)),
        wal=store.units(),
        registry=registry,
        clock=clock,
        rng=FixedRng(),
        worker_id="w",
        ingest_run_id="w",
        keys=KeyCache(registry),
        gate=lambda _dataset, _in_flight: GateResult(gate="switch", allowed=True, reason=""),
        policy_epoch=store.policy_epoch,
        inspect=make_inspector(upstream, lambda _dataset: "text/csv"),
        lineage=False,
    )


def deliver(store: Ledger, context: IngestContext, bodies: list[bytes]) -> None:
    builder = intake_builder(context, "q")
    for number, body in enumerate(bodies):
        builder.add(QueueMessage(receipt=str(number), body=body, message_id=str(number), receives=1))
    intake = builder.batch()
    assert not intake.rejected
    store.units().take_in(intake)


def work(context: IngestContext) -> None:
    worker = Worker(context)
    while worker.step() != StepReport():
        pass


def final_states(store: Ledger) -> dict[str, dict[str, Any]]:
    """Key → what its unit and the catalogue say at the end."""
    execute = store._database._connection.execute  # type: ignore[attr-defined]
    shown = {}
    rows = lambda sql: execute(sql).fetchall()  # noqa: E731
    for text in filter(None, (data for _, data in unit_pages.data_files(rows))):
        asset = json.loads(text)
        shown[asset["href"].rpartition("/")[2]] = asset.get("etag")
    columns = "wal_id, status, removed, sequencer, removal_sequencer"
    found, objects = {}, unit_pages.objects(rows)
    for wal_id, status, removed, sequencer, removal in execute(f"SELECT {columns} FROM units"):
        key = objects[wal_id].rpartition("/")[2]
        found[key] = {
            "status": status,
            "shown": key in shown,
            "etag": shown.get(key),
            "removed": bool(removed),
            "sequencers": (sequencer, removal),
        }
    return found


@pytest.mark.req("WAL-2", "WAL-18", "WAL-20")
@pytest.mark.parametrize("works", ["after each message", "at the end"])
@pytest.mark.parametrize("removal", ["keep", "remove"])
@pytest.mark.parametrize("reissue", ["update", "ignore"])
@pytest.mark.parametrize("name", PROVIDERS)
def test_the_order_of_delivery_does_not_matter(name: str, reissue: Any, removal: Any, works: str) -> None:
    """Whatever happened to a key, and in whichever order it is told: every order ends alike. Where items go
    with their objects, those are shown whose objects exist; where new bytes count, those that are there."""
    provider, versioned, write = PROVIDERS[name]
    cases: dict[str, tuple[Bucket, tuple[Event, ...]]] = {}
    for number, bucket in enumerate(
        histories(versioned, 3 if provider == "gcp" or write is eventbridge else LONGEST)
    ):
        told = overwriting(bucket) if provider == "gcp" else bucket
        if len(told.events) > LONGEST:
            continue
        for order, events in enumerate(permutations(told.events)):
            cases[f"{number}.{order}"] = (bucket, events)
    policy = IngestPolicy(reissue=reissue, removal=removal)
    store, context = world({key: bucket for key, (bucket, _) in cases.items()}, provider, policy)
    for turn in range(LONGEST):
        bodies = [write(events[turn], key) for key, (_, events) in cases.items() if turn < len(events)]
        deliver(
            store, context, [one if isinstance(one, bytes) else json.dumps(one).encode() for one in bodies]
        )
        if works == "after each message":
            work(context)
    work(context)
    _judge(final_states(store), cases, policy, sequenced=name != "s3 without sequencers")
    store.close()


def _judge(
    found: dict[str, dict[str, Any]],
    cases: dict[str, tuple[Bucket, tuple[Event, ...]]],
    policy: IngestPolicy,
    *,
    sequenced: bool,
) -> None:
    ends: dict[str, tuple[dict[str, Any], str]] = {}
    for key, (bucket, events) in cases.items():
        state, present = found[key], bucket.present
        facts = (key, [(one.kind, one.number, one.version) for one in events], state, bucket.stack)
        assert state["status"] == "succeeded", facts
        if policy.removal == "remove":
            assert state["shown"] == (present is not None), facts
        else:
            assert state["shown"], facts
        if state["shown"]:
            assert state["etag"] in [None, *(one.etag for one in bucket.events)], facts
        if policy.reissue == "update" and present is not None and state["etag"] is not None:
            assert state["etag"] == present.etag, facts
        # Which bytes `reissue: ignore` keeps is which came first. A removal in no order leaves no mark.
        compared = {
            name: value for name, value in state.items() if name != "etag" or policy.reissue == "update"
        }
        if not sequenced:
            compared = {"shown": state["shown"]}
        else:
            assert state["removed"] == (present is None), facts
        first = ends.setdefault(key.partition(".")[0], (compared, key))
        assert compared == first[0], (facts, first)
