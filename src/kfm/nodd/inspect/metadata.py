"""What is known of an object's content: from its key, and from its header where the policy asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kfm.model.errors import ChecksumMismatch, ObjectMissing
from kfm.model.records import Record
from kfm.model.times import rfc3339
from kfm.model.units import Content
from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.grammar import Reading
from kfm.nodd.inspect import grib2, netcdf, nexrad_header
from kfm.nodd.inspect.file_kinds import Kind
from kfm.nodd.inspect.gzip_members import Damaged, first_inflated
from kfm.nodd.inspect.header_facts import Bytes, HeaderFacts, HeaderInvalid, HeaderUnread, MemoryBytes
from kfm.nodd.inspect.integrity import compare, plain_etag
from kfm.nodd.inspect.ranged_file import PAGE_BYTES, RangedFile
from kfm.nodd.inspect.verdicts import FAILED, Levels, Status
from kfm.nodd.spans import HOUR_MS
from kfm.ports import Upstream

INFLATED_BYTES = 256 * 1024  # of a compressed file: what its header may take
SMALL_PAGE_BYTES = 8 * 1024  # for headers that stand at the very beginning
TOLERANCE_MS = 1000  # keys are cut to seconds or tenths
_READERS: Mapping[str, Callable[[Bytes], HeaderFacts]] = {
    "netcdf": netcdf.attributes,
    "grib": grib2.message,
    "bulletin": grib2.message,
    "index": grib2.index,
    "nexrad-l2": nexrad_header.volume,
}


class MetadataVerdict(Record, frozen=True):
    """The verdict on metadata. Times and place are the header's, where the key has none."""

    status: Status
    code: str | None = None
    message: str | None = None
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    disagrees: dict[str, dict[str, Any]] = {}  # field → {"key": …, "header": …}
    start_ms: int | None = None
    end_ms: int | None = None
    reference_ms: int | None = None
    platform: str | None = None
    footprint: Footprint | None = None


_CLEAR = MetadataVerdict(status="ok")


def from_key(reading: Reading) -> MetadataVerdict:
    """Doubts come from reading the message and the key."""
    if reading.suspect:
        return MetadataVerdict(status="suspect", doubts=reading.suspect)
    return _CLEAR


def metadata(
    uri: str, known: Content | None, reading: Reading, kind: Kind, levels: Levels, upstream: Upstream
) -> MetadataVerdict:
    """`known` is the answer of a HEAD, where there was one."""
    if levels.metadata == "key":
        return from_key(reading)
    reader = _READERS.get(kind.name or "")
    if reader is None or kind.packed not in (None, "gzip"):
        return _unread(reading, "HEADER_UNKNOWN", None)
    try:
        if known is None:
            known = _asked(uri, upstream)
        facts = reader(_opened(uri, known.size or 0, kind, levels, upstream))
    except ObjectMissing:
        return _failed("OBJECT_MISSING", reading)
    except ChecksumMismatch:
        return _failed("OBJECT_CHANGED", reading)
    except (HeaderInvalid, Damaged) as trouble:
        now = compare(known or Content(), upstream.head(uri))
        if now.status == "failed":
            return _failed(now.code or "OBJECT_MISSING", reading)
        if known is not None and now.content is not None:
            return _failed("OBJECT_CHANGED", reading)
        return _failed("HEADER_INVALID", reading, f"{trouble}")
    except HeaderUnread as trouble:
        return _unread(reading, "HEADER_UNREAD", f"{trouble}")
    return compared(reading, facts, kind)


def _failed(code: str, reading: Reading, detail: str = "") -> MetadataVerdict:
    message = f"{FAILED[code]} {detail}" if detail else FAILED[code]
    return MetadataVerdict(status="failed", code=code, message=message, doubts=reading.suspect)


def _asked(uri: str, upstream: Upstream) -> Content:
    stat = upstream.head(uri)
    if stat is None:
        raise ObjectMissing(f"There is no {uri}.")
    return Content(etag=plain_etag(stat.etag), size=stat.size, version_id=stat.version)


def _unread(reading: Reading, note: str, message: str | None) -> MetadataVerdict:
    """Not compared: the key is trusted, unless it is doubtful by itself."""
    status: Status = "suspect" if reading.suspect else "unknown"
    return MetadataVerdict(status=status, message=message, doubts=reading.suspect, notes=(note,))


def _opened(uri: str, size: int, kind: Kind, levels: Levels, upstream: Upstream) -> Bytes:
    if kind.packed == "gzip":
        data, is_all = first_inflated(upstream.read(uri, 0, PAGE_BYTES), INFLATED_BYTES)
        # Its length is known only at its end.
        return MemoryBytes(data) if is_all else MemoryBytes(data, size=1 << 62)
    return RangedFile(
        upstream,
        uri,
        size,
        bytes_max=levels.header_bytes_max,
        reads_max=levels.header_reads_max,
        page=PAGE_BYTES if kind.name == "netcdf" else SMALL_PAGE_BYTES,
    )


# --- comparing -----------------------------------------------------------------------


def compared(reading: Reading, facts: HeaderFacts, kind: Kind) -> MetadataVerdict:
    """Both values of every field in which key and header differ; places are never among them."""
    found: dict[str, dict[str, Any]] = {}
    _compare_times(found, reading, facts, kind)
    if reading.platform and facts.platform and reading.platform != facts.platform:
        found["platform"] = {"key": reading.platform, "header": facts.platform[:64]}
    file = reading.key.rpartition("/")[2]
    if facts.file_name is not None and facts.file_name != file:
        found["file_name"] = {"key": file, "header": facts.file_name[:255]}
    doubts = (*reading.suspect, "HEADER_DISAGREES") if found else reading.suspect
    silent = reading.time_range_start_ms is None and reading.time_range_end_ms is None
    return MetadataVerdict(
        status="suspect" if doubts else "ok",
        doubts=doubts,
        disagrees=found,
        start_ms=facts.start_ms if silent else None,
        end_ms=facts.end_ms if silent or (reading.time_range_end_ms is None and not _is_grib(kind)) else None,
        # An observation has a reference time in its header, too, but is no forecast.
        reference_ms=facts.reference_ms if silent and reading.reference_time_ms is None else None,
        platform=facts.platform if reading.platform is None else None,
        footprint=facts.footprint,
    )


def _is_grib(kind: Kind) -> bool:
    return kind.name in ("grib", "bulletin", "index")


def _compare_times(
    found: dict[str, dict[str, Any]], reading: Reading, facts: HeaderFacts, kind: Kind
) -> None:
    def compare(
        field: str, key_ms: int | None, header_ms: int | None, earlier_ms: int = TOLERANCE_MS
    ) -> None:
        if key_ms is None or header_ms is None:
            return
        if not key_ms - earlier_ms < header_ms < key_ms + TOLERANCE_MS:
            found[field] = {"key": rfc3339(key_ms), "header": rfc3339(header_ms)}

    compare("reference_time", reading.reference_time_ms, facts.reference_ms)
    if _is_grib(kind):
        # A file by the hour may begin with fields of its first quarters, and intervals end at the hour.
        compare("time_range_end", reading.time_range_end_ms, facts.end_ms, HOUR_MS)
    else:
        compare("time_range_start", reading.time_range_start_ms, facts.start_ms)
        compare("time_range_end", reading.time_range_end_ms, facts.end_ms)
