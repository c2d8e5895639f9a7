"""Records of a message: an announcement each, or ignored, or refused. Their keys are not interpreted yet."""

from __future__ import annotations

from typing import Literal

from kfm.model.errors import UsageError
from kfm.model.records import Record
from kfm.model.times import parse_rfc3339
from kfm.nodd.messages.refusals import IGNORED

DAY_MS = 86_400_000
COMPATIBLE = "s3"  # in place of a provider: S3's form, but not Amazon's; the queue says whose


class Announcement(Record, frozen=True, gc=False):
    """An object that a message announces; its key is decoded and safe."""

    provider: str
    bucket: str  # Azure: account/container
    key: str
    removed: bool = False
    event_time_ms: int | None = None
    size: int | None = None
    etag: str | None = None
    sequencer: str | None = None
    version_id: str | None = None
    topic: str | None = None
    suspect: tuple[str, ...] = ()
    md5: str | None = None  # of the bytes, in hex, where the publisher declares it beside the ETag
    of_version: bool = False  # removed: this version of the object, whatever others there are


class IgnoredRecord(Record, frozen=True):
    """A record that announces no object: nothing is to be done."""

    error_code: str
    error: str


class RefusedRecord(Record, frozen=True):
    """A record that can't be read: a dead letter."""

    error_code: str
    error: str


MessageRecord = Announcement | IgnoredRecord | RefusedRecord


def ignored(code: str) -> IgnoredRecord:
    return IgnoredRecord(error_code=code, error=IGNORED[code])


ObjectEvent = Literal["created", "removed", "other"]


def event_time(text: object) -> tuple[int | None, tuple[str, ...]]:
    """(time of the event, doubts about it). A bad time refuses nothing: the object exists all the same."""
    if text is None:
        return None, ()
    if isinstance(text, str) and len(text) <= 64:
        try:
            return parse_rfc3339(text), ()
        except UsageError:
            pass
    return None, ("EVENT_TIME_INVALID",)
