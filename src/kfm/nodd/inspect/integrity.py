"""Is the object the one that was announced, is it of its kind, is it whole?

Each level asks one more question than the one before: nothing; HEAD; HEAD and one range; all bytes.
Errors of the way there (no answer, no access, an open circuit) are raised unchanged: they say
nothing about the object.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from kfm.model.errors import ChecksumMismatch, ObjectMissing
from kfm.model.records import ObjectStat
from kfm.model.units import Content
from kfm.nodd.inspect.file_kinds import MAGIC_BYTES, Kind, Mismatch, check_format, check_wrapping
from kfm.nodd.inspect.file_walk import Walker, walker_for
from kfm.nodd.inspect.gzip_members import Bomb, Damaged, Inflater, first_inflated
from kfm.nodd.inspect.verdicts import InspectionVerdict, Levels, failed
from kfm.ports import Upstream

PACKED_HEAD_BYTES = 64 * 1024  # of a compressed file: enough for the first bytes within
_MD5 = re.compile(r"[0-9a-f]{32}\Z")
_HEX = re.compile(r"[0-9a-f]{32}(?:-\d{1,5})?\Z")
_AZURE = re.compile(r"0[xX][0-9A-Fa-f]+\Z")
NOT_LOOKED_AT = InspectionVerdict(status="unknown")


def integrity(
    uri: str,
    announced: Content,
    kind: Kind,
    levels: Levels,
    upstream: Upstream,
    declared: Mapping[str, str] | None = None,
) -> InspectionVerdict:
    """`declared` are checksums from elsewhere: md5, sha1, sha256 or crc32 → hex."""
    if levels.integrity == "announced":
        return NOT_LOOKED_AT
    stat = upstream.head(uri)
    verdict = compare(announced, stat)
    if verdict.status == "failed" or levels.integrity == "head":
        return verdict
    assert stat is not None
    try:
        if levels.integrity == "magic":
            looked = _magic(uri, stat, kind, upstream)
        else:
            looked = _full(uri, stat, kind, levels, upstream, dict(declared or {}))
    except ObjectMissing:
        return failed("OBJECT_MISSING", "It was there a moment ago.", notes=verdict.notes)
    except ChecksumMismatch:
        return failed("OBJECT_CHANGED", notes=verdict.notes)
    if looked.status == "failed" and _replaced(stat, upstream.head(uri)):
        return failed("OBJECT_CHANGED", notes=verdict.notes)
    return _joined(verdict, looked)


def _joined(head: InspectionVerdict, bytes_: InspectionVerdict) -> InspectionVerdict:
    return msgspec.structs.replace(
        bytes_,
        status="suspect" if bytes_.status == "ok" and head.status == "suspect" else bytes_.status,
        doubts=(*head.doubts, *bytes_.doubts),
        notes=(*head.notes, *bytes_.notes),
        content=head.content,
    )


# --- HEAD ----------------------------------------------------------------------------


def plain_etag(etag: str | None) -> str | None:
    """Without quotes and the mark of weakness; hex in lower case. Announcements write it bare."""
    if not etag:
        return None
    bare = etag.removeprefix("W/").strip('"')
    return bare.lower() if _HEX.match(bare.lower()) else bare


def compare(announced: Content, stat: ObjectStat | None) -> InspectionVerdict:
    """An other ETag is a re-issue, and what upstream has now is the truth; an other size alone is odd."""
    if stat is None:
        return failed("OBJECT_MISSING")
    ours, theirs = plain_etag(announced.etag), plain_etag(stat.etag)
    same_size = announced.size is None or announced.size == stat.size
    if ours is not None and theirs is not None and _form(ours) == _form(theirs):
        if ours != theirs:
            now = Content(etag=theirs, size=stat.size, version_id=stat.version)
            return InspectionVerdict(status="ok", notes=("REISSUED",), content=now)
        if not same_size:
            return failed("SIZE_MISMATCH", f"Announced: {announced.size} bytes. Found: {stat.size}.")
    # Google announces another ETag than it shows; then only the size can be compared.
    now = Content(
        etag=ours or theirs,
        sequencer=announced.sequencer,
        size=stat.size,
        version_id=stat.version or announced.version_id,
    )
    if not same_size:
        return InspectionVerdict(
            status="suspect",
            doubts=("SIZE_DISAGREES",),
            message=f"Announced: {announced.size} bytes. Found: {stat.size}.",
            content=msgspec.structs.replace(now, etag=theirs, sequencer=None, version_id=stat.version),
        )
    known = announced if ours == announced.etag else msgspec.structs.replace(announced, etag=ours)
    return InspectionVerdict(status="ok", content=None if now == known else now)


def _form(etag: str) -> str:
    if _HEX.match(etag):
        return "hex"
    return "azure" if _AZURE.match(etag) else "other"


def _replaced(before: ObjectStat, after: ObjectStat | None) -> bool:
    return after is None or (plain_etag(before.etag), before.size) != (plain_etag(after.etag), after.size)


# --- first bytes ---------------------------------------------------------------------


def _magic(uri: str, stat: ObjectStat, kind: Kind, upstream: Upstream) -> InspectionVerdict:
    if kind.name is None and kind.packed is None:
        return InspectionVerdict(status="ok", notes=("MAGIC_UNKNOWN",))
    head = upstream.read(uri, 0, PACKED_HEAD_BYTES if kind.packed else MAGIC_BYTES)
    mismatch = check_head(kind, head, stat.size)
    if mismatch is not None:
        return failed(mismatch.code, mismatch.detail)
    unknown = kind.name is None or kind.packed in ("bzip2", "compress")
    return InspectionVerdict(status="ok", notes=("MAGIC_UNKNOWN",) if unknown else ())


def check_head(kind: Kind, head: bytes, size: int) -> Mismatch | None:
    """The first bytes of an object of that many bytes: are they of the kind, and can it be whole?"""
    if kind.packed is not None:
        mismatch = check_wrapping(kind.packed, head)
        if mismatch is not None or kind.packed != "gzip":
            return mismatch
        try:
            head, _ = first_inflated(head, MAGIC_BYTES)
        except Damaged as damage:
            return Mismatch("GZIP_DAMAGED", f"{damage}")
    if kind.name is None:
        return None
    mismatch = check_format(kind.name, head)
    if mismatch is None and kind.packed is None:
        needed = _least_size(kind.name, head)
        if needed > size:
            return Mismatch("TRUNCATED", f"Its header declares {needed} bytes. Found: {size}.")
    return mismatch


def _least_size(name: str, head: bytes) -> int:
    """How many bytes there must be, where a header declares it."""
    if name == "grib" and head[7] == 2:
        return int.from_bytes(head[8:16], "big")
    if name == "netcdf" and head[:4] == b"\x89HDF":
        version = head[8]
        if version in (2, 3) and head[9] == 8:
            return int.from_bytes(head[12:20], "little") + int.from_bytes(head[28:36], "little")
        if version in (0, 1) and head[13] == 8:
            base = 24 if version == 0 else 28
            return int.from_bytes(head[base : base + 8], "little") + int.from_bytes(
                head[base + 16 : base + 24], "little"
            )
    return 0


# --- all bytes -----------------------------------------------------------------------


def _full(
    uri: str, stat: ObjectStat, kind: Kind, levels: Levels, upstream: Upstream, declared: dict[str, str]
) -> InspectionVerdict:
    if stat.size > levels.full_bytes_max:
        return failed("OBJECT_TOO_LARGE", f"Allowed: {levels.full_bytes_max} bytes. Found: {stat.size}.")
    sums = _Sums(declared)
    content = _Within(kind, levels)
    count = 0
    for chunk in upstream.stream(uri):
        count += len(chunk)
        if count > stat.size:
            return failed("SIZE_MISMATCH", f"Upstream declares {stat.size} bytes; more came.")
        sums.update(chunk)
        trouble = content.feed(chunk)
        if trouble is not None:
            return failed(trouble.code, trouble.detail)
    if count < stat.size:
        return failed("TRUNCATED", f"Upstream declares {stat.size} bytes. Found: {count}.")
    etag = plain_etag(stat.etag)
    if levels.etag_is_md5 and etag is not None and _MD5.match(etag) and etag != sums.md5:
        return failed("ETAG_MISMATCH", f"ETag: {etag}. MD5 of the bytes: {sums.md5}.")
    wrong, unknown = sums.compared()
    if wrong is not None:
        return failed("CHECKSUM_MISMATCH", wrong)
    trouble = content.end()
    if trouble is not None:
        return failed(trouble.code, trouble.detail)
    notes = (*content.notes, "CHECKSUM_UNKNOWN") if unknown else content.notes
    return InspectionVerdict(status="ok", notes=notes, checksum=f"sha256:{sums.sha256}")


class _Sums:
    """SHA-256 for the catalogue, MD5 for the ETag, and what was declared."""

    def __init__(self, declared: dict[str, str]) -> None:
        self._declared = {name.lower().replace("-", ""): value.lower() for name, value in declared.items()}
        names = {"sha256", "md5"} | ({"sha1"} & self._declared.keys())
        self._hashes: dict[str, Any] = {name: hashlib.new(name, usedforsecurity=False) for name in names}
        self._crc32 = 0 if "crc32" in self._declared else None

    def update(self, data: bytes) -> None:
        for each in self._hashes.values():
            each.update(data)
        if self._crc32 is not None:
            self._crc32 = zlib.crc32(data, self._crc32)

    @property
    def sha256(self) -> str:
        return str(self._hashes["sha256"].hexdigest())

    @property
    def md5(self) -> str:
        return str(self._hashes["md5"].hexdigest())

    def compared(self) -> tuple[str | None, bool]:
        """(the first that is wrong, is there one of a kind that we don't know?)"""
        unknown = False
        for name, value in sorted(self._declared.items()):
            if name == "crc32":
                found = f"{self._crc32 or 0:08x}"
            elif name in self._hashes:
                found = self._hashes[name].hexdigest()
            else:
                unknown = True
                continue
            if value.removeprefix(f"{name}:") != found:
                return f"Declared {name}: {value[:128]}. Found: {found}.", unknown
        return None, unknown


class _Within:
    """The content while it streams by: its first bytes, its wrapping, its end."""

    def __init__(self, kind: Kind, levels: Levels) -> None:
        self._kind = kind
        self._head: bytes | None = b""
        self._inflater = (
            Inflater(bytes_max=levels.inflated_bytes_max, ratio_max=levels.inflated_ratio_max)
            if kind.packed == "gzip"
            else None
        )
        readable = kind.packed in (None, "gzip")
        self._walker: Walker | None = walker_for(kind.name) if readable else None
        self._size = 0
        self._least = 0
        self.notes: tuple[str, ...] = () if kind.name is not None and readable else ("MAGIC_UNKNOWN",)

    def feed(self, chunk: bytes) -> Mismatch | None:
        if self._inflater is None:
            return self._see(chunk)
        try:
            for piece in self._inflater.feed(chunk):
                trouble = self._see(piece)
                if trouble is not None:
                    return trouble
        except Damaged as damage:
            if self._inflater.given == 0:
                wrapping = check_wrapping("gzip", chunk[:PACKED_HEAD_BYTES])
                if wrapping is not None:
                    return wrapping
            return Mismatch("GZIP_DAMAGED", f"{damage}")
        except Bomb as bomb:
            return Mismatch("GZIP_BOMB", f"{bomb}")
        return None

    def _see(self, data: bytes) -> Mismatch | None:
        self._size += len(data)
        if self._head is not None:
            self._head += data[: MAGIC_BYTES - len(self._head)]
            if len(self._head) == MAGIC_BYTES:
                trouble = self._check()
                if trouble is not None:
                    return trouble
        if self._walker is not None:
            self._walker.feed(data)
        return None

    def _check(self) -> Mismatch | None:
        head, self._head = self._head or b"", None
        if self._kind.packed in ("bzip2", "compress"):
            return check_wrapping(self._kind.packed, head)
        if self._kind.name is None:
            return None
        trouble = check_format(self._kind.name, head)
        if trouble is None:
            self._least = _least_size(self._kind.name, head)
        return trouble

    def end(self) -> Mismatch | None:
        if self._inflater is not None and not self._inflater.complete:
            return Mismatch("TRUNCATED", f"The compressed stream ends after {self._inflater.taken} bytes.")
        if self._head is not None:
            trouble = self._check()
            if trouble is not None:
                return trouble
        if self._least > self._size:
            return Mismatch("TRUNCATED", f"Its header declares {self._least} bytes. Found: {self._size}.")
        problem = self._walker.problem() if self._walker is not None else None
        return None if problem is None else Mismatch("TRUNCATED", problem)
