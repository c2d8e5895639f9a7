"""Is an announced object there, of its kind and whole?"""

from __future__ import annotations

import gzip
import hashlib
import tracemalloc
import zlib

import msgspec
import pytest

from kfm.model.records import ObjectStat
from kfm.model.retry import Failure, classify
from kfm.model.units import Content
from kfm.nodd.grammar import Reading
from kfm.nodd.inspect import integrity as module
from kfm.nodd.inspect.file_kinds import kind_of
from kfm.nodd.inspect.inspection import InspectionResult, inspect
from kfm.nodd.inspect.verdicts import DOUBTS, FAILED, MIB, NOTES, Levels
from tests.nodd_objects import (
    GOES_ATTRIBUTES,
    GOES_KEY,
    Shelf,
    grib2,
    hdf5,
    media_type,
    netcdf3,
    reading,
    volume,
)

HEAD, MAGIC, FULL = (Levels(integrity=level) for level in ("head", "magic", "full"))
GFS = "gfs.20260314/06/atmos/gfs.t06z.pgrb2.0p25.f021"
MRMS = "CONUS/SeamlessHSR_00.00/20260314/MRMS_SeamlessHSR_00.00_20260314-060000.grib2.gz"
L2 = "2026/03/14/KTWX/KTWX20260314_123456_V06"
L3 = "TWX_N0B_2026_03_14_12_34_56"


def look(
    read: Reading, data: bytes | None, levels: Levels, content: Content | None = None, **more
) -> InspectionResult:
    shelf = Shelf()
    if data is not None:
        shelf.put(read.object_uri, data)
    return inspect(read, content or Content(), levels, shelf, media_type=media_type(read.dataset), **more)


LEVEL3 = b"\x01\r\r\n048 \r\r\nSDUS53 KTOP 141234\r\r\nN0BTWX\r\r\n" + bytes(200)
GOOD = [
    ("noaa-goes19", GOES_KEY, hdf5(GOES_ATTRIBUTES)),
    ("noaa-goes19", GOES_KEY, netcdf3(GOES_ATTRIBUTES)),
    ("noaa-gfs-bdp-pds", GFS, grib2() + grib2(size=5000)),
    ("noaa-gfs-bdp-pds", f"{GFS}.idx", b"1:0:d=2026031406:PRMSL:mean sea level:21 hour fcst:\n"),
    ("noaa-mrms-pds", MRMS, gzip.compress(grib2(hours=0), mtime=0)),
    ("unidata-nexrad-level2", L2, volume()),
    ("unidata-nexrad-level2", f"{L2}.gz", gzip.compress(volume(), mtime=0)),
    ("unidata-nexrad-level2-chunks", "KTWX/12/20260314-123456-001-S", volume()),
    ("unidata-nexrad-level2-chunks", "KTWX/12/20260314-123456-002-I", volume()[24:]),
    ("unidata-nexrad-level3", L3, LEVEL3),
    ("noaa-ndfd-pds", "wmo/temp/2026/03/14/YEUZ98_KWBN_202603140647", b"YEUZ98 KWBN 140647\r\r\n" + grib2()),
]


@pytest.mark.req("WAL-7")
@pytest.mark.parametrize(("bucket", "key", "data"), GOOD, ids=lambda value: str(value)[-40:])
@pytest.mark.parametrize("levels", [HEAD, MAGIC, FULL], ids=lambda levels: levels.integrity)
def test_whole_files_are_ok(bucket: str, key: str, data: bytes, levels: Levels) -> None:
    """A valid file of each kind passes every level; only the whole download tells a checksum."""
    announced = Content(etag=hashlib.md5(data).hexdigest(), size=len(data), sequencer="0055")
    looked = look(reading(bucket, key), data, levels, announced)
    assert (looked.integrity_status, looked.error_code, looked.notes) == ("ok", None, ())
    expected = f"sha256:{hashlib.sha256(data).hexdigest()}" if levels is FULL else None
    assert (looked.checksum, looked.content) == (expected, None)


@pytest.mark.parametrize(("bucket", "key", "data"), GOOD, ids=lambda value: str(value)[-40:])
def test_foreign_bytes_are_refused(bucket: str, key: str, data: bytes) -> None:
    """A page of HTML, or nothing at all, under any of these keys fails from the first bytes on."""
    page = b"<!DOCTYPE html><title>503</title>" + b" " * 6000
    for levels in (MAGIC, FULL):
        assert look(reading(bucket, key), page, levels).error_code == "MAGIC_MISMATCH"
        assert look(reading(bucket, key), b"", levels).error_code in ("MAGIC_MISMATCH", "TRUNCATED")


# Text, and classic netCDF, do not say how long they are.
ENDLESS = (L3, f"{GFS}.idx")


@pytest.mark.parametrize(
    ("bucket", "key", "data"), [each for each in GOOD if each[1] not in ENDLESS and each[2][:3] != b"CDF"]
)
def test_truncated_files_are_found(bucket: str, key: str, data: bytes) -> None:
    """A file that lacks its end is found by a whole download, though store and announcement agree on it."""
    for cut in (len(data) - 1, len(data) - 37, len(data) // 2 + 3):
        piece = data[:cut]
        announced = Content(etag=hashlib.md5(piece).hexdigest(), size=cut)
        looked = look(reading(bucket, key), piece, FULL, announced)
        assert looked.error_code == "TRUNCATED", (cut, looked.error_message)
        assert (looked.integrity_status, looked.metadata_status, looked.checksum) == (
            "failed",
            "unknown",
            None,
        )


def test_first_bytes_tell_of_a_missing_end() -> None:
    """GRIB and HDF5 say at their beginning how long they are: one small range finds what is missing."""
    for key, bucket, data in (
        (GOES_KEY, "noaa-goes19", hdf5(GOES_ATTRIBUTES)),
        (GFS, "noaa-gfs-bdp-pds", grib2()),
    ):
        looked = look(reading(bucket, key), data[:-1], MAGIC)
        assert looked.error_code == "TRUNCATED"
        assert str(len(data)) in (looked.error_message or "")
        assert str(len(data) - 1) in (looked.error_message or "")


def test_damage_in_the_middle() -> None:
    """A flipped bit under the right ETag, in a compressed stream, or in a message's length is found."""
    packed = bytearray(gzip.compress(grib2(size=3000)))
    packed[-6] ^= 1  # of the checksum
    assert look(reading("noaa-mrms-pds", MRMS), bytes(packed), FULL).error_code == "GZIP_DAMAGED"
    two = bytearray(grib2() + grib2())
    two[len(two) // 2 + 15] += 1  # the second message's length
    assert look(reading("noaa-gfs-bdp-pds", GFS), bytes(two), FULL).error_code == "TRUNCATED"
    two = bytearray(grib2() + grib2())
    two[len(two) // 2 - 2] = 0  # the first message's 7777
    found = look(reading("noaa-gfs-bdp-pds", GFS), bytes(two), FULL)
    assert (found.error_code, "Message 1" in (found.error_message or "")) == ("TRUNCATED", True)


# --- ETag, size, checksums -----------------------------------------------------------


@pytest.mark.req("WAL-2")
def test_another_etag_is_a_reissue() -> None:
    """New bytes under a known key: what upstream has now is the truth, and is handed back."""
    data = grib2()
    looked = look(
        reading("noaa-gfs-bdp-pds", GFS), data, HEAD, Content(etag="0" * 32, size=5, sequencer="00AA")
    )
    assert (looked.integrity_status, looked.notes) == ("ok", ("REISSUED",))
    assert looked.content == Content(etag=hashlib.md5(data).hexdigest(), size=len(data))


def test_another_size_under_the_same_etag_fails() -> None:
    """The same ETag and another size can't both be true; both sizes are named."""
    data = grib2()
    announced = Content(etag=hashlib.md5(data).hexdigest().upper(), size=len(data) + 1)
    looked = look(reading("noaa-gfs-bdp-pds", GFS), data, HEAD, announced)
    assert looked.error_code == "SIZE_MISMATCH"
    assert f"{len(data) + 1} bytes" in (looked.error_message or "")
    assert f"Found: {len(data)}." in (looked.error_message or "")


def test_another_size_without_etag_is_suspect() -> None:
    """Without an ETag a re-issue looks like an error: suspect, with the content of upstream."""
    data = grib2()
    looked = look(reading("noaa-gfs-bdp-pds", GFS), data, HEAD, Content(size=5, sequencer="00AA"))
    assert (looked.integrity_status, looked.doubts) == ("suspect", ("SIZE_DISAGREES",))
    assert looked.content == Content(etag=hashlib.md5(data).hexdigest(), size=len(data))


def test_silence_is_filled() -> None:
    """Where the announcement told nothing, HEAD does; where it told all, nothing is handed back."""
    stat = ObjectStat(key="k", size=7, etag='W/"ABC"', version="v2")
    assert module.compare(Content(), stat).content == Content(etag="ABC", size=7, version_id="v2")
    assert module.compare(Content(etag='"abc"', size=7, version_id="v"), stat).notes == ("REISSUED",)
    assert module.compare(Content(etag="ABC", size=7, version_id="v2", sequencer="1"), stat).content is None
    # Google announces an ETag of another form than it shows: that is no re-issue.
    google = ObjectStat(key="k", size=7, etag='"0123456789abcdef0123456789abcdef"')
    verdict = module.compare(Content(etag="CJ/t9sSq0vICEAE=", size=7, sequencer="12"), google)
    assert (verdict.status, verdict.notes, verdict.content) == ("ok", (), None)


def test_missing_objects_are_worth_another_try() -> None:
    """An object that is not there fails the unit for now; whether before or between two requests."""
    read = reading("noaa-gfs-bdp-pds", GFS)
    assert look(read, None, HEAD).error_code == "OBJECT_MISSING"
    shelf = Shelf()
    shelf.put(read.object_uri, grib2())

    def gone(*_args: object) -> bytes:
        del shelf.objects[read.object_uri]
        return shelf._data(read.object_uri)

    shelf.read = gone  # type: ignore[method-assign, assignment]
    assert inspect(read, Content(), MAGIC, shelf, media_type=media_type("gfs")).error_code == "OBJECT_MISSING"


@pytest.mark.parametrize("levels", [MAGIC, FULL], ids=lambda levels: levels.integrity)
def test_replaced_while_read(levels: Levels) -> None:
    """Bytes that don't fit because the object was replaced meanwhile are no damage: it is read again."""
    read = reading("noaa-gfs-bdp-pds", GFS)
    shelf = Shelf()
    shelf.put(read.object_uri, b"GRIB but not whole" * 10)
    shelf.after_read[read.object_uri] = grib2()
    looked = inspect(read, Content(), levels, shelf, media_type=media_type("gfs"))
    assert looked.error_code == "OBJECT_CHANGED"
    assert inspect(read, Content(), levels, shelf, media_type=media_type("gfs")).integrity_status == "ok"


def test_etag_is_md5_only_where_it_is() -> None:
    """An ETag of 32 hex digits must be the MD5; one of many parts need not; a policy may know better."""
    read = reading("noaa-gfs-bdp-pds", GFS)
    shelf = Shelf()
    shelf.put(read.object_uri, grib2())
    for etag, levels, expected in (
        ('"0123456789abcdef0123456789abcdef"', FULL, "ETAG_MISMATCH"),
        ('"0123456789abcdef0123456789abcdef-7"', FULL, None),
        ('"0x8DC0FFEE"', FULL, None),
        ('"0123456789abcdef0123456789abcdef"', msgspec.structs.replace(FULL, etag_is_md5=False), None),
    ):
        shelf.etags[read.object_uri] = etag
        looked = inspect(read, Content(), levels, shelf, media_type=media_type("gfs"))
        assert looked.error_code == expected
    shelf.etags[read.object_uri] = '"0123456789abcdef0123456789abcdef"'
    message = inspect(read, Content(), FULL, shelf, media_type=media_type("gfs")).error_message or ""
    assert "0123456789abcdef0123456789abcdef" in message
    assert hashlib.md5(grib2()).hexdigest() in message


def test_declared_checksums() -> None:
    """What a manifest declares is compared, whatever its algorithm; an unknown one is said to be so."""
    read, data = reading("noaa-gfs-bdp-pds", GFS), grib2()
    for name, right in (
        ("sha256", hashlib.sha256(data).hexdigest()),
        ("SHA-1", hashlib.sha1(data).hexdigest()),
        ("md5", hashlib.md5(data).hexdigest().upper()),
        ("crc32", f"{zlib.crc32(data):08x}"),
    ):
        assert look(read, data, FULL, declared={name: right}).integrity_status == "ok"
        wrong = look(read, data, FULL, declared={name: right[:-1] + ("0" if right[-1] != "0" else "1")})
        assert wrong.error_code == "CHECKSUM_MISMATCH"
        assert right.lower() in (wrong.error_message or "")
    assert look(read, data, FULL, declared={"blake3": "00"}).notes == ("CHECKSUM_UNKNOWN",)


# --- bounds --------------------------------------------------------------------------


def test_gzip_bombs_are_bounded() -> None:
    """Many megabytes of zeros in a few kilobytes fail early, and never stand in memory together."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [grib2(), *[bytes(MIB)] * 96]
    bomb = b"".join(packer.compress(part) for part in parts) + packer.flush()
    assert len(bomb) < MIB // 4
    read = reading("noaa-mrms-pds", MRMS)
    look(read, gzip.compress(grib2()), FULL)  # imports and caches
    tracemalloc.start()
    try:
        looked = look(read, bomb, FULL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert looked.error_code == "GZIP_BOMB"
    assert peak < 4 * MIB
    small = msgspec.structs.replace(FULL, inflated_bytes_max=1000)
    assert look(read, gzip.compress(grib2(size=2000)), small).error_code == "GZIP_BOMB"


def test_members_and_padding() -> None:
    """Gzip files of several members, and padded ones, are whole; other bytes at the end are not."""
    read = reading("noaa-mrms-pds", MRMS)
    first, second = gzip.compress(grib2()), gzip.compress(grib2(size=900))
    assert look(read, first + second, FULL).integrity_status == "ok"
    assert look(read, first + bytes(512), FULL).integrity_status == "ok"
    assert look(read, first + b"else", FULL).error_code == "GZIP_DAMAGED"
    assert look(read, first + second[:-5], FULL).error_code == "TRUNCATED"


def test_streams_that_end_early_or_late() -> None:
    """Fewer or more bytes than HEAD told never pass, even if they look like a whole file."""
    read, whole = reading("noaa-gfs-bdp-pds", GFS), grib2() + grib2()
    for streamed, code in ((grib2(), "TRUNCATED"), (whole + grib2(), "SIZE_MISMATCH")):
        shelf = Shelf()
        shelf.put(read.object_uri, whole)
        shelf.etags[read.object_uri] = '"of-many-parts"'
        shelf.stream = lambda _uri, data=streamed: iter((data,))  # type: ignore[method-assign]
        looked = inspect(read, Content(), FULL, shelf, media_type=media_type("gfs"))
        assert (looked.error_code, str(len(whole)) in (looked.error_message or "")) == (code, True)


def test_too_large_for_a_download() -> None:
    """The policy's bound is kept before the first byte is asked for."""
    read, shelf = reading("noaa-gfs-bdp-pds", GFS), Shelf()
    shelf.put(read.object_uri, grib2())
    looked = inspect(read, Content(), msgspec.structs.replace(FULL, full_bytes_max=10), shelf)
    assert looked.error_code == "OBJECT_TOO_LARGE"
    assert "stream" not in shelf.asked


def test_unknown_kinds_say_so() -> None:
    """A file of which nothing is known has no first bytes to expect, and the verdict notes that."""
    for bucket, key in (
        ("noaa-ghcn-pds", "csv/by_year/2026.csv"),
        ("unidata-nexrad-level2", f"{L2}_MDM"),
        ("noaa-gfs-bdp-pds", "gfs.20260314/06/atmos/gfs.t06z.logf021.txt"),
    ):
        looked = look(reading(bucket, key), b"whatever it is", MAGIC)
        assert (looked.integrity_status, looked.notes) == ("ok", ("MAGIC_UNKNOWN",))
    packed = look(reading("noaa-ghcn-pds", "csv.gz/by_year/2026.csv.gz"), b"no gzip", MAGIC)
    assert packed.error_code == "MAGIC_MISMATCH"


def test_levels_ask_for_no_more_than_they_need() -> None:
    """Nothing; a HEAD; a HEAD and four kilobytes; a HEAD and the stream."""
    read, data = reading("noaa-goes19", GOES_KEY), hdf5(GOES_ATTRIBUTES, padding=100_000)
    asked = {}
    for level in ("announced", "head", "magic", "full"):
        shelf = Shelf()
        shelf.put(read.object_uri, data)
        inspect(read, Content(), Levels(integrity=level), shelf)  # type: ignore[arg-type]
        asked[level] = (shelf.asked, shelf.bytes_read)
    assert asked == {
        "announced": ([], 0),
        "head": (["head"], 0),
        "magic": (["head", "read"], 4096),
        "full": (["head", "stream"], 0),
    }


def test_every_code_is_known_to_the_retry_rules() -> None:
    """Each failure is listed as worth another attempt or not; a missing object is, damage is not."""
    worth = {code for code in FAILED if classify(Failure(code=code)).retryable}
    assert worth == {"OBJECT_MISSING", "OBJECT_CHANGED"}
    assert all(classify(Failure(code=code)).error_class != "unknown" for code in FAILED)
    assert not FAILED.keys() & (DOUBTS.keys() | NOTES.keys())


def test_kinds_of_all_datasets() -> None:
    """Suffix first, then the dataset: a text beside model output is not expected to be GRIB."""
    for bucket, key, expected in (
        ("noaa-hrrr-bdp-pds", "hrrr.20260314/conus/hrrr.t06z.wrfsfcf03.grib2", ("grib", None)),
        ("noaa-gfs-bdp-pds", GFS, ("grib", None)),
        ("noaa-gfs-bdp-pds", "gfs.20260314/06/atmos/gfs.t06z.atmanl.nc", ("netcdf", None)),
        ("noaa-isd-pds", "data/2026/010010-99999-2026.gz", (None, "gzip")),
        ("unidata-nexrad-level2", f"{L2}.bz2", ("nexrad-l2", "bzip2")),
    ):
        kind = kind_of(reading(bucket, key), media_type(reading(bucket, key).dataset))
        assert (kind.name, kind.packed) == expected
