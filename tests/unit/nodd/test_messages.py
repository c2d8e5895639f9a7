"""Messages of every shape: each record is taken in, ignored or refused, whatever stands beside it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.messages.json_bodies import BODY_BYTES_MAX, DEPTH_MAX, RECORDS_MAX
from kfm.nodd.messages.record_outcomes import (
    Arrival,
    IgnoredRecord,
    Removal,
    line,
    parse_message,
)
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.messages.sns import text_to_sign

NOW_MS = 1_790_000_000_000
REGISTRY = load_registry()
TOPIC = "arn:aws:sns:us-east-1:123901341784:NewMRMSObject"
CERTIFICATE = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"
KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"
URI = f"s3://noaa-mrms-pds/{KEY}"


def record(**changes: Any) -> dict[str, Any]:
    thing = {"key": KEY, "size": 12, "eTag": "ab", "sequencer": "0055"} | changes.pop("object", {})
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:01:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "noaa-mrms-pds"}, "object": thing},
    } | changes


def event(*records: Any) -> dict[str, Any]:
    return {"Records": list(records)}


def envelope(message: Any, **changes: Any) -> dict[str, Any]:
    text = message if isinstance(message, str) else json.dumps(message)
    made = {"Type": "Notification", "TopicArn": TOPIC, "Message": text, "SigningCertURL": CERTIFICATE}
    return {name: value for name, value in (made | changes).items() if value is not None}


def outcomes(document: Any) -> list[Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return list(parse_message(body, REGISTRY, NOW_MS))


def codes(document: Any) -> list[str | None]:
    """The error code of each record; None if it was taken in."""
    return [getattr(line(outcome), "error_code", None) for outcome in outcomes(document)]


SHAPES = {
    "raw": event(record()),
    "sns": envelope(event(record())),
    "sns in sns": envelope(envelope(event(record()))),
    "lambda sns": event(
        {
            "EventSource": "aws:sns",
            "Sns": envelope(event(record()), SigningCertURL=None, SigningCertUrl=CERTIFICATE),
        }
    ),
    "lambda sqs": event({"eventSource": "aws:sqs", "body": json.dumps(envelope(event(record())))}),
    "receive-message": {"Messages": [{"MessageId": "1", "Body": json.dumps(event(record()))}]},
    "eventbridge": {
        "source": "aws.s3",
        "detail-type": "Object Created",
        "time": "2026-01-01T00:01:00Z",
        "detail": {"bucket": {"name": "noaa-mrms-pds"}, "object": {"key": KEY, "size": 12, "etag": "ab"}},
    },
    "sns with its message read": envelope("x") | {"Message": event(record())},
    "newer version": event(record(eventVersion="2.9")),
    "minio": event(record(eventName="s3:ObjectCreated:CompleteMultipartUpload")),
}


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_amazon(shape: str) -> None:
    """The same object is the same unit, however its announcement is wrapped."""
    (outcome,) = outcomes(SHAPES[shape])
    assert isinstance(outcome, Arrival)
    assert outcome.reading.object_uri == URI
    assert outcome.reading.provider == "aws"
    assert outcome.announced.size == 12
    assert outcome.announced.etag == "ab"


@pytest.mark.req("WAL-19", "WAL-20")
def test_shapes_of_others() -> None:
    """Google and Azure announce copies: units and items of their own."""
    key = "GLM-L2-LCFA/2026/001/00/OR_GLM-L2-LCFA_G18_s20260010000000_e20260010000200_c20260010000220.nc"
    thing = {
        "kind": "storage#object",
        "bucket": "gcp-public-data-goes-18",
        "name": key,
        "size": "7",
        "generation": "3",
    }
    attributes = {"eventType": "OBJECT_FINALIZE", "bucketId": "gcp-public-data-goes-18", "objectId": key}
    google = [
        thing,
        {"message": {"attributes": attributes, "publishTime": "2026-01-01T00:01:00Z"}},
        {
            "subscription": "s",
            "message": {
                "attributes": attributes | {"payloadFormat": "JSON_API_V1"},
                "data": base64.b64encode(json.dumps(thing).encode()).decode(),
            },
        },
        {"specversion": "1.0", "type": "google.cloud.storage.object.v1.finalized", "data": thing},
        {"receivedMessages": [{"ackId": "a", "message": {"attributes": attributes, "messageId": "1"}}]},
        [{"ackId": "a", "message": {"attributes": attributes, "messageId": "1"}}],
        {"attributes": attributes, "messageId": "1", "publishTime": "2026-01-01T00:01:00Z"},
    ]
    account = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/goeseuwest"
    blob = {
        "subject": f"/blobServices/default/containers/noaa-goes18/blobs/{key}",
        "data": {"contentLength": 7, "eTag": "0x1", "sequencer": "01"},
    }
    azure = [
        {"specversion": "1.0", "type": "Microsoft.Storage.BlobCreated", "source": account, **blob},
        [{"eventType": "Microsoft.Storage.BlobCreated", "topic": account, **blob}],
    ]
    azure += [base64.b64encode(json.dumps(one).encode()) for one in azure]  # as storage queues carry them
    items = set()
    for document in (*google, *azure):
        (outcome,) = outcomes(document)
        assert isinstance(outcome, Arrival), outcome
        items.add((outcome.reading.provider, outcome.reading.object_uri, outcome.reading.stac_item_id))
    assert {(provider, uri) for provider, uri, _ in items} == {
        ("gcp", f"gs://gcp-public-data-goes-18/{key}"),
        ("azure", f"az://goeseuwest/noaa-goes18/{key}"),
    }
    assert len({item for _, _, item in items}) == 2


@pytest.mark.req("WAL-20")
def test_chunks_number_as_they_like() -> None:
    """A chunk's numbers may be numbers or text; what contradicts the key is refused."""
    said: dict[str, Any] = {
        "S3Bucket": "unidata-nexrad-level2-chunks",
        "Key": "KICT/7/20260102-030405-009-I",
        "SiteID": "KICT",
        "DateTime": "2026-01-02T03:04:05",
        "VolumeID": 7,
        "ChunkID": "009",
        "ChunkType": "I",
        "L2Version": "V06",
    }
    topic = "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2ObjectFilterable"
    assert codes(envelope(said, TopicArn=topic)) == [None]
    assert codes(envelope(said | {"VolumeID": "7"}, TopicArn=topic)) == [None]
    for wrong in (
        {"SiteID": "KDDC"},
        {"VolumeID": 8},
        {"ChunkID": True},
        {"DateTime": "2026-01-02T03:04:06"},
    ):
        assert codes(envelope(said | wrong, TopicArn=topic)) == ["FIELDS_DISAGREE"]


@pytest.mark.req("WAL-20")
def test_bad_record_leaves_its_neighbours_alone() -> None:
    """Of eight records the three good ones are taken in, each other has its own answer."""
    bad: list[Any] = [
        "text",
        record(s3=None),
        record(object={"key": "%ZZ"}),
        record(object={"key": "\ud800.nc"}),
        record(eventVersion="3.0"),
    ]
    good = [record(object={"key": KEY.replace("-000000", f"-00000{n}")}) for n in range(3)]
    found = codes(event(good[0], *bad[:2], good[1], *bad[2:], good[2]))
    assert found == [
        None, "RECORD_INVALID", "RECORD_INVALID", None,
        "KEY_ENCODING", "KEY_UNSAFE", "EVENT_VERSION", None,
    ]  # fmt: skip


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize(
    "spoil",
    ['"size": 1, "size": 2', '"size": NaN', '"size": 1e999', f'"size": {"9" * 5000}'],
)
def test_ambiguous_record_is_refused_alone(spoil: str) -> None:
    """Where readers of JSON would disagree, the record is refused, and only that one."""
    good, bad = json.dumps(record()), json.dumps(record(object={"key": KEY.replace("-00", "-01")}))
    body = f'{{"Records": [{bad.replace(chr(34) + "size" + chr(34) + ": 12", spoil)}, {good}]}}'
    assert codes(body.encode()) == ["RECORD_INVALID", None]


@pytest.mark.parametrize(
    ("name", "happened"),
    [
        ("ObjectRemoved:Delete", Removal),
        ("ObjectRemoved:DeleteMarkerCreated", Removal),
        ("LifecycleExpiration:Delete", Removal),
        ("ObjectTagging:Put", IgnoredRecord),
        ("Replication:OperationFailedReplication", IgnoredRecord),
        ("ObjectBurnt:Down", IgnoredRecord),
    ],
)
def test_other_events(name: str, happened: type) -> None:
    """Removals keep what they tell of the unit; other events are ignored, also those of names yet unknown."""
    (outcome,) = outcomes(event(record(eventName=name)))
    assert isinstance(outcome, happened)
    if isinstance(outcome, Removal):
        assert outcome.reading is not None
        assert outcome.reading.object_uri == URI


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize(
    "document",
    [
        event(record(eventName="ObjectBurnt:Down")),
        {"source": "aws.s3", "detail-type": "Bucket Burnt", "detail": {}},
        {"message": {"attributes": {"eventType": "OBJECT_BURNT", "bucketId": "b", "objectId": "o"}}},
        {
            "specversion": "1.0",
            "type": "google.cloud.storage.object.v1.burnt",
            "data": {"bucket": "b", "name": "o"},
        },
        {"eventType": "Microsoft.Fire.Burnt"},
    ],
)
def test_names_that_are_not_known_yet(document: Any) -> None:
    """A provider that adds an event makes no dead letters: it is ignored, and counted as that."""
    (outcome,) = outcomes(document)
    assert (type(outcome), outcome.error_code) == (IgnoredRecord, "EVENT_UNKNOWN")


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("document", [event(), envelope(event()), {"receivedMessages": []}])
def test_messages_without_records_ask_for_nothing(document: Any) -> None:
    """They are acknowledged like any other, and are no dead letters."""
    (outcome,) = outcomes(document)
    assert (type(outcome), outcome.error_code) == (IgnoredRecord, "RECORDS_NONE")


@pytest.mark.req("WAL-20")
def test_a_list_of_nothing_is_no_message() -> None:
    """No publisher sends one: it is refused, not taken for an empty batch."""
    assert codes(b"[]") == ["SHAPE_UNKNOWN"]


@pytest.mark.req("WAL-20")
def test_what_only_looks_like_base64_is_no_message() -> None:
    """Text that decodes to something else than JSON is refused as it was."""
    for body in (b"abcd", b"QUJD", base64.b64encode(b"\xff\xfe"), base64.b64encode(b"")):
        assert codes(body) in (["BODY_NOT_JSON"], ["BODY_EMPTY"])


@pytest.mark.req("WAL-2", "WAL-20")
def test_generations_are_attributes() -> None:
    """Messages of Google that carry no data tell the object's generation all the same; two must agree."""
    key = "GLM-L2-LCFA/2026/001/00/OR_GLM-L2-LCFA_G18_s20260010000000_e20260010000200_c20260010000220.nc"
    attributes = {
        "eventType": "OBJECT_FINALIZE",
        "bucketId": "gcp-public-data-goes-18",
        "objectId": key,
        "objectGeneration": "1767225600000001",
    }
    (put,) = outcomes({"message": {"attributes": attributes}})
    assert put.announced.sequencer == "1767225600000001".zfill(20)
    (gone,) = outcomes({"message": {"attributes": attributes | {"eventType": "OBJECT_DELETE"}}})
    assert (type(gone), gone.announced.sequencer) == (Removal, put.announced.sequencer)
    data = base64.b64encode(json.dumps({"generation": "7"}).encode()).decode()
    other = {"attributes": attributes | {"payloadFormat": "JSON_API_V1"}, "data": data}
    assert codes({"message": other}) == ["FIELDS_DISAGREE"]


@pytest.mark.req("WAL-20")
def test_a_generation_that_made_room_is_no_removal() -> None:
    """Google says by which generation the object goes on: it is not gone."""
    attributes = {"eventType": "OBJECT_DELETE", "bucketId": "b", "objectId": "o", "objectGeneration": "1"}
    assert codes({"message": {"attributes": attributes | {"overwrittenByGeneration": "2"}}}) == [
        "OVERWRITTEN"
    ]


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize(
    ("name", "version_id", "of_version"),
    [
        ("ObjectRemoved:Delete", "v1", True),
        ("LifecycleExpiration:Delete", "v1", True),
        ("ObjectRemoved:Delete", None, False),
        ("ObjectRemoved:DeleteMarkerCreated", "m1", False),
        ("LifecycleExpiration:DeleteMarkerCreated", "m1", False),
        ("s3:ObjectRemoved:DeleteAllVersions", "v1", False),
    ],
)
def test_deletions_of_one_version(name: str, version_id: str | None, of_version: bool) -> None:
    """Where a bucket keeps versions, an object is gone by a delete marker; a deletion is of one version."""
    (gone,) = outcomes(event(record(eventName=name, object={"versionId": version_id})))
    assert (gone.announced.version_id, gone.announced.of_version) == (version_id, of_version)
    action = name.rpartition(":")[2]
    if action == "DeleteAllVersions":
        return
    kind = "Delete Marker Created" if action == "DeleteMarkerCreated" else "Permanently Deleted"
    detail = {
        "bucket": {"name": "noaa-mrms-pds"},
        "object": {"key": KEY, "version-id": version_id},
        "deletion-type": kind,
    }
    (same,) = outcomes({"source": "aws.s3", "detail-type": "Object Deleted", "detail": detail})
    assert (same.announced.version_id, same.announced.of_version) == (version_id, of_version)


def test_tests_and_subscriptions_are_ignored() -> None:
    """A topic is not allowed by its own message: it has to be on the list."""
    test = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "noaa-mrms-pds"}
    assert [type(outcome) for outcome in outcomes(test)] == [IgnoredRecord]
    assert [type(outcome) for outcome in outcomes(envelope(test))] == [IgnoredRecord]
    for kind in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        assert codes(envelope("hello", Type=kind)) == ["SUBSCRIPTION"]
        assert codes(envelope("hello", Type=kind, TopicArn=TOPIC[:-1])) == ["TOPIC_NOT_ALLOWED"]


@pytest.mark.parametrize(
    "certificate",
    [
        "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-0.pem",
        "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem",
        "https://sns.us-east-1.amazonaws.com.example.org/SimpleNotificationService-0.pem",
        "https://sns.us-east-1.amazonaws.com@example.org/SimpleNotificationService-0.pem",
        "https://example.org/sns.us-east-1.amazonaws.com/SimpleNotificationService-0.pem",
        "https://sns.us-east-1.amazonaws.com:8443/SimpleNotificationService-0.pem",
        "https://sns.us-east-1.amazonaws.com/../a.pem",
        "https://sns.us-east-1.amazonaws.com/a.pem?x",
        "https://SNS.us-east-1.amazonaws.com/a.pem",
        "https://[::1/a.pem",
        "",
        7,
    ],
)
def test_certificates_from_elsewhere_are_refused(certificate: Any) -> None:
    """A certificate comes from the exact host of the topic's region, or it is not fetched."""
    assert codes(envelope(event(record()), SigningCertURL=certificate)) == ["CERTIFICATE_HOST"]


@pytest.mark.parametrize(
    "topic",
    [
        "arn:aws:sns:us-east-1:999999999999:NewMRMSObject",
        "arn:aws:sns:us-west-2:123901341784:NewMRMSObject",
        "NewMRMSObject",
        f"{TOPIC}\n",
    ],
)
def test_topics_are_known_by_their_full_name(topic: str) -> None:
    """The same name in another account or region is another topic."""
    assert codes(envelope(event(record()), TopicArn=topic, SigningCertURL=None)) == ["TOPIC_NOT_ALLOWED"]


BODIES: dict[str, tuple[Any, str]] = {
    "empty": (b"", "BODY_EMPTY"),
    "blank": (b" \n", "BODY_EMPTY"),
    "too large": (b" " * BODY_BYTES_MAX + b"{}", "BODY_TOO_LARGE"),
    "not UTF-8": (b'{"a": "\xff"}', "BODY_NOT_UTF8"),
    "not JSON": (b"<html>", "BODY_NOT_JSON"),
    "byte order mark": (b"\xef\xbb\xbf{}", "BODY_NOT_JSON"),
    "deep": (b"[" * 100_000, "BODY_TOO_DEEP"),
    "just too deep": (b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1), "BODY_TOO_DEEP"),
    "number": (b"7", "SHAPE_UNKNOWN"),
    "no shape": (b"{}", "SHAPE_UNKNOWN"),
    "records are none": (b'{"Records": {}}', "RECORDS_MISSING"),
    "too many": (event(*[1] * (RECORDS_MAX + 1)), "RECORDS_TOO_MANY"),
    "no message": (envelope("", Message=None), "ENVELOPE_INVALID"),
    "message is no text": (envelope("x") | {"Message": {}}, "ENVELOPE_INVALID"),
    "no topic": (envelope("{}", TopicArn=None), "ENVELOPE_INVALID"),
    "envelope is ambiguous": (
        json.dumps(envelope(event(record()))).replace('"Type"', '"Odd": NaN, "Type"').encode(),
        "ENVELOPE_INVALID",
    ),
    "message is cut": (envelope('{"Records": [{'), "BODY_NOT_JSON"),
}


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_none(name: str) -> None:
    """What is no message has one answer, with a code."""
    body, code = BODIES[name]
    assert codes(body) == [code]


def test_wrapped_too_often() -> None:
    """Envelopes in envelopes come to an end."""
    document = event(record())
    for _ in range(5):
        document = envelope(document)
    assert codes(document) == ["ENVELOPES_TOO_MANY"]


@pytest.mark.parametrize("size", [-1, 1.5, "12", True, [], 2**63])
def test_sizes_are_bytes(size: Any) -> None:
    """A size is a whole number of bytes, or missing."""
    assert codes(event(record(object={"size": size}))) == ["SIZE_INVALID"]
    assert codes(event(record(object={"size": None}))) == [None]


def test_keys_are_decoded_once() -> None:
    """S3 encodes keys, EventBridge does not; `%25` is a percent sign and no second escape."""
    registry_key = KEY.replace("/", "%2F")
    assert codes(event(record(object={"key": registry_key}))) == [None]
    assert codes(event(record(object={"key": registry_key.replace("%", "%25")}))) == ["KEY_UNKNOWN"]


@pytest.mark.req("WAL-2", "WAL-20")
@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [("0A", "00B0000000", 0), ("00B0000000", "0A", 1), ("0A", "0A", 0), ("a", "B", 1), (None, "0A", 0)],
)
def test_newest_of_repeated_objects_counts(first: str | None, second: str, kept: int) -> None:
    """The same key twice in a message is one object; sequencers are padded on the right to compare."""
    found = codes(event(*(record(object={"sequencer": each}) for each in (first, second))))
    assert [code is None for code in found] == [kept == 0, kept == 1]
    assert found[1 - kept] == "REPEATED"


def test_clocks_that_are_wrong_make_doubt() -> None:
    """An event from the future or without a readable time is taken in and marked."""
    (late,) = outcomes(event(record(eventTime="9999-12-31T23:59:59.999Z")))
    (none,) = outcomes(event(record(eventTime="soon")))
    assert late.reading.suspect == ("EVENT_TIME_FUTURE",)
    assert none.reading.suspect == ("EVENT_TIME_INVALID",)


def test_signed_text_is_in_the_order_of_names() -> None:
    """What a signature covers; a subject is left out where there is none."""
    signed = {"MessageId": "1", "Timestamp": "t", "Signature": "s"}
    made = text_to_sign(envelope("m", **signed))
    assert made == f"Message\nm\nMessageId\n1\nTimestamp\nt\nTopicArn\n{TOPIC}\nType\nNotification\n".encode()
    assert b"Subject\nx\n" in text_to_sign(envelope("m", Subject="x", **signed))
    for wrong in ({"Type": "SubscriptionConfirmation"}, {"Subject": 7}, {"Message": "\ud800"}):
        with pytest.raises(RecordRefusal):
            text_to_sign(envelope("m") | wrong)
