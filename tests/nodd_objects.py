"""Small valid files of the kinds that NODD announces, made by hand, and an upstream that has them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from datetime import UTC, datetime

from kfm.model.errors import ObjectMissing
from kfm.model.records import ObjectStat
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.grammar import Reading
from kfm.nodd.messages.record_outcomes import Arrival, parse_key

DAY_MS = 86_400_000
READ_AT_MS = 1_798_761_600_000
REGISTRY = load_registry()


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# --- what is known of them -------------------------------------------------------------


def reading(bucket: str, key: str) -> Reading:
    """What the key tells, which must be one that is understood."""
    outcome = parse_key(bucket, key, REGISTRY, READ_AT_MS)
    assert isinstance(outcome, Arrival), outcome
    return outcome.reading


def media_type(dataset: str) -> str:
    found = REGISTRY.find(dataset)
    return found.media_type if found is not None else "application/octet-stream"


# --- GRIB2 ---------------------------------------------------------------------------


def grib2(
    reference: str = "2026-03-14T06:00:00",
    hours: int = 21,
    *,
    corners: tuple[float, float, float, float] = (90.0, 0.0, -90.0, 359.75),
    template: int = 0,
    until: str | None = None,
    unit: int = 1,
    size: int = 64,
    step: float = 0.25,
) -> bytes:
    """One message: la1, lo1, la2, lo2 are the grid's corners; `until` makes it an interval (template 4.8)."""
    moment = datetime.fromisoformat(reference)
    stamp = struct.pack(">H5B", *moment.timetuple()[:6])
    one = struct.pack(">IBHHBBB", 21, 1, 7, 0, 2, 1, 1) + stamp + b"\0\1"
    places = [_signed(round(each * 1e6)) for each in corners]
    grid = struct.pack(">IBBIBBH", 72, 3, 0, 4, 0, 0, template) + bytes([6]) + bytes(15)
    grid += struct.pack(">IIII", 2, 2, 0, 0xFFFFFFFF)
    grid += places[0] + places[1] + b"\x30" + places[2] + places[3]
    grid += struct.pack(">IIB", int(step * 1e6), int(step * 1e6), 0)
    assert len(grid) == 72
    four = struct.pack(">HH", 0, 8 if until else 0) + bytes(4) + b"\x02" + bytes(3) + bytes([unit])
    four += _signed(hours) + bytes(12)
    if until:
        four += struct.pack(">H5B", *datetime.fromisoformat(until).timetuple()[:6]) + bytes(17)
    four = struct.pack(">IB", len(four) + 5, 4) + four
    rest = struct.pack(">IB", 5 + size, 7) + bytes(size) + b"7777"
    body = one + grid + four + rest
    return b"GRIB\0\0\0\x02" + struct.pack(">Q", 16 + len(body)) + body


def _signed(value: int) -> bytes:
    return struct.pack(">I", abs(value) | (0x80000000 if value < 0 else 0))


# --- NEXRAD --------------------------------------------------------------------------


def volume(start: str = "2026-03-14T12:34:56", site: str = "KTWX", *, records: int = 3) -> bytes:
    """A volume's header, and compressed records (whose content is not read)."""
    at_ms = ms(start) + 250
    head = b"AR2V0006.001" + struct.pack(">II", at_ms // DAY_MS + 1, at_ms % DAY_MS) + site.encode().ljust(4)
    record = b"BZh9" + b"\x31\x41\x59\x26\x53\x59" + bytes(90)
    return head + b"".join(
        struct.pack(">i", -len(record) if n + 1 == records else len(record)) + record for n in range(records)
    )


# --- netCDF --------------------------------------------------------------------------


def hdf5(attributes: dict[str, str | float], *, padding: int = 512) -> bytes:
    """The smallest HDF5 file with attributes: a superblock of version 2, one object header, some data."""
    messages = b""
    for name, value in attributes.items():
        label = name.encode() + b"\0"
        if isinstance(value, str):
            data = value.encode() + b"\0"
            kind = struct.pack("<B3BI", 0x13, 0, 0, 0, len(data))
        else:
            data = struct.pack("<d", value)
            kind = struct.pack("<B3BI", 0x11, 0x20, 63, 0, 8) + struct.pack(
                "<HHBBBBI", 0, 64, 52, 11, 0, 52, 1023
            )
        space = bytes([2, 0, 0, 0])
        body = (
            struct.pack("<BBHHHB", 3, 0, len(label), len(kind), len(space), 0) + label + kind + space + data
        )
        messages += struct.pack("<BHB", 0x0C, len(body), 0) + body
    header = b"OHDR" + bytes([2, 2]) + struct.pack("<I", len(messages)) + messages + bytes(4)
    end = 48 + len(header) + padding
    undefined = 0xFFFFFFFFFFFFFFFF
    block = (
        b"\x89HDF\r\n\x1a\n" + bytes([2, 8, 8, 0]) + struct.pack("<QQQQ", 0, undefined, end, 48) + bytes(4)
    )
    return block + header + bytes(padding)


def netcdf3(attributes: dict[str, str | float], *, version: int = 1) -> bytes:
    """A classic file with one dimension and these attributes."""

    def count(number: int) -> bytes:
        return struct.pack(">Q" if version == 5 else ">I", number)

    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    def named(name: str) -> bytes:
        return count(len(name)) + padded(name.encode())

    made = b"CDF" + bytes([version]) + count(0)
    made += struct.pack(">I", 10) + count(1) + named("x") + count(4)
    made += struct.pack(">I", 12) + count(len(attributes))
    for name, value in attributes.items():
        if isinstance(value, str):
            made += named(name) + struct.pack(">I", 2) + count(len(value)) + padded(value.encode())
        else:
            made += named(name) + struct.pack(">I", 6) + count(1) + struct.pack(">d", value)
    return made + struct.pack(">I", 0) + count(0) + bytes(64)


GOES_KEY = "ABI-L2-LSTC/2026/073/12/OR_ABI-L2-LSTC-M6_G19_s20260731201175_e20260731203548_c20260731204551.nc"
GOES_ATTRIBUTES: dict[str, str | float] = {
    "time_coverage_start": "2026-03-14T12:01:17.5Z",
    "time_coverage_end": "2026-03-14T12:03:54.8Z",
    "date_created": "2026-03-14T12:04:55.1Z",
    "platform_ID": "G19",
    "dataset_name": GOES_KEY.rpartition("/")[2],
}


# --- upstream ------------------------------------------------------------------------


class Shelf:
    """Objects in memory. It counts what is asked of it."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = dict(objects)
        self.etags: dict[str, str] = {}
        self.asked: list[str] = []
        self.bytes_read = 0
        self.after_read: dict[str, bytes] = {}  # what replaces an object after its first read

    def put(self, uri: str, data: bytes) -> None:
        self.objects[uri] = data

    def head(self, object_uri: str) -> ObjectStat | None:
        self.asked.append("head")
        data = self.objects.get(object_uri)
        if data is None:
            return None
        etag = self.etags.get(object_uri) or f'"{hashlib.md5(data).hexdigest()}"'
        return ObjectStat(key=object_uri, size=len(data), etag=etag)

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        self.asked.append("read")
        data = self._data(object_uri)[start : start + length]
        self.bytes_read += len(data)
        return data

    def stream(self, object_uri: str) -> Iterator[bytes]:
        self.asked.append("stream")
        data = self._data(object_uri)
        for at in range(0, len(data), 100_003):
            yield data[at : at + 100_003]

    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]:
        raise AssertionError("no test lists objects")

    def _data(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        data = self.objects[uri]
        if uri in self.after_read:
            self.objects[uri] = self.after_read.pop(uri)
        return data
