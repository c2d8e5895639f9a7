"""Azure Event Grid, in its own schema or as CloudEvents. Keys are not encoded."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from kfm.nodd.messages.announcement import Announcement, MessageRecord, event_time, ignored
from kfm.nodd.messages.json_bodies import optional_text, part, size_of, text_of
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key

PREFIX = "Microsoft."
_SUBJECT = re.compile(r"/blobServices/default/containers/([^/]{1,63})/blobs/(.+)\Z", re.DOTALL)
_ACCOUNT = re.compile(r"/providers/Microsoft\.Storage/storageAccounts/([a-z0-9]{3,24})\Z", re.IGNORECASE)
_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:blob|dfs)\.core\.windows\.net\Z")


def matches(document: dict[str, Any]) -> bool:
    return any(str(document.get(name, "")).startswith(PREFIX) for name in ("type", "eventType"))


def read_event(document: dict[str, Any], topic: str | None) -> MessageRecord:
    cloud_event = "specversion" in document
    kind = text_of(document, "type" if cloud_event else "eventType")
    if kind.startswith("Microsoft.EventGrid.Subscription"):
        return ignored("SUBSCRIPTION")
    if kind not in ("Microsoft.Storage.BlobCreated", "Microsoft.Storage.BlobDeleted"):
        return ignored("NOT_A_CREATION" if kind.startswith("Microsoft.Storage.") else "EVENT_UNKNOWN")
    subject = _SUBJECT.match(text_of(document, "subject"))
    if subject is None:
        raise RecordRefusal("RECORD_INVALID", "`subject` names no blob.")
    data = part(document, "data")
    at_ms, suspect = event_time(document.get("time" if cloud_event else "eventTime"))
    account = _account(text_of(document, "source" if cloud_event else "topic"), data)
    etag = optional_text(data, "eTag")
    return Announcement(
        provider="azure",
        bucket=check_bucket(f"{account}/{subject[1]}"),
        key=check_key(subject[2]),
        removed=kind.endswith("Deleted"),
        event_time_ms=at_ms,
        size=size_of(data, "contentLength"),
        etag=etag,
        sequencer=optional_text(data, "sequencer"),
        topic=topic,
        suspect=suspect,
    )


def _account(source: str, data: dict[str, Any]) -> str:
    match = _ACCOUNT.search(source)
    if match is not None:
        return match[1].lower()
    try:
        host = _HOST.match(urlsplit(str(data.get("url"))).hostname or "")
    except ValueError:
        host = None
    if host is None:
        raise RecordRefusal("RECORD_INVALID", "No storage account is named.")
    return host[1]
