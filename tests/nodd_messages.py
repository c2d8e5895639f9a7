"""Messages of S3: as Amazon writes them, and with oddities that a sender could make."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

TOPIC = "arn:aws:sns:us-east-1:123901341784:NewGOES16Object"
BUCKET = "noaa-goes16"
_SCAN = "s20262180138575_e20262180139033_c20262180139080.nc"
KEYS = (
    (BUCKET, f"ABI-L1b-RadC/2026/218/01/OR_ABI-L1b-RadC-M6C03_G16_{_SCAN}"),
    (BUCKET, f"GLM-L2-LCFA/2026/218/02/OR_GLM-L2-LCFA_G16_{_SCAN}"),
    ("unidata-nexrad-level2", "2026/01/02/KICT/KICT20260102_030405_V06"),
    ("noaa-hrrr-bdp-pds", "hrrr.20260101/conus/hrrr.t00z.wrfsfcf18.grib2.idx"),
    ("noaa-mrms-pds", "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"),
    (BUCKET, "a+b%20c/%C3%A9?#.nc"),
    ("unknown-bucket", "x/../y"),
)


def record(bucket: str = BUCKET, key: str = KEYS[0][1]) -> dict[str, Any]:
    """In Amazon's own order."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-08-06T01:39:17.337Z",
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDA"},
        "requestParameters": {"sourceIPAddress": "192.0.2.1"},
        "responseElements": {"x-amz-request-id": "EBD615B128A3EBBB", "x-amz-id-2": "4CFJrIHl+bAy="},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "MjQ5",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"principalId": "A2"},
                "arn": f"arn:aws:s3:::{bucket}",
            },
            "object": {"key": key, "size": 1063054, "eTag": "7239138a", "sequencer": "005D48DA450E238E88"},
        },
    }


def envelope(message: str) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": "191c04d9-d428-5417-b457-511b08af29c6",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": message,
        "Timestamp": "2026-08-06T01:39:19.120Z",
        "SignatureVersion": "1",
        "Signature": "DrjMXAKufoJ7lM2ZC7uZ5q0NwrGC+oy4YQAT/Taef5uL==",
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-6aad65c2.pem",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
    }


def as_sns_writes(document: dict[str, Any]) -> str:
    lines = (f"  {json.dumps(name)} : {json.dumps(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def indented(document: Any) -> str:
    return json.dumps(document, indent=1)


def minified(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


Writer = Callable[[Any], str]
WRITERS: tuple[Writer, ...] = (minified, json.dumps, indented)
ENVELOPES: tuple[Writer, ...] = (as_sns_writes, *WRITERS)
# fmt: off
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e300, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**19, 10**20, 10**25,
    float("nan"), float("inf"), [], {}, [[]], {"name": "b"},
    "", " ", "x", "\n", "é", "\ud800", '"', "\\", "a\u202eb", "/a", "a/./b", "%zz",
    "x" * 5000, "a/" * 520 + "b",
    "ObjectRemoved:Delete", "s3:ObjectCreated:Put", "s3:TestEvent", "ObjectTagging:Put", "2.9", "2.12", "3.0",
    "2026-08-06T24:00:00.000Z", "2026-08-06T01:39:60.000Z", "2026-08-06 01:39:17Z",
    "2099-08-06T01:39:17.337Z", "0000-01-01T00:00:00.000Z",
    "arn:aws:sns:us-east-1:000000000000:NewGOES16Object",
    "https://sns.us-east-1.amazonaws.com.example.org/x.pem", "SubscriptionConfirmation",
)
SNIPPETS = (
    b'"size":1,', b'"Subject":"x",', b'"Type":"Notification",', b'"a":1,"a":2,', b"NaN", b"1e999", b"-0",
    b"1E5", b"0" * 25, b"\\u0041", b"\\ud800", b"\\", b'"', b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xc3\xa9",
    b"[" * 40, b"{}", b",", b":", b"]", b"}", b"\\/", b"\xef\xbb\xbf", b'\\"', b"null", b"\\n  ",
)
# fmt: on


@st.composite
def records(draw: Any) -> dict[str, Any]:
    """A record of S3; now and then with odd members, others, fewer, or in another order."""
    made = record(*draw(st.sampled_from(KEYS)))
    parts = [made, made["s3"], made["s3"]["object"], made["s3"]["bucket"]]
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        part = draw(st.sampled_from(parts))
        name = draw(st.sampled_from((*part, "versionId", "glacierEventData")))
        what = draw(st.sampled_from(("odd", "gone", "last")))
        value = part.pop(name, "v1")
        if what != "gone":
            part[name] = draw(st.sampled_from(ODD)) if what == "odd" else value
    return made


@st.composite
def mutated(draw: Any, text: bytes) -> bytes:
    """With a piece more, less or twice."""
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        at = draw(st.integers(0, len(text)))
        until = at + draw(st.sampled_from((0, 1, 2, 5, 17, 60)))
        put = draw(st.sampled_from((*SNIPPETS, b"", text[at:until] * 2)))
        text = text[:at] + put + text[until:]
    return text


@st.composite
def messages(draw: Any) -> bytes:
    """One or several records, bare or wrapped, mutated within and without."""
    many = draw(st.lists(records(), min_size=1, max_size=draw(st.sampled_from((1, 1, 1, 6)))))
    text: bytes = draw(mutated(encoded(draw(st.sampled_from(WRITERS))({"Records": many}))))
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2)))):
        wrapped = envelope(text.decode("utf-8", "surrogateescape"))
        if draw(st.booleans()):
            name = draw(st.sampled_from(tuple(wrapped)))
            value = draw(st.sampled_from((wrapped.pop(name), None, *ODD)))
            wrapped |= {} if value is None else {name: value}
        text = draw(mutated(encoded(draw(st.sampled_from(ENVELOPES))(wrapped))))
    return text


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
