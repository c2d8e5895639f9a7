"""What looking at an object came to: stable codes, one sentence each, and both values where two disagree."""

from __future__ import annotations

from typing import Literal

from kfm.core.records import Record
from kfm.core.wal import Content

Status = Literal["unknown", "ok", "suspect", "failed"]

# Whether another attempt makes sense is said in contracts/retry.json alone.
FAILED = {
    "OBJECT_MISSING": "The object is not there, not yet or not any more.",
    "OBJECT_CHANGED": "The object was replaced while it was read.",
    "OBJECT_TOO_LARGE": "The object is larger than the policy reads.",
    "SIZE_MISMATCH": "The object has another size than was announced, under the same ETag.",
    "ETAG_MISMATCH": "The bytes are not those of the ETag.",
    "CHECKSUM_MISMATCH": "The bytes are not those of the declared checksum.",
    "MAGIC_MISMATCH": "The object is not the kind of file that its key names.",
    "TRUNCATED": "The object ends before its content does.",
    "GZIP_DAMAGED": "The compressed stream is damaged.",
    "GZIP_BOMB": "The object inflates to more than the policy allows.",
    "HEADER_INVALID": "The file's header can't be what it claims to be.",
}
DOUBTS = {
    "SIZE_DISAGREES": "The announced size is another one, and no ETag tells why.",
    "HEADER_DISAGREES": "The file's header says something else than its key.",
}
# Nothing is wrong, but whoever reads the verdict should know.
NOTES = {
    "REISSUED": "The object was replaced after it was announced; what upstream has now counts.",
    "MAGIC_UNKNOWN": "Nothing is known of the first bytes of such a file.",
    "CHECKSUM_UNKNOWN": "A checksum is declared in a way that is not understood.",
    "HEADER_UNKNOWN": "Nothing is known of the header of such a file.",
    "HEADER_UNREAD": "The header is valid as far as it was read, but not in a form that is understood.",
}


class Verdict(Record, frozen=True):
    """One operator's answer."""

    status: Status
    code: str | None = None  # of the failure
    message: str | None = None
    doubts: tuple[str, ...] = ()  # why it is suspect
    notes: tuple[str, ...] = ()
    checksum: str | None = None  # sha256:HEX, where all bytes were read
    content: Content | None = None  # what upstream has, where that is more or other than was announced


def failed(code: str, detail: str = "", *, notes: tuple[str, ...] = ()) -> Verdict:
    sentence = FAILED[code]
    message = f"{sentence} {detail}" if detail else sentence
    return Verdict(status="failed", code=code, message=message, notes=notes)
