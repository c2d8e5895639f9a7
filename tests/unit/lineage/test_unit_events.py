"""Events about units: what a message becomes on its way to a collector."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from kfm.lineage.unit_events import UnitCollector, UnitEventBuilder
from kfm.model.errors import BackendUnavailable, CollectorRefused
from kfm.model.keys import unit_attempt_id
from kfm.model.runs import OutboxMessage
from kfm.model.units import TOPIC, Ended
from tests.stand_ins import FakeClock
from tests.unit.lineage.samples import SCHEMA, START_MS

WAL_ID = "03a1e89e33a00-37dde470c673f54c3b58"
KEY = "hrrr.20260101/conus/hrrr.t00z.wrfsfcf06.grib2"
SECRET = "s3cr3t-token"


def ended(attempt: int = 1, **changes: Any) -> Ended:
    told: dict[str, Any] = {
        "wal_id": WAL_ID,
        "attempt": attempt,
        "dataset": "hrrr",
        "object_uri": f"s3://noaa-hrrr-bdp-pds/{KEY}",
        "etag": "0123456789abcdef0123456789abcdef",
        "size": 10,
        "version_id": "v7",
        "sequencer": "0055AED6DCD90281E5",
        "event_time_ms": START_MS,
        "started_at_ms": START_MS + 1_000,
    }
    return Ended(**{**told, **changes})


def success(attempt: int = 1, **changes: Any) -> Ended:
    return ended(attempt, collection_id="hrrr", item_id="one", stac_status="created", **changes)


def failure(attempt: int = 1, code: str = "HTTP_503", **changes: Any) -> Ended:
    return ended(attempt, error_code=code, error_message="Upstream is away.", **changes)


def message(*told: Ended, number: int = 1) -> OutboxMessage:
    return OutboxMessage(
        number=number,
        event_id=f"{TOPIC}/1/x",
        topic=TOPIC,
        subject="units/1",
        body=msgspec.json.encode(told).decode(),
        recorded_at_ms=START_MS + 2_000,
    )


def builder(**changes: Any) -> UnitEventBuilder:
    return UnitEventBuilder(namespace="kfm.test", producer_version="0.1.0", **changes)


def events(*told: Ended, by: UnitEventBuilder | None = None) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in (by or builder()).messages(message(*told))]


VARIETIES = {
    "success": success(),
    "read whole": success(sha256="ab" * 32),
    "gone": ended(stac_status="no-op"),
    "failure": failure(),
    "lapsed": failure(code="LEASE_EXPIRED"),
    "replayed": success(3, replay_reason="incident", content_version=2),
    "nothing known": ended(
        etag=None, size=None, version_id=None, sequencer=None, event_time_ms=None, started_at_ms=None
    ),
}


@pytest.mark.req("WAL-17", "TRG-5")
@pytest.mark.parametrize("told", VARIETIES.values(), ids=VARIETIES)
@pytest.mark.parametrize("hidden", [False, True])
def test_events_keep_to_the_schema(told: Ended, hidden: bool) -> None:
    """Whatever is known of an attempt, its events are valid by our strict schema."""
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_bytes()), validate_formats=True)
    by = builder(masked=lambda _: hidden, mask=lambda _: "masked-0123456789ab")
    for event in events(told, by=by):
        validator.validate(event)


@pytest.mark.req("WAL-17")
def test_each_attempt_has_one_start_and_one_end() -> None:
    """Each attempt is a lineage run of its own, which begins once and ends once, never before it began."""
    found = events(failure(1), success(2), failure(1, "SUPERSEDED", wal_id=WAL_ID.replace("3", "4")))
    assert [event["eventType"] for event in found] == ["START", "FAIL", "START", "COMPLETE", "START", "ABORT"]
    ids = [event["run"]["runId"] for event in found]
    assert ids[0] == ids[1] == unit_attempt_id(WAL_ID, 1)
    assert ids[2] == ids[3] == unit_attempt_id(WAL_ID, 2)
    assert len(set(ids)) == 3
    for start, end in zip(found[::2], found[1::2], strict=True):
        assert start["eventTime"] < end["eventTime"]
    early = events(ended(started_at_ms=START_MS + 9_000))  # a clock that was set back
    assert early[0]["eventTime"] == early[1]["eventTime"]


@pytest.mark.req("WAL-17", "TRG-5", "TRG-8")
def test_what_an_event_tells() -> None:
    """The object with its signs, the item, the unit's id as tag and in the facet, and the watermark."""
    start, end = events(success(2, replay_reason="incident"))
    tags = {tag["key"]: tag["value"] for tag in start["run"]["facets"]["tags"]["tags"]}
    assert tags == {"trigger": "upstream-event", "wal_id": WAL_ID, "replay_reason": "incident"}
    assert (end["job"]["namespace"], end["job"]["name"]) == ("kfm.test", "nodd.hrrr")
    (read,) = end["inputs"]
    assert (read["namespace"], read["name"]) == ("s3://noaa-hrrr-bdp-pds", KEY)
    content = read["facets"]["kfmContent"]
    assert (content["etag"], content["size"], content["version"]) == (success().etag, 10, "v7")
    (made,) = end["outputs"]
    assert (made["namespace"], made["name"]) == ("kfm.test", "collections/hrrr/items/one")
    assert start["outputs"] == []
    for event in (start, end):
        trigger = event["run"]["facets"]["kfmTrigger"]
        assert trigger["event"] == "event.ingest"
        assert trigger["watermark_time"] == "2026-01-01T00:00:00.000Z"
        assert trigger["watermark_sequence"] == "0055AED6DCD90281E5"
        assert trigger["etag"] == trigger["md5"] == success().etag
    state = end["run"]["facets"]["kfmRunState"]
    assert (state["wal_id"], state["attempt"], state["sequencer"]) == (WAL_ID, 2, "0055AED6DCD90281E5")


@pytest.mark.req("TRG-8")
def test_a_checksum_is_told_where_it_was_computed() -> None:
    """With all bytes read, their SHA-256 is on the input; it is null where they were not, or are masked."""

    def shown(told: Ended, by: UnitEventBuilder | None = None) -> list[Any]:
        return [event["inputs"][0]["facets"]["kfmContent"]["sha256"] for event in events(told, by=by)]

    assert shown(success(sha256="ab" * 32)) == ["ab" * 32] * 2
    assert shown(success()) == [None, None]
    assert shown(success(sha256="ab" * 32), builder(masked=lambda _: True, mask=lambda _: "m")) == [
        None,
        None,
    ]


def test_keys_are_taken_as_they_are() -> None:
    """A key with signs that an address would lose names the same object in lineage."""
    (start, _) = events(ended(object_uri="s3://bucket/a?b#c%2Fd e"))
    assert (start["inputs"][0]["namespace"], start["inputs"][0]["name"]) == ("s3://bucket", "a?b#c%2Fd e")


@pytest.mark.req("WAL-19", "TRG-9")
def test_errors_are_redacted() -> None:
    """A message never carries a password that an address held, nor a secret that this process knows."""
    by = builder(hide=lambda text: text.replace(SECRET, "[secret]"))
    text = f"GET https://user:pa55word@host/x failed with {SECRET}"
    (_, end) = events(ended(error_code="X", error_message=text), by=by)
    message = end["run"]["facets"]["errorMessage"]["message"]
    assert "pa55word" not in message
    assert SECRET not in json.dumps(end)


@pytest.mark.req("RS-13")
def test_a_masked_dataset_is_not_named() -> None:
    """Of a dataset that must not be named, nothing is told that names it, its objects or their bytes."""
    by = builder(masked=lambda _: True, mask=lambda text: f"masked-{len(text)}")
    text = json.dumps(events(success(), failure(2), by=by))
    for name in ("hrrr", WAL_ID, success().etag or "", "0055AED6", "2026-01-01T00:00:00.000Z", "one"):
        assert f'"{name}"' not in text, name
    assert KEY not in text


def test_the_same_message_makes_the_same_bytes() -> None:
    """A process that delivers a message again sends the same bytes under the same ids."""
    told = message(success(), failure(2))
    assert builder().messages(told) == builder().messages(told)


# --- delivery ------------------------------------------------------------------------


class Collecting:
    """A collector that takes so many events a call, and minds some."""

    def __init__(self, at_most: int = 1_000, refuses: str = "", down_at: int | None = None) -> None:
        self.at_most, self.refuses, self.down_at = at_most, refuses, down_at
        self.taken: list[str] = []

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        for count, one in enumerate(messages[: self.at_most]):
            if self.down_at is not None and len(self.taken) >= self.down_at:
                if count:
                    return count
                raise BackendUnavailable("It is down.")
            if self.refuses and self.refuses in one.body:
                if count:
                    return count
                raise CollectorRefused("Not this one.")
            self.taken.append(one.body)
        return min(len(messages), self.at_most)

    def close(self) -> None: ...


def test_a_message_arrives_when_all_of_its_events_have() -> None:
    """Also a collector that takes a few at a time gets every event, once and in order."""
    inner = Collecting(at_most=3)
    messages = [message(success(), failure(2), number=1), message(success(3), number=2)]
    assert UnitCollector(inner, builder(), FakeClock()).deliver(messages) == 2
    wanted = [one.body for each in messages for one in builder().messages(each)]
    assert inner.taken == wanted


def test_what_arrived_before_an_outage_is_told() -> None:
    """A collector that goes down midway keeps what it has; the rest is sent once it is back."""
    inner = Collecting(down_at=3)
    collector = UnitCollector(inner, builder(), FakeClock())
    messages = [message(success(), number=1), message(success(2), number=2)]
    assert collector.deliver(messages) == 1
    with pytest.raises(BackendUnavailable):
        collector.deliver(messages[1:])
    inner.down_at = None
    assert collector.deliver(messages[1:]) == 1
    assert len(inner.taken) == len(set(inner.taken)) == 4


def test_one_refused_event_keeps_no_neighbour_back() -> None:
    """The others of its message arrive; the message counts as refused, and is not sent over and over."""
    inner = Collecting(refuses='"attempt":2')
    collector = UnitCollector(inner, builder(), FakeClock())
    messages = [message(success(1), success(2), success(3))]
    for _ in range(2):
        with pytest.raises(CollectorRefused):
            collector.deliver(messages)
    assert len(inner.taken) == 4
