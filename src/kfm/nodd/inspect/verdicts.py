"""Verdicts of inspections: stable codes, both values; levels and their cost."""

from __future__ import annotations

from typing import Literal

from kfm.model.records import Record
from kfm.model.units import Content

MIB = 1024 * 1024

IntegrityLevel = Literal["announced", "head", "magic", "full"]
MetadataLevel = Literal["key", "header"]


class Levels(Record, frozen=True):
    """How closely to inspect, by a dataset's policy. By default nothing is requested from upstream."""

    integrity: IntegrityLevel = "announced"
    metadata: MetadataLevel = "key"
    # An ETag of 32 hex digits is the MD5 of the bytes, but not under SSE-KMS. Such an object needs
    # credentials, so this matters for private buckets only.
    etag_is_md5: bool = True
    full_bytes_max: int = 8 * 1024 * MIB
    inflated_bytes_max: int = 16 * 1024 * MIB
    inflated_ratio_max: int = 200  # beyond the first 16 MiB; deflate itself ends at 1032
    header_bytes_max: int = 4 * MIB
    header_reads_max: int = 48  # requests


NOTHING_ASKED = Levels()


Status = Literal["unknown", "ok", "suspect", "failed"]

# Whether another attempt makes sense is decided in contracts/retry.json alone.
FAILED = {
    "OBJECT_MISSING": "The object is not there, not yet or not any more.",
    "OBJECT_CHANGED": "The object was replaced while it was read.",
    "OBJECT_TOO_LARGE": "The object is larger than the policy reads.",
    "SIZE_MISMATCH": "The object has another size than was announced, under the same ETag.",
    "ETAG_MISMATCH": "The bytes are not those of the ETag.",
    "CHECKSUM_MISMATCH": "The bytes are not those of the declared checksum.",
    "PROVENANCE_PARTIAL": "Neither an ETag nor a version names the bytes, and the policy asks for that.",
    "MAGIC_MISMATCH": "The object is not the kind of file that its key names.",
    "TRUNCATED": "The object ends before its content does.",
    "GZIP_DAMAGED": "The compressed stream is damaged.",
    "GZIP_BOMB": "The object inflates to more than the policy allows.",
    "HEADER_INVALID": "The file's header can't be what it claims to be.",
}
DOUBTS = {
    "SIZE_DISAGREES": "The announced size is another one, and no ETag explains it.",
    "HEADER_DISAGREES": "The file's header contradicts its key.",
}
# Nothing is wrong, but a reader of the verdict should know.
NOTES = {
    "REISSUED": "The object was replaced after it was announced; what upstream has now counts.",
    "MAGIC_UNKNOWN": "Nothing is known of the first bytes of such a file.",
    "CHECKSUM_UNKNOWN": "A checksum is declared in a way that is not understood.",
    "HEADER_UNKNOWN": "Nothing is known of the header of such a file.",
    "HEADER_UNREAD": "The header is valid as far as it was read, but not in a form that is understood.",
}


class InspectionVerdict(Record, frozen=True):
    """The verdict of one check."""

    status: Status
    code: str | None = None  # of the failure
    message: str | None = None
    doubts: tuple[str, ...] = ()  # why it is suspect
    notes: tuple[str, ...] = ()
    checksum: str | None = None  # sha256:HEX, where all bytes were read
    content: Content | None = None  # what upstream has, where that is more or other than was announced


def failed(code: str, detail: str = "", *, notes: tuple[str, ...] = ()) -> InspectionVerdict:
    sentence = FAILED[code]
    message = f"{sentence} {detail}" if detail else sentence
    return InspectionVerdict(status="failed", code=code, message=message, notes=notes)
