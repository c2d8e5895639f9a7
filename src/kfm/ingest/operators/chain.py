"""One unit's object, looked at as closely as its dataset's policy asks: integrity first, then metadata.

Pure but for what `Upstream` is asked; by default nothing is. Errors of upstream itself are raised: whoever
runs units decides about other attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kfm.core.records import Record
from kfm.core.wal import Content
from kfm.ingest.geometry import Footprint
from kfm.ingest.grammar import Reading
from kfm.ingest.operators.integrity import integrity
from kfm.ingest.operators.kinds import kind_of
from kfm.ingest.operators.levels import Levels
from kfm.ingest.operators.metadata import Described, metadata
from kfm.ingest.operators.verdicts import Status, Verdict
from kfm.ingest_ports import Upstream


class Looked(Record, frozen=True):
    """What the operators found. Times, platform and footprint are the header's, where the key is silent;
    a footprint belongs into the catalogue's entry and nowhere else."""

    integrity_status: Status
    metadata_status: Status
    doubts: tuple[str, ...] = ()  # why something is suspect, those of the key included
    notes: tuple[str, ...] = ()
    error_code: str | None = None  # set: the unit failed
    error_message: str | None = None
    checksum: str | None = None  # sha256:HEX
    content: Content | None = None  # what upstream has, where the announcement was silent or wrong
    disagrees: dict[str, dict[str, Any]] = {}  # field → {"key": …, "header": …}
    start_ms: int | None = None
    end_ms: int | None = None
    reference_ms: int | None = None
    platform: str | None = None
    footprint: Footprint | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """What the unit's record keeps of this, beside the statuses."""
        return {"disagrees": self.disagrees} if self.disagrees else {}


_TAKEN_AS_SAID = Looked(integrity_status="unknown", metadata_status="ok")


def work(
    reading: Reading,
    content: Content,
    levels: Levels,
    upstream: Upstream,
    *,
    media_type: str = "application/octet-stream",
    declared: Mapping[str, str] | None = None,
) -> Looked:
    """`media_type` is the dataset's; `declared` are checksums that a manifest or message named."""
    if levels.integrity == "announced" and levels.metadata == "key":
        if not reading.suspect:
            return _TAKEN_AS_SAID
        return Looked(integrity_status="unknown", metadata_status="suspect", doubts=reading.suspect)
    kind = kind_of(reading, media_type)
    uri = reading.object_uri
    verdict = integrity(uri, content, kind, levels, upstream, declared)
    if verdict.status == "failed":
        return _failed(verdict, reading)
    # Whoever asked HEAD knows the content by now, or the announcement was right about it.
    known = None if levels.integrity == "announced" else verdict.content or content
    return _looked(verdict, metadata(uri, known, reading, kind, levels, upstream))


# Integrity and metadata of one object, as closely as the levels ask. Raises what upstream raises.
class Look(Protocol):
    """`work` for one upstream."""

    def __call__(
        self,
        reading: Reading,
        content: Content,
        levels: Levels,
        declared: Mapping[str, str] | None = None,
    ) -> Looked: ...


def looking(upstream: Upstream, media_type_of: Callable[[str], str]) -> Look:
    """`work` for one upstream. `media_type_of` knows datasets."""

    def look(
        reading: Reading, content: Content, levels: Levels, declared: Mapping[str, str] | None = None
    ) -> Looked:
        media_type = media_type_of(reading.dataset)
        return work(reading, content, levels, upstream, media_type=media_type, declared=declared)

    return look


def _failed(verdict: Verdict, reading: Reading) -> Looked:
    return Looked(
        integrity_status="failed",
        metadata_status="unknown",
        doubts=reading.suspect,
        notes=verdict.notes,
        error_code=verdict.code,
        error_message=verdict.message,
    )


def _looked(verdict: Verdict, described: Described) -> Looked:
    return Looked(
        integrity_status=verdict.status,
        metadata_status=described.status,
        doubts=(*verdict.doubts, *described.doubts),
        notes=(*verdict.notes, *described.notes),
        error_code=described.code,
        error_message=described.message if described.code else None,
        checksum=verdict.checksum,
        content=verdict.content,
        disagrees=described.disagrees,
        start_ms=described.start_ms,
        end_ms=described.end_ms,
        reference_ms=described.reference_ms,
        platform=described.platform,
        footprint=described.footprint,
    )
