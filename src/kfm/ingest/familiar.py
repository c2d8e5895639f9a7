"""The message that almost all are: S3's event, bare or as SNS carries it to a queue, read at speed.

`kfm.ingest.messages` is the reference. Here a message is taken only if it consists of nothing
but what the records below can hold, so that everything about it is known: no name stands twice,
no number was cut, nothing is nested deeply. Whatever is odd is declined, not judged.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from kfm.core.records import Record
from kfm.ingest.announced import Announced
from kfm.ingest.bodies import BODY_BYTES_MAX, RECORDS_MAX, SIZE_MAX, TEXT_CHARS_MAX
from kfm.ingest.object_keys import check_bucket, check_key, decode_key
from kfm.ingest.plain_json import same_but_blanks
from kfm.ingest.refusals import Refusal
from kfm.ingest.shapes.s3 import event_time
from kfm.ingest.topics import check_certificate

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARS_MAX)]
# Written again, a record has what was there and no more: so an absent text must not be an empty one.
Optional = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]


class Principal(Record, frozen=True):
    principalId: str  # noqa: N815 - names are Amazon's here, and in Amazon's order


class Request(Record, frozen=True):
    sourceIPAddress: str  # noqa: N815


class Response(Record, frozen=True, rename={"request_id": "x-amz-request-id", "id_2": "x-amz-id-2"}):
    request_id: str
    id_2: str


class Bucket(Record, frozen=True, omit_defaults=True):
    name: Text
    ownerIdentity: Principal | None = None  # noqa: N815
    arn: str = ""


class Thing(Record, frozen=True, omit_defaults=True):
    key: Text
    size: Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)] | None = None
    eTag: Optional = ""  # noqa: N815
    versionId: Optional = ""  # noqa: N815
    sequencer: Optional = ""


class Storage(Record, frozen=True, omit_defaults=True):
    s3SchemaVersion: str = ""  # noqa: N815
    configurationId: str = ""  # noqa: N815
    bucket: Bucket
    object: Thing


class Happened(Record, frozen=True, omit_defaults=True):
    eventVersion: Literal["2.0", "2.1", "2.2", "2.3", "2.4", "2.5"]  # noqa: N815
    eventSource: Literal["aws:s3"]  # noqa: N815
    awsRegion: str = ""  # noqa: N815
    eventTime: str  # noqa: N815
    eventName: Literal[  # noqa: N815
        "ObjectCreated:Put",
        "ObjectCreated:Post",
        "ObjectCreated:Copy",
        "ObjectCreated:CompleteMultipartUpload",
    ]
    userIdentity: Principal | None = None  # noqa: N815
    requestParameters: Request | None = None  # noqa: N815
    responseElements: Response | None = None  # noqa: N815
    s3: Storage


class Event(Record, frozen=True):
    Records: Annotated[list[Happened], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class Envelope(Record, frozen=True, omit_defaults=True):
    Type: Literal["Notification"]
    MessageId: str = ""
    TopicArn: str
    Subject: str = ""
    Message: str
    Timestamp: str = ""
    SignatureVersion: str = ""
    Signature: str = ""
    SigningCertURL: Annotated[str, msgspec.Meta(max_length=2048)] = ""
    UnsubscribeURL: str = ""


_ENVELOPE = msgspec.json.Decoder(Envelope)
_EVENT = msgspec.json.Decoder(Event)
_write = msgspec.json.Encoder().encode
# How SNS writes an envelope, line by line, with and without a subject.
_LINES = tuple(
    (b"{", *(b'  "%b" : "' % name.encode() for name in Envelope.__struct_fields__ if name not in without), b"}")
    for without in ((), ("Subject",))
)


def hear(body: bytes, allowed: Collection[str]) -> list[Announced] | None:
    """What the message announces; None if it is not one of these, or anything about it needs a closer look."""
    if len(body) > BODY_BYTES_MAX:
        return None
    try:
        if not body.startswith(b'{"Records"'):
            envelope = _ENVELOPE.decode(body)
            topic, certificate, message = envelope.TopicArn, envelope.SigningCertURL, envelope.Message.encode()
            written = _write(envelope)
            if not (_one_member_a_line(body, written) or same_but_blanks(body, written)):
                return None
            if topic not in allowed or len(message) > BODY_BYTES_MAX:
                return None
            if certificate:
                check_certificate(certificate, topic)
        else:
            topic, message = None, body
        event = _EVENT.decode(message)
        if not same_but_blanks(message, _write(event)):
            return None
        return [_announced(happened, topic) for happened in event.Records]
    except (msgspec.DecodeError, ValueError, Refusal):  # a ValueError: it is not UTF-8
        return None


def _announced(happened: Happened, topic: str | None) -> Announced:
    ...
