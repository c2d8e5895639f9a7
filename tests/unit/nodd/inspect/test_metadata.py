"""What a header adds to a key, and what becomes of their disagreements."""

from __future__ import annotations

import gzip
import json
import time

import msgspec
import pytest

from kfm.model.units import Content
from kfm.nodd.inspect.header_facts import HeaderUnread
from kfm.nodd.inspect.inspection import InspectionResult, inspect, make_inspector
from kfm.nodd.inspect.ranged_file import RangedFile
from kfm.nodd.inspect.verdicts import Levels
from tests.nodd_objects import (
    GOES_ATTRIBUTES,
    GOES_KEY,
    Shelf,
    grib2,
    hdf5,
    media_type,
    ms,
    reading,
    volume,
)

HEADER = Levels(metadata="header")
GFS = "gfs.20260314/06/atmos/gfs.t06z.pgrb2.0p25.f021"
L2 = "2026/03/14/KTWX/KTWX20260314_123456_V06"
NDFD = "wmo/temp/2026/03/14/YEUZ98_KWBN_202603140647"


def look(bucket: str, key: str, data: bytes, levels: Levels = HEADER) -> InspectionResult:
    shelf = Shelf()
    read = reading(bucket, key)
    shelf.put(read.object_uri, data)
    return make_inspector(shelf, media_type)(read, Content(), levels)


@pytest.mark.parametrize(
    ("bucket", "key", "data"),
    [
        ("noaa-goes19", GOES_KEY, hdf5(GOES_ATTRIBUTES)),
        ("noaa-gfs-bdp-pds", GFS, grib2()),
        ("noaa-gfs-bdp-pds", GFS, grib2(hours=18, until="2026-03-15T03:00:00")),
        ("noaa-gfs-bdp-pds", f"{GFS}.idx", b"1:0:d=2026031406:PRMSL:mean sea level:21 hour fcst:\n"),
        ("unidata-nexrad-level2", L2, volume()),
        ("unidata-nexrad-level2", f"{L2}.gz", gzip.compress(volume(), mtime=0)),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_headers_that_agree(bucket: str, key: str, data: bytes) -> None:
    """A header that says what the key says makes it certain."""
    looked = look(bucket, key, data)
    assert (looked.metadata_status, looked.doubts, looked.disagrees, looked.error_code) == (
        "ok",
        (),
        {},
        None,
    )


@pytest.mark.parametrize(
    ("bucket", "key", "data", "expected"),
    [
        (
            "noaa-goes19",
            GOES_KEY,
            hdf5(GOES_ATTRIBUTES | {"time_coverage_start": "2026-03-14T11:01:17.5Z"}),
            {"time_range_start": {"key": "2026-03-14T12:01:17.500Z", "header": "2026-03-14T11:01:17.500Z"}},
        ),
        (
            "noaa-goes19",
            GOES_KEY,
            hdf5(GOES_ATTRIBUTES | {"platform_ID": "G18"}),
            {"platform": {"key": "GOES-19", "header": "GOES-18"}},
        ),
        (
            "noaa-goes19",
            GOES_KEY,
            hdf5(GOES_ATTRIBUTES | {"dataset_name": "other.nc"}),
            {"file_name": {"key": GOES_KEY.rpartition("/")[2], "header": "other.nc"}},
        ),
        (
            "noaa-gfs-bdp-pds",
            GFS,
            grib2(reference="2026-03-14T00:00:00", hours=27),
            {"reference_time": {"key": "2026-03-14T06:00:00Z", "header": "2026-03-14T00:00:00Z"}},
        ),
        (
            "noaa-gfs-bdp-pds",
            GFS,
            grib2(hours=24),
            {"time_range_end": {"key": "2026-03-15T03:00:00Z", "header": "2026-03-15T06:00:00Z"}},
        ),
        (
            "unidata-nexrad-level2",
            L2,
            volume("2026-03-14T12:34:59", "KICT"),
            {
                "time_range_start": {"key": "2026-03-14T12:34:56Z", "header": "2026-03-14T12:34:59.250Z"},
                "platform": {"key": "KTWX", "header": "KICT"},
            },
        ),
    ],
    ids=lambda value: str(value)[-30:],
)
@pytest.mark.req("WAL-7")
def test_disagreement_is_suspect(bucket: str, key: str, data: bytes, expected: dict) -> None:
    """Where key and header differ the object is suspect, and both values stand in one place."""
    looked = look(bucket, key, data)
    assert (looked.metadata_status, looked.doubts) == ("suspect", ("HEADER_DISAGREES",))
    assert looked.extra == {"disagrees": expected}
    assert (looked.error_code, looked.start_ms) == (None, None)  # what the key says stays


def test_a_header_fills_what_the_key_does_not_tell() -> None:
    """A bulletin's key does not say what time it is valid for; its header does, and where."""
    data = b"YEUZ98 KWBN 140647\r\r\n" + grib2(corners=(40.0, 258.0, 37.0, 265.5), step=0.01)
    looked = look("noaa-ndfd-pds", NDFD, data)
    assert (looked.metadata_status, looked.reference_ms) == ("ok", ms("2026-03-14T06:00:00"))
    assert (looked.start_ms, looked.end_ms) == (ms("2026-03-15T03:00:00"),) * 2
    assert looked.footprint is not None
    assert looked.footprint.box == (-102.0, 37.0, -94.5, 40.0)


@pytest.mark.req("RS-13")
def test_no_place_in_the_record() -> None:
    """Where data lie is told to the catalogue alone: nothing of it is in what the record keeps."""
    data = grib2(corners=(40.0, 258.0, 37.0, 265.5), step=0.01, hours=24)
    looked = look("noaa-gfs-bdp-pds", GFS, data)
    assert looked.footprint is not None
    kept = json.dumps(looked.extra)
    assert "disagrees" in kept
    assert not any(number in kept for number in ("40.0", "37.0", "-102", "-94.5", "258"))


@pytest.mark.parametrize(
    ("bucket", "key", "data"),
    [
        ("noaa-goes19", GOES_KEY, b"\x89HDF\r\n\x1a\n\x02" + b"\xff" * 400),
        ("noaa-goes19", GOES_KEY, hdf5(GOES_ATTRIBUTES)[:-600]),
        ("noaa-goes19", GOES_KEY, b""),
        ("noaa-goes19", GOES_KEY, hdf5(GOES_ATTRIBUTES | {"time_coverage_start": "2026-02-30T00:00:00Z"})),
        ("noaa-gfs-bdp-pds", GFS, grib2()[:60]),
        (
            "noaa-gfs-bdp-pds",
            GFS,
            grib2(reference="2026-03-14T06:00:00").replace(b"\x07\xea\x03\x0e", b"\x07\xea\x0d\x0e"),
        ),
        ("unidata-nexrad-level2", L2, volume()[:23]),
        ("unidata-nexrad-level2", f"{L2}.gz", b"\x1f\x8b\x08 no"),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_impossible_headers_fail(bucket: str, key: str, data: bytes) -> None:
    """A header that can't be one fails the unit for good, with the reason in a sentence."""
    looked = look(bucket, key, data)
    assert (looked.metadata_status, looked.error_code) == ("failed", "HEADER_INVALID")
    assert (looked.error_message or "").startswith("The file's header can't be what it claims to be. ")


@pytest.mark.parametrize("level", ["announced", "head", "magic"])
def test_replaced_under_a_header(level: str) -> None:
    """A header that is a mixture of two versions is no damage: the object is looked at again."""
    read, shelf = reading("noaa-gfs-bdp-pds", GFS), Shelf()
    levels = Levels(integrity=level, metadata="header")  # type: ignore[arg-type]
    shelf.put(read.object_uri, grib2()[:-4] + b"x" * 4 if level == "magic" else b"GRIB" + bytes(99))
    shelf.after_read[read.object_uri] = grib2(size=5)[:50] + bytes(50) if level == "magic" else grib2()
    looked = inspect(read, Content(), levels, shelf, media_type=media_type("gfs"))
    assert looked.error_code == "OBJECT_CHANGED"


def test_headers_that_are_not_read() -> None:
    """Formats without a reader, and headers beyond the budget, are noted; what the key tells stands."""
    looked = look("unidata-nexrad-level3", "TWX_N0B_2026_03_14_12_34_56", b"anything")
    assert (looked.metadata_status, looked.notes, looked.error_code) == ("unknown", ("HEADER_UNKNOWN",), None)
    tight = msgspec.structs.replace(HEADER, header_bytes_max=100)
    looked = look("noaa-goes19", GOES_KEY, hdf5(GOES_ATTRIBUTES), tight)
    assert (looked.metadata_status, looked.notes, looked.error_code) == ("unknown", ("HEADER_UNREAD",), None)


def test_headers_take_few_bytes() -> None:
    """A header of a large file is read by a few ranges, not by a download."""
    read, shelf = reading("noaa-gfs-bdp-pds", GFS), Shelf()
    shelf.put(read.object_uri, grib2(size=5_000_000))
    looked = inspect(read, Content(), HEADER, shelf, media_type=media_type("gfs"))
    assert looked.metadata_status == "ok"
    assert (shelf.asked, shelf.bytes_read <= 16_384) == (["head", "read"], True)
    both = Levels(integrity="magic", metadata="header")
    shelf.asked.clear()
    inspect(read, Content(), both, shelf, media_type=media_type("gfs"))
    assert shelf.asked == ["head", "read", "read"]


def test_headers_all_over_a_file() -> None:
    """A header that is spread over a large file is left after so many requests, and that is noted."""
    shelf, reads = Shelf(), 5
    shelf.put("s3://b/k", bytes(1_000_000))
    file = RangedFile(shelf, "s3://b/k", 1_000_000, bytes_max=10**9, reads_max=reads, page=1000)
    for number in range(reads):
        assert file.at(number * 1000, 10) == bytes(10)
        assert file.at(number * 1000, 10) == bytes(10)
    assert len(shelf.asked) == reads
    with pytest.raises(HeaderUnread):
        file.at(500_000, 1)
    few = RangedFile(shelf, "s3://b/k", 1_000_000, bytes_max=2500, reads_max=99, page=1000)
    assert few.at(990, 20) == bytes(20)
    with pytest.raises(HeaderUnread):
        few.at(5000, 1)


def test_doubts_of_the_key_stay() -> None:
    """What reading the key made suspect is not made certain by a header that agrees."""
    read = msgspec.structs.replace(reading("noaa-gfs-bdp-pds", GFS), suspect=("FOLDER_DISAGREES",))
    shelf = Shelf()
    shelf.put(read.object_uri, grib2())
    for levels in (HEADER, Levels()):
        looked = inspect(read, Content(), levels, shelf, media_type=media_type("gfs"))
        assert (looked.metadata_status, looked.doubts) == ("suspect", ("FOLDER_DISAGREES",))


def test_missing_for_the_header() -> None:
    """An object that is not there fails in a way that is worth another attempt."""
    looked = inspect(
        reading("noaa-gfs-bdp-pds", GFS), Content(), HEADER, Shelf(), media_type=media_type("gfs")
    )
    assert looked.error_code == "OBJECT_MISSING"


def test_nothing_asked_costs_nothing() -> None:
    """By default nothing is requested, nothing is claimed of the bytes, and it takes no time to speak of."""
    read, shelf, levels, content = reading("noaa-gfs-bdp-pds", GFS), Shelf(), Levels(), Content(size=5)
    looked = inspect(read, content, levels, shelf)
    assert (looked.integrity_status, looked.metadata_status, looked.doubts) == ("unknown", "ok", ())
    assert shelf.asked == []
    best = min(_timed(lambda: inspect(read, content, levels, shelf)) for _ in range(5))
    assert best < 30e-6  # measured: well below 1 µs; this machine may be busy


def _timed(call) -> float:
    began = time.perf_counter()
    for _ in range(1000):
        call()
    return (time.perf_counter() - began) / 1000
