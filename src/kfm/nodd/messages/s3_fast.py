"""The fast path for S3 events, bare or in the envelope of SNS: almost all messages are one of these.

`kfm.nodd.messages.envelopes` is the reference. A message is read here only if it consists of nothing but
what the records below can hold, so that it is fully known: no name occurs twice, no number was cut, nothing
is nested deeply. Any other message is declined, not refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from kfm.model.records import Record
from kfm.nodd.messages.announcement import Announcement, MessageRecord
from kfm.nodd.messages.json_bodies import (
    BODY_BYTES_MAX,
    RECORDS_MAX,
    SIZE_MAX,
    TEXT_CHARS_MAX,
    same_but_blanks,
)
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.messages.s3_records import s3_time
from kfm.nodd.messages.sns import URL_CHARS_MAX, check_certificate, check_topic
from kfm.nodd.object_keys import check_bucket, check_key, decode_key

# Never empty: where a text is missing the records have an empty one, and the two must not be mixed up.
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARS_MAX)]
Url = Annotated[str, msgspec.Meta(min_length=1, max_length=URL_CHARS_MAX)]


class Principal(Record, frozen=True, gc=False):
    principalId: Text  # noqa: N815 - names are Amazon's here, and in Amazon's order


class S3Request(Record, frozen=True, gc=False):
    sourceIPAddress: Text  # noqa: N815


class S3Response(Record, frozen=True, gc=False, rename=lambda name: f"x-amz-{name.replace('_', '-')}"):
    request_id: Text
    id_2: Text


class S3Bucket(Record, frozen=True, gc=False, omit_defaults=True):
    name: Text
    ownerIdentity: Principal | None = None  # noqa: N815
    arn: Text = ""


class S3Object(Record, frozen=True, gc=False, omit_defaults=True):
    key: Text
    size: Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)] | None = None
    eTag: Text = ""  # noqa: N815
    versionId: Text = ""  # noqa: N815
    sequencer: Text = ""


class Storage(Record, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    s3SchemaVersion: Text = ""  # noqa: N815
    configurationId: Text = ""  # noqa: N815
    bucket: S3Bucket
    object: S3Object


class S3EventRecord(Record, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    eventVersion: Literal["2.0", "2.1", "2.2", "2.3", "2.4", "2.5"]  # noqa: N815
    eventSource: Literal["aws:s3"]  # noqa: N815
    awsRegion: Text = ""  # noqa: N815
    eventTime: Text  # noqa: N815
    eventName: Literal[  # noqa: N815
        "ObjectCreated:Put",
        "ObjectCreated:Post",
        "ObjectCreated:Copy",
        "ObjectCreated:CompleteMultipartUpload",
    ]
    userIdentity: Principal | None = None  # noqa: N815
    requestParameters: S3Request | None = None  # noqa: N815
    responseElements: S3Response | None = None  # noqa: N815
    s3: Storage


class S3Event(Record, frozen=True, gc=False):
    Records: Annotated[list[S3EventRecord], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class SnsEnvelope(Record, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    Type: Literal["Notification"]
    MessageId: Text = ""
    TopicArn: Text
    Subject: Text = ""
    Message: str
    Timestamp: Text = ""
    SignatureVersion: Text = ""
    Signature: Text = ""
    SigningCertURL: Url = ""
    UnsubscribeURL: Text = ""


_ENVELOPE = msgspec.json.Decoder(SnsEnvelope)
_EVENT = msgspec.json.Decoder(S3Event)
_write = msgspec.json.Encoder().encode


def read_plain_message(body: bytes, allowed: Collection[str]) -> list[MessageRecord] | None:
    """The announcements of the message; None if the reference has to read it."""
    if len(body) > BODY_BYTES_MAX:
        return None
    topic, message = None, body
    try:
        if not body.startswith(b'{"Records"'):
            topic, message = _opened(body, allowed)
        event = _EVENT.decode(message)
        if not same_but_blanks(message, _write(event)):
            return None
        return [_announced(record, topic) for record in event.Records]
    except (msgspec.DecodeError, UnicodeDecodeError, RecordRefusal):
        return None


def _opened(body: bytes, allowed: Collection[str]) -> tuple[str, bytes]:
    """(topic, message) of an envelope without duplicate names, from a topic that is allowed."""
    envelope = _ENVELOPE.decode(body)
    if not _is_as_sns_writes(body, envelope) and not same_but_blanks(body, _write(envelope)):
        raise RecordRefusal("ENVELOPE_INVALID")
    topic = check_topic(envelope.TopicArn, allowed)
    if envelope.SigningCertURL:
        check_certificate(envelope.SigningCertURL, topic)
    return topic, envelope.Message.encode("utf-8")


def _announced(record: S3EventRecord, topic: str | None) -> Announcement:
    stored = record.s3.object
    etag, sequencer, version_id = stored.eTag, stored.sequencer, stored.versionId
    if not (etag.isprintable() and sequencer.isprintable() and version_id.isprintable()):
        raise RecordRefusal("RECORD_INVALID")
    at_ms, suspect = s3_time(record.eventTime)
    return Announcement(  # by position, in the order of the record's fields
        "aws",
        check_bucket(record.s3.bucket.name),
        check_key(decode_key(stored.key)),
        False,
        at_ms,
        stored.size,
        etag or None,
        sequencer or None,
        version_id or None,
        topic,
        suspect,
    )


def _is_as_sns_writes(text: bytes, envelope: SnsEnvelope) -> bool:
    """Cheaper than comparing all tokens, and as strict.

    A line end is never part of a string. So each line begins with its member, and these blanks are outside
    of strings; and no value takes less room in a text than here, where it stands as it is. Nothing is left
    for anything else, such as a name a second time.
    """
    subject = f'  "Subject" : "{envelope.Subject}",\n' if envelope.Subject else ""
    expected = f'''{{
  "Type" : "Notification",
  "MessageId" : "{envelope.MessageId}",
  "TopicArn" : "{envelope.TopicArn}",
{subject}  "Message" : {_write(envelope.Message).decode()},
  "Timestamp" : "{envelope.Timestamp}",
  "SignatureVersion" : "{envelope.SignatureVersion}",
  "Signature" : "{envelope.Signature}",
  "SigningCertURL" : "{envelope.SigningCertURL}",
  "UnsubscribeURL" : "{envelope.UnsubscribeURL}"
}}'''
    return expected.encode() == text
