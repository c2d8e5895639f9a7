"""What is kept of an attempt at a unit for its lineage: enough to tell of it, and no more."""

from __future__ import annotations

from kfm.core.records import Record

TOPIC = "unit-lineage"


class Ended(Record, frozen=True, gc=False, omit_defaults=True):
    """One attempt that ended. With an error it failed."""

    wal_id: str
    attempt: int
    dataset: str
    object_uri: str
    etag: str | None = None
    size: int | None = None
    version_id: str | None = None
    sequencer: str | None = None
    content_version: int = 1
    event_time_ms: int | None = None
    collection_id: str | None = None
    item_id: str | None = None
    stac_status: str | None = None
    replay_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    started_at_ms: int | None = None
