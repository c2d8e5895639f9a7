"""Which kind of file a key names, and whether first bytes are of that kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from kfm.model.records import Record
from kfm.nodd.grammar import Reading

MAGIC_BYTES = 4096  # what is looked at, after inflating
HDF5 = b"\x89HDF\r\n\x1a\n"
_PACKED = {".gz": "gzip", ".bz2": "bzip2", ".Z": "compress"}
_SUFFIXES = {
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".h5": "netcdf",
    ".grib2": "grib",
    ".grb2": "grib",
    ".grib": "grib",
    ".grb": "grib",
    ".idx": "index",
    ".fits": "fits",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".parquet": "parquet",
    ".pdf": "pdf",
    ".tar": "tar",
    ".nids": "nexrad-l3",
    ".ar2v": "nexrad-l2",
}
# Suffixes of files that begin with anything: nothing is expected of them, whatever their dataset.
_ANYTHING = re.compile(
    r"\.(?:txt|csv|json|xml|bufr\w*|dat|gif|png|jpe?g|bin|ascii|status|log)\Z", re.IGNORECASE
)
_PART = re.compile(r"\.\d{3}\Z")  # of something that was cut
_NAMED_GRIB = re.compile(r"gri?b2", re.IGNORECASE)
_WMO = re.compile(rb"[A-Z]{4}\d\d [A-Z0-9]{4} \d{6}")
_INDEX = re.compile(rb"\d{1,9}(?:\.\d{1,4})?:\d{1,15}:d=\d{10}")
_NEXRAD = re.compile(rb"(?:AR2V\d{4}|ARCHIVE2)\.[0-9 ]{3}")


class Kind(Record, frozen=True):
    """The format, and what it is wrapped in."""

    name: str | None  # None: nothing is known
    packed: str | None = None


def kind_of(reading: Reading, media_type: str) -> Kind:
    """By suffix first, then by dataset and media type. What is not known is None, never a guess."""
    return _kind(reading.dataset, reading.key.rpartition("/")[2], reading.asset, media_type)


@lru_cache(maxsize=4096)
def _kind(dataset: str, file: str, asset: str, media_type: str) -> Kind:
    packed = None
    for suffix, how in _PACKED.items():
        if file.endswith(suffix):
            file, packed = file.removesuffix(suffix), how
            break
    return Kind(name=_format(dataset, file, asset, media_type), packed=packed)


def _format(dataset: str, file: str, asset: str, media_type: str) -> str | None:
    if asset != "data":
        return "index" if file.endswith(".idx") else None
    if dataset == "ndfd":  # GRIB2 within bulletins, whatever their names end with
        return "bulletin"
    found = _SUFFIXES.get("." + file.rpartition(".")[2]) if "." in file else None
    if found is not None:
        return found
    if dataset == "nexrad-l2":
        return None if "_MDM" in file or _PART.search(file) else "nexrad-l2"
    if dataset == "nexrad-l2-chunks":
        return "nexrad-l2" if file.endswith("-S") else "ldm"
    if dataset == "nexrad-l3":
        return "nexrad-l3"
    if _ANYTHING.search(file):
        return None
    if media_type == "application/wmo-GRIB2" and _NAMED_GRIB.search(file):
        return "grib"
    return None


# --- first bytes ---------------------------------------------------------------------


def _netcdf(head: bytes) -> bool:
    # HDF5 allows a block of the user's own before it.
    return head[:4] in (b"CDF\x01", b"CDF\x02", b"CDF\x05") or any(
        head[at : at + 8] == HDF5 for at in (0, 512, 1024, 2048)
    )


def _grib(head: bytes) -> bool:
    return head[:4] == b"GRIB" and head[7:8] in (b"\x01", b"\x02")


def _bulletin(head: bytes) -> bool:
    at = head.find(b"GRIB")
    return at >= 0 and _grib(head[at : at + 8])


def _nexrad_l2(head: bytes) -> bool:
    return _NEXRAD.match(head) is not None


def _ldm(head: bytes) -> bool:
    """A chunk: a control word, then a compressed record."""
    return head[4:7] == b"BZh"


def _nexrad_l3(head: bytes) -> bool:
    """A bulletin's heading stands before the product, with or without the lines of a circuit."""
    return _WMO.search(head[:64]) is not None


_CHECKS: Mapping[str, tuple[Callable[[bytes], bool], int]] = {
    # name → (check, fewest bytes that it needs)
    "netcdf": (_netcdf, 8),
    "grib": (_grib, 16),
    "bulletin": (_bulletin, 16),
    "nexrad-l2": (_nexrad_l2, 24),
    "ldm": (_ldm, 8),
    "nexrad-l3": (_nexrad_l3, 30),
    "index": (lambda head: _INDEX.match(head) is not None, 16),
    "fits": (lambda head: head.startswith(b"SIMPLE  ="), 9),
    "tiff": (lambda head: head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), 4),
    "parquet": (lambda head: head.startswith(b"PAR1"), 8),
    "pdf": (lambda head: head.startswith(b"%PDF-"), 5),
    "tar": (lambda head: head[257:262] == b"ustar", 512),
}
_PACKED_MAGIC = {"gzip": (b"\x1f\x8b\x08", 18), "bzip2": (b"BZh", 14), "compress": (b"\x1f\x9d", 3)}


class Mismatch(msgspec.Struct, frozen=True):
    """Why first bytes are not those of a kind."""

    code: str
    detail: str


def check_wrapping(packed: str, head: bytes) -> Mismatch | None:
    magic, least = _PACKED_MAGIC[packed]
    if not head.startswith(magic[: len(head)]) or not head:
        return Mismatch("MAGIC_MISMATCH", f"Expected: {packed}. Found: {shown(head)}.")
    return Mismatch("TRUNCATED", f"It has {len(head)} bytes.") if len(head) < least else None


def check_format(name: str, head: bytes) -> Mismatch | None:
    check, least = _CHECKS[name]
    if check(head):
        return None
    if len(head) < least:
        return Mismatch("TRUNCATED", f"A file of this kind, {name}, has more than {len(head)} bytes.")
    return Mismatch("MAGIC_MISMATCH", f"Expected: {name}. Found: {shown(head)}.")


def shown(head: bytes) -> str:
    """First bytes for a message: hex, since they may be anything."""
    return f"bytes {head[:12].hex(' ')}" if head else "no bytes"
