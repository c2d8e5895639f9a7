"""Units in OpenLineage's words: a start and an end for each attempt, made of a message when it is delivered.

A message has all the attempts that one transaction ended. Its events are a pure function of it, so
a second delivery sends the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.lineage.emitter import EVENT_SCHEMA, EventType, canonical_text
from kfm.lineage.facets import Facet, Facets, object_name, source_uri
from kfm.lineage.facets import instant as exact_instant
from kfm.lineage.masking import Mask
from kfm.model.errors import BackendUnavailable, CollectorRefused
from kfm.model.keys import unit_attempt_id, uuid5
from kfm.model.runs import OutboxMessage
from kfm.model.units import LEASE_EXPIRED, TOPIC, Ended

if TYPE_CHECKING:
    from kfm.ports import Clock, Collector

JOB_PREFIX = "nodd."
ACTOR = "upstream"
SUPERSEDED = "SUPERSEDED"
ABORTS = frozenset({LEASE_EXPIRED, SUPERSEDED})  # the work itself was not found to be wrong
EVENTS_OF_ATTEMPT = 2
CALL_MS = 1_000  # after this long, what has arrived is reported before more is sent
_MD5 = re.compile(r"[0-9a-f]{32}\Z")
instant = lru_cache(1024)(exact_instant)  # all of a batch began and ended together
_DECODE = msgspec.json.Decoder(list[Ended])


class UnitEventBuilder:
    """Writes the events of one message."""

    def __init__(
        self,
        *,
        namespace: str,
        producer_version: str,
        masked: Callable[[str], bool] = lambda _dataset: False,
        mask: Mask = lambda text: text,
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`masked` is true for a dataset that must not be named; `hide` redacts known secrets."""
        self._namespace = namespace
        self._facets = Facets(f"urn:kfm:producer:{producer_version}", producer_version)
        self._masked = masked
        self._mask = mask
        self._hide = hide
        self._engine = self._facets.engine()
        self._job_facets = {"jobType": self._facets.job_type("TASK")}
        self._source = lru_cache(256)(lambda place: self._facets.data_source(place, source_uri(place)))

    def messages(self, message: OutboxMessage) -> list[OutboxMessage]:
        """One for each event, in the order in which they are sent."""
        return [
            replace(
                message, event_id=uuid5(event["run"]["runId"], event["eventType"]), body=self._text(event)
            )
            for ended in _DECODE.decode(message.body)
            for event in self.events(ended, message.recorded_at_ms)
        ]

    def of_unit(self, message: OutboxMessage, wal_id: str) -> list[OutboxMessage]:
        """Those that are about one unit."""
        about = [ended.wal_id for ended in _DECODE.decode(message.body) for _ in range(EVENTS_OF_ATTEMPT)]
        return [event for event, whose in zip(self.messages(message), about, strict=True) if whose == wal_id]

    def events(self, ended: Ended, ended_at_ms: int) -> Iterator[dict[str, Any]]:
        lineage_id = unit_attempt_id(ended.wal_id, ended.attempt)
        hidden = self._masked(ended.dataset)
        shown = self._masked_unit(ended) if hidden else ended
        began_ms = min(ended.started_at_ms or ended_at_ms, ended_at_ms)
        yield self._event("START", lineage_id, shown, began_ms, hidden=hidden)
        yield self._event(ending(ended.error_code), lineage_id, shown, ended_at_ms, hidden=hidden)

    def _event(
        self, kind: EventType, lineage_id: str, ended: Ended, at_ms: int, *, hidden: bool
    ) -> dict[str, Any]:
        facets, at, over = self._facets, instant(at_ms), kind != "START"
        run_facets: dict[str, Facet] = {
            "processing_engine": self._engine,
            "tags": facets.tags(**_tags(ended)),
            "kfmRunState": facets.unit_state(
                wal_id=ended.wal_id,
                dataset_id=ended.dataset,
                attempt=ended.attempt,
                content_version=ended.content_version,
                outcome=_outcome(ended.error_code) if over else None,
                recorded_at=at,
                replay_reason=ended.replay_reason,
                stac_status=ended.stac_status if over else None,
                error_code=ended.error_code if over else None,
                sequencer=ended.sequencer,
            ),
            "kfmTrigger": facets.announcement(ACTOR, **_announced(ended)),
        }
        if kind in ("FAIL", "ABORT"):
            run_facets["errorMessage"] = facets.error(ended.error_code, ended.error_message)
        return {
            "eventType": kind,
            "eventTime": at,
            "producer": facets.producer,
            "schemaURL": EVENT_SCHEMA,
            "run": {"runId": lineage_id, "facets": run_facets},
            "job": {
                "namespace": self._namespace,
                "name": f"{JOB_PREFIX}{ended.dataset}",
                "facets": self._job_facets,
            },
            "inputs": [self._object(ended, hidden=hidden)],
            "outputs": self._item(ended) if kind == "COMPLETE" else [],
        }

    def _object(self, ended: Ended, *, hidden: bool) -> dict[str, Any]:
        name = ("masked", ended.object_uri) if hidden else object_name(ended.object_uri)
        content = self._facets.object_content(ended.etag, ended.version_id, ended.size, ended.sha256)
        return self._dataset(name, {"kfmContent": content})

    def _item(self, ended: Ended) -> list[dict[str, Any]]:
        """None where the object is gone, and its item with it."""
        if ended.item_id is None:
            return []
        name = f"collections/{ended.collection_id}/items/{ended.item_id}"
        version = self._facets.version(str(ended.content_version))
        return [self._dataset((self._namespace, name), {"version": version})]

    def _dataset(self, name: tuple[str, str], facets: dict[str, Facet]) -> dict[str, Any]:
        facets = {"dataSource": self._source(name[0]), **facets}
        return {"namespace": name[0], "name": name[1], "facets": facets}

    def _masked_unit(self, ended: Ended) -> Ended:
        """Nothing that names the dataset, its objects or what they hold."""
        mask = self._mask
        return replace(
            ended,
            wal_id=mask(ended.wal_id),
            dataset=mask(ended.dataset),
            object_uri=mask(ended.object_uri),
            etag=None,
            sha256=None,
            size=None,
            version_id=None,
            sequencer=None,
            event_time_ms=None,
            collection_id=mask(ended.collection_id or ""),
            item_id=None if ended.item_id is None else mask(ended.item_id),
            error_message=None,
        )

    def _text(self, event: dict[str, Any]) -> str:
        return canonical_text(event, self._hide)


def ending(error_code: str | None) -> EventType:
    if error_code is None:
        return "COMPLETE"
    return "ABORT" if error_code in ABORTS else "FAIL"


def _outcome(error_code: str | None) -> str:
    return "success" if error_code is None else "failed"


def _tags(ended: Ended) -> dict[str, str]:
    tags = {"trigger": "upstream-event", "wal_id": ended.wal_id}
    if ended.replay_reason is not None:
        tags["replay_reason"] = ended.replay_reason
    return tags


def _announced(ended: Ended) -> dict[str, str]:
    """Upstream's facts of the object: its checksums, and its watermark: the time that it is of, and its place
    among the versions of its key."""
    shown = {}
    if ended.etag is not None:
        shown["etag"] = ended.etag
        if _MD5.match(ended.etag.strip('"')):
            shown["md5"] = ended.etag.strip('"')
    if ended.event_time_ms is not None:
        shown["watermark_time"] = instant(ended.event_time_ms)
    if ended.sequencer is not None:
        shown["watermark_sequence"] = ended.sequencer
    return shown


# --- delivery --------------------------------------------------------------------------


class UnitCollector:
    """Messages about units for a collector that takes events. A message has arrived when all of its have."""

    def __init__(self, inner: Collector, builder: UnitEventBuilder, clock: Clock) -> None:
        self._inner = inner
        self._builder = builder
        self._clock = clock
        self._arrived: dict[int, int] = {}  # message → events of it that have arrived, or are refused
        self._refusals: dict[int, CollectorRefused] = {}

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        until_ms = self._clock.monotonic_ms() + CALL_MS
        for count, message in enumerate(messages):
            if count and self._clock.monotonic_ms() >= until_ms:
                return count
            try:
                self._whole(message)
            except (BackendUnavailable, CollectorRefused):
                if not count:
                    raise
                return count  # what has arrived is marked first; then this one is retried
        return len(messages)

    def close(self) -> None:
        self._inner.close()

    def _whole(self, message: OutboxMessage) -> None:
        """One event that the collector will not have keeps none of its neighbours back."""
        events = self._builder.messages(message)
        at = self._arrived.get(message.number, 0)
        while at < len(events):
            try:
                taken = self._inner.deliver(events[at:])
            except CollectorRefused as refusal:
                self._refusals.setdefault(message.number, refusal)
                taken = 1
            if taken <= 0:
                raise BackendUnavailable("The collector took nothing.")
            at += taken
            self._arrived[message.number] = at
        refusal_met = self._refusals.get(message.number)
        if refusal_met is not None:
            raise refusal_met
        self._arrived.pop(message.number, None)


__all__ = ["TOPIC", "UnitCollector", "UnitEventBuilder", "ending"]
