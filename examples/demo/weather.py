"""A day of weather in buckets: small but valid objects, and the announcements of them. All of it is invented.

The buckets are folders. What goes wrong with them is chosen here, so that every demo goes wrong alike.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

DAY = datetime(2026, 3, 14, tzinfo=UTC)
NOAA = "arn:aws:sns:us-east-1:123901341784:"
GOES, RADAR, MODEL, RAIN = "noaa-goes19", "unidata-nexrad-level2", "noaa-hrrr-bdp-pds", "noaa-mrms-pds"
TOPICS = {
    GOES: f"{NOAA}NewGOES19Object",
    RADAR: "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2ObjectFilterable",
    MODEL: f"{NOAA}NewHRRRObject",
    RAIN: f"{NOAA}NewMRMSObject",
}
SITES = ("KDDC", "KGLD", "KICT", "KTWX")  # around Kansas
LINES_A_FILE = 100
MS_A_DAY = 86_400_000


class Thing(NamedTuple):
    """An object: where it is announced to be, and its bytes."""

    bucket: str
    key: str
    data: bytes
    at: datetime

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


# --- bytes ---------------------------------------------------------------------------


def netcdf() -> bytes:
    """A classic file with one dimension."""
    name = struct.pack(">I", 1) + b"x\0\0\0"
    dimension = struct.pack(">II", 10, 1) + name + struct.pack(">I", 4)
    return b"CDF\1" + bytes(4) + dimension + bytes(16) + bytes(64)


def grib(at: datetime, hours: int) -> bytes:
    """One message on a coarse grid over the United States."""
    stamp = struct.pack(">H5B", *at.timetuple()[:6])
    identity = struct.pack(">IBHHBBB", 21, 1, 7, 0, 2, 1, 1) + stamp + b"\0\1"
    grid = (
        struct.pack(">IBBIBBH", 72, 3, 0, 4, 0, 0, 0)
        + b"\6"
        + bytes(15)
        + struct.pack(">4I", 2, 2, 0, -1 & 0xFFFFFFFF)
    )
    grid += struct.pack(">IIBIIIIB", 50_000_000, 230_000_000, 0x30, 25_000_000, 300_000_000, 10**6, 10**6, 0)
    product = (
        struct.pack(">IBHH", 34, 4, 0, 0) + bytes(4) + b"\2\0\0\0\1" + struct.pack(">I", hours) + bytes(12)
    )
    body = identity + grid + product + struct.pack(">IB", 69, 7) + bytes(64) + b"7777"
    return b"GRIB\0\0\0\2" + struct.pack(">Q", 16 + len(body)) + body


def volume(at: datetime, site: str) -> bytes:
    """A radar volume: its header, and one record whose content is not read."""
    ms = int(at.timestamp() * 1000)
    head = b"AR2V0006.001" + struct.pack(">II", ms // MS_A_DAY + 1, ms % MS_A_DAY) + site.encode()
    record = b"BZh91AY&SY" + bytes(90)
    return head + struct.pack(">i", -len(record)) + record


# --- objects -------------------------------------------------------------------------


def _scans() -> Iterator[Thing]:
    data = netcdf()
    for minute in range(0, 300, 5):
        at = DAY + timedelta(hours=12, minutes=minute, seconds=17)
        start, end, made = (
            (at + timedelta(seconds=after)).strftime("%Y%j%H%M%S") + "5" for after in (0, 150, 180)
        )
        for channel in range(1, 17):
            name = f"OR_ABI-L1b-RadC-M6C{channel:02}_G19_s{start}_e{end}_c{made}.nc"
            yield Thing(GOES, f"ABI-L1b-RadC/{at:%Y/%j/%H}/{name}", data, at)


def _volumes() -> Iterator[Thing]:
    for minute in range(0, 1440, 6):
        for number, site in enumerate(SITES):
            at = DAY + timedelta(minutes=minute, seconds=11 * number)
            yield Thing(RADAR, f"{at:%Y/%m/%d}/{site}/{site}{at:%Y%m%d_%H%M%S}_V06", volume(at, site), at)


def _forecasts() -> Iterator[Thing]:
    for cycle in range(0, 24, 3):
        for hour in range(19):
            at = DAY + timedelta(hours=cycle)
            key = f"hrrr.{at:%Y%m%d}/conus/hrrr.t{cycle:02}z.wrfsfcf{hour:02}.grib2"
            arrives = at + timedelta(hours=1, minutes=hour)
            yield Thing(MODEL, key, grib(at, hour), arrives)
            index = f"1:0:d={at:%Y%m%d%H}:TMP:2 m above ground:{f'{hour} hour fcst' if hour else 'anl'}:\n"
            yield Thing(MODEL, f"{key}.idx", index.encode(), arrives)


def _rain() -> Iterator[Thing]:
    for minute in range(0, 1440, 2):
        at = DAY + timedelta(minutes=minute)
        name = f"MRMS_PrecipRate_00.00_{at:%Y%m%d-%H%M%S}.grib2.gz"
        packed = gzip.compress(grib(at, 0), mtime=0)
        yield Thing(RAIN, f"CONUS/PrecipRate_00.00/{at:%Y%m%d}/{name}", packed, at)


def everything() -> list[Thing]:
    """All objects of the day, in the order in which they appear."""
    made = [*_scans(), *_volumes(), *_forecasts(), *_rain()]
    return sorted(made, key=lambda thing: (thing.at, thing.key))


def put(mirror: Path, thing: Thing) -> None:
    path = mirror / thing.bucket / thing.key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(thing.data)


# --- announcements -------------------------------------------------------------------


def announcement(thing: Thing, turn: int = 0) -> str:
    """As SNS sends it. A later turn is a later version of the same object."""
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": f"{thing.at:%Y-%m-%dT%H:%M:%S}.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "bucket": {"name": thing.bucket, "arn": f"arn:aws:s3:::{thing.bucket}"},
            "object": {
                "key": thing.key,
                "size": len(thing.data),
                "eTag": hashlib.md5(thing.data).hexdigest(),
                "sequencer": f"{int(thing.at.timestamp()) + turn:016X}",
            },
        },
    }
    return json.dumps(
        {
            "Type": "Notification",
            "MessageId": hashlib.md5(f"{thing.uri}{turn}".encode()).hexdigest(),
            "TopicArn": TOPICS[thing.bucket],
            "Subject": "Amazon S3 Notification",
            "Message": json.dumps({"Records": [record]}),
            "Timestamp": f"{thing.at:%Y-%m-%dT%H:%M:%S}.500Z",
        }
    )


def hostile(thing: Thing) -> list[str]:
    """Messages that are false or unreadable."""
    honest = announcement(thing)
    return [
        honest[: len(honest) // 2],
        "null",
        "[" * 200 + "]" * 200,
        honest.replace(TOPICS[thing.bucket], "arn:aws:sns:us-east-1:000000000000:NewGOES19Object"),
        honest.replace(thing.key, "../../etc/passwd"),
        honest.replace(thing.bucket, "another-bucket"),
    ]


def spool(folder: Path, lines: list[str]) -> int:
    """Write them as a bridge would: whole files that appear at once. How many there are now."""
    folder.mkdir(parents=True, exist_ok=True)
    first = len(list(folder.glob("*.jsonl")))
    for number, begin in enumerate(range(0, len(lines), LINES_A_FILE), start=first):
        draft = folder / f".{number:05}"
        draft.write_text("\n".join(lines[begin : begin + LINES_A_FILE]) + "\n")
        draft.rename(folder / f"{number:05}.jsonl")
    return len(lines)
