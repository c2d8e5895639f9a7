"""Inspection of one unit's object, at the levels that its dataset's policy asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kfm.model.records import Record
from kfm.model.units import Content
from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.grammar import Reading
from kfm.nodd.inspect.file_kinds import kind_of
from kfm.nodd.inspect.integrity import integrity
from kfm.nodd.inspect.metadata import MetadataVerdict, metadata
from kfm.nodd.inspect.verdicts import InspectionVerdict, Levels, Status
from kfm.ports import Upstream


class InspectionResult(Record, frozen=True):
    """Findings of an inspection. Times, platform and footprint are the header's, where the key has none;
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
        """Fields for the unit's record, beside the statuses."""
        return {"disagrees": self.disagrees} if self.disagrees else {}


_AS_ANNOUNCED = InspectionResult(integrity_status="unknown", metadata_status="ok")


def inspect(
    reading: Reading,
    content: Content,
    levels: Levels,
    upstream: Upstream,
    *,
    media_type: str = "application/octet-stream",
    declared: Mapping[str, str] | None = None,
) -> InspectionResult:
    """`media_type` is the dataset's; `declared` are checksums that a manifest or message named."""
    if levels.integrity == "announced" and levels.metadata == "key":
        if not reading.suspect:
            return _AS_ANNOUNCED
        return InspectionResult(integrity_status="unknown", metadata_status="suspect", doubts=reading.suspect)
    kind = kind_of(reading, media_type)
    uri = reading.object_uri
    verdict = integrity(uri, content, kind, levels, upstream, declared)
    if verdict.status == "failed":
        return _failed(verdict, reading)
    # After a HEAD the content is known, or the announcement was right about it.
    known = None if levels.integrity == "announced" else verdict.content or content
    return _result(verdict, metadata(uri, known, reading, kind, levels, upstream))


class Inspector(Protocol):
    """`inspect` for one upstream. Raises what upstream raises."""

    def __call__(
        self,
        reading: Reading,
        content: Content,
        levels: Levels,
        declared: Mapping[str, str] | None = None,
    ) -> InspectionResult: ...


def make_inspector(upstream: Upstream, media_type_of: Callable[[str], str]) -> Inspector:
    """`media_type_of` has the media type of a dataset."""

    def inspector(
        reading: Reading, content: Content, levels: Levels, declared: Mapping[str, str] | None = None
    ) -> InspectionResult:
        media_type = media_type_of(reading.dataset)
        return inspect(reading, content, levels, upstream, media_type=media_type, declared=declared)

    return inspector


def _failed(verdict: InspectionVerdict, reading: Reading) -> InspectionResult:
    return InspectionResult(
        integrity_status="failed",
        metadata_status="unknown",
        doubts=reading.suspect,
        notes=verdict.notes,
        error_code=verdict.code,
        error_message=verdict.message,
    )


def _result(verdict: InspectionVerdict, described: MetadataVerdict) -> InspectionResult:
    return InspectionResult(
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
