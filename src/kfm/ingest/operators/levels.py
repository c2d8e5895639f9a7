"""How closely an object is looked at, and how much that may cost."""

from __future__ import annotations

from typing import Literal

from kfm.core.records import Record

MIB = 1024 * 1024

IntegrityLevel = Literal["announced", "head", "magic", "full"]
MetadataLevel = Literal["key", "header"]


class Levels(Record, frozen=True):
    """What a dataset's policy asks for. By default nothing is requested from upstream."""

    integrity: IntegrityLevel = "announced"
    metadata: MetadataLevel = "key"
    # An ETag of 32 hex digits is the MD5 of the bytes, but not under SSE-KMS. Nobody reads such an object
    # without credentials, so this matters for buckets of one's own only.
    etag_is_md5: bool = True
    full_bytes_max: int = 8 * 1024 * MIB
    inflated_bytes_max: int = 16 * 1024 * MIB
    inflated_ratio_max: int = 200  # beyond the first 16 MiB; deflate itself ends at 1032
    header_bytes_max: int = 4 * MIB
    header_reads_max: int = 48  # requests


NOTHING_ASKED = Levels()
