"""Headers of real formats, made by the libraries that everybody uses, and of damaged ones."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.nodd.inspect import grib2 as grib2_reader
from kfm.nodd.inspect import netcdf, nexrad_header
from kfm.nodd.inspect.hdf5 import Hdf5
from kfm.nodd.inspect.header_facts import Bytes, HeaderFacts, HeaderInvalid, HeaderUnread, MemoryBytes, box
from tests.nodd_objects import GOES_ATTRIBUTES, grib2, hdf5, ms, volume
from tests.nodd_objects import netcdf3 as classic

READERS = (
    netcdf.attributes,
    grib2_reader.message,
    grib2_reader.index,
    nexrad_header.volume,
    netcdf.classic_attributes,
)


def read_safely(reader, data: bytes) -> HeaderFacts | None:
    """What a reader may do: tell facts, or one of its two errors."""
    try:
        return reader(MemoryBytes(data))
    except (HeaderInvalid, HeaderUnread):
        return None


# --- netCDF --------------------------------------------------------------------------


def test_goes_attributes() -> None:
    """Times, platform and name of a GOES file, from HDF5 and from every classic form."""
    expected = HeaderFacts(
        start_ms=ms("2026-03-14T12:01:17.500"),
        end_ms=ms("2026-03-14T12:03:54.800"),
        created_ms=ms("2026-03-14T12:04:55.100"),
        platform="GOES-19",
        file_name=str(GOES_ATTRIBUTES["dataset_name"]),
    )
    assert netcdf.attributes(MemoryBytes(hdf5(GOES_ATTRIBUTES))) == expected
    for version in (1, 2, 5):
        assert netcdf.attributes(MemoryBytes(classic(GOES_ATTRIBUTES, version=version))) == expected


BOUNDS = {
    "geospatial_lon_min": -102.05,
    "geospatial_lon_max": -94.59,
    "geospatial_lat_min": 36.99,
    "geospatial_lat_max": 40.0,
}


def test_bounds_from_attributes() -> None:
    """Bounds as the discovery convention writes them; impossible ones are left out."""
    found = netcdf.attributes(MemoryBytes(hdf5(BOUNDS))).footprint
    assert found is not None
    assert found.box == (-102.05, 36.99, -94.59, 40.0)
    for wrong in (math.nan, math.inf, -999.0, 90.5):
        assert netcdf.attributes(MemoryBytes(hdf5(BOUNDS | {"geospatial_lat_max": wrong}))).footprint is None


def test_boxes() -> None:
    """Longitudes are turned into -180…180; over the antimeridian west is greater than east."""
    assert box(0.0, -90.0, 360.0, 90.0) == (-180.0, -90.0, 180.0, 90.0)
    assert box(170.0, -10.0, 190.0, 10.0) == (170.0, -10.0, -170.0, 10.0)
    assert box(10.0, 5.0, 20.0, -5.0) is None


@pytest.mark.parametrize("form", ["NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("count", [3, 60, 700])
def test_files_of_the_netcdf_library(tmp_path: Path, form: str, count: int) -> None:
    """Whatever form the library writes, few attributes or many, its text and numbers are read."""
    library = pytest.importorskip("netCDF4")
    path = tmp_path / "made.nc"
    with library.Dataset(path, "w", format=form) as made:
        made.createDimension("x", 4)
        for number in range(count):
            made.setncattr(f"filler_{number:04d}", f"text {number}," * (1 + number % 9))
        for name, value in (GOES_ATTRIBUTES | BOUNDS).items():
            made.setncattr(name, value)
        for number in range(count // 10):
            made.createVariable(f"v{number:03d}", "f4", ("x",))
        extent = made.createVariable("geospatial_lat_lon_extent", "f4", ())
        extent.geospatial_westbound_longitude = -101.5
        extent.geospatial_eastbound_longitude = -94.5
        extent.geospatial_southbound_latitude = 37.0
        extent.geospatial_northbound_latitude = 40.0
    data = path.read_bytes()
    found = netcdf.attributes(MemoryBytes(data))
    assert (found.start_ms, found.platform) == (ms("2026-03-14T12:01:17.500"), "GOES-19")
    assert found.footprint is not None
    attributes = (
        netcdf.classic_attributes(MemoryBytes(data))
        if data[:3] == b"CDF"
        else Hdf5(MemoryBytes(data)).attributes()
    )
    with library.Dataset(path) as made:
        assert {name: made.getncattr(name) for name in made.ncattrs()} == {
            name: value for name, value in attributes.items() if not name.lower().startswith("_nc")
        }
    if form == "NETCDF4":
        assert (
            Hdf5(MemoryBytes(data)).attributes("geospatial_lat_lon_extent")["geospatial_eastbound_longitude"]
            == -94.5
        )
        assert Hdf5(MemoryBytes(data)).attributes("not_there") == {}


def test_text_of_any_length(tmp_path: Path) -> None:
    """Text that HDF5 keeps in a heap of its own is read too; numbers of every width are."""
    library = pytest.importorskip("netCDF4")
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "made.nc"
    with library.Dataset(path, "w") as made:
        made.setncattr_string("time_coverage_start", "2026-03-14T12:01:17Z")
        made.setncattr_string("empty", "")
        made.setncattr("umlaut", "Größe")
        for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
            made.setncattr(kind, numpy.array([3], dtype=kind))
        made.setncattr("minus", numpy.int16(-7))
        made.setncattr("several", numpy.array([1.5, -2.5]))
        made.setncattr("many", numpy.arange(100))
    found = Hdf5(MemoryBytes(path.read_bytes())).attributes()
    assert found["time_coverage_start"] == "2026-03-14T12:01:17Z"
    assert (found["empty"], found["umlaut"], found["minus"]) == ("", "Größe", -7)
    assert found["several"] == (1.5, -2.5)
    assert all(found[kind] == 3 for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"))
    assert "many" not in found


# --- GRIB2, NEXRAD -------------------------------------------------------------------


def test_grib2_sections() -> None:
    """Reference time, valid time and bounds of the first message; intervals end where they say."""
    found = grib2_reader.message(MemoryBytes(grib2()))
    assert found.reference_ms == ms("2026-03-14T06:00:00")
    assert (found.start_ms, found.end_ms) == (ms("2026-03-15T03:00:00"),) * 2
    assert found.footprint is not None
    assert found.footprint.box == (-180.0, -90.0, 180.0, 90.0)
    interval = grib2_reader.message(MemoryBytes(grib2(hours=18, until="2026-03-15T03:00:00")))
    assert (interval.start_ms, interval.end_ms) == (ms("2026-03-15T00:00:00"), ms("2026-03-15T03:00:00"))
    backwards = grib2_reader.message(MemoryBytes(grib2(hours=-90, unit=0)))
    assert backwards.start_ms == ms("2026-03-14T04:30:00")
    kansas = grib2_reader.message(MemoryBytes(grib2(corners=(40.0, 258.0, 37.0, 265.5), step=0.01)))
    assert kansas.footprint is not None
    assert kansas.footprint.box == (-102.0, 37.0, -94.5, 40.0)


@pytest.mark.parametrize(
    "sample", ["regular_ll_sfc_grib2", "regular_gg_pl_grib2", "polar_stereographic_sfc_grib2"]
)
def test_messages_of_eccodes(sample: str) -> None:
    """Messages of the library that weather services use are read as it reads them itself."""
    library = pytest.importorskip("eccodes")
    handle = library.codes_grib_new_from_samples(sample)
    try:
        library.codes_set(handle, "bitsPerValue", 16)
        for name, value in {
            "dataDate": 20260314,
            "dataTime": 600,
            "stepUnits": 1,
            "forecastTime": 21,
        }.items():
            library.codes_set(handle, name, value)
        data = library.codes_get_message(handle)
        if sample.startswith("regular"):
            names = ("latitudeOfFirstGridPointInDegrees", "latitudeOfLastGridPointInDegrees")
            first, last = (library.codes_get(handle, name) for name in names)
    finally:
        library.codes_release(handle)
    found = grib2_reader.message(MemoryBytes(data))
    assert (found.reference_ms, found.end_ms) == (ms("2026-03-14T06:00:00"), ms("2026-03-15T03:00:00"))
    if sample.startswith("regular"):
        assert found.footprint is not None
        assert found.footprint.box is not None
        assert found.footprint.box[1::2] == pytest.approx((min(first, last), max(first, last)), abs=1e-5)


LAMBERT = {"gridType": "lambert", "Latin1InDegrees": 38.5, "Latin2InDegrees": 38.5, "LaDInDegrees": 38.5}
LAMBERT_SOUTH = {name: value if name == "gridType" else -38.5 for name, value in LAMBERT.items()}
POLAR = {"LaDInDegrees": 60.0}
POLAR_SOUTH = {"LaDInDegrees": -60.0, "projectionCentreFlag": 128}


@pytest.mark.parametrize(
    ("grid", "central", "first", "points"),
    [
        (LAMBERT, 262.5, (21.138, 237.28), (180, 106)),
        (LAMBERT | {"Latin1InDegrees": 30.0, "Latin2InDegrees": 45.0}, 262.5, (21.138, 237.28), (90, 60)),
        (LAMBERT_SOUTH, 175.5, (-50.0, 160.0), (100, 90)),  # over the antimeridian
        (POLAR, 210.0, (40.5, 181.0), (90, 60)),
        (POLAR, 280.0, (20.0, 235.0), (200, 220)),  # around the pole
        (POLAR_SOUTH, 120.0, (-40.5, 100.0), (60, 60)),
    ],
)
def test_projected_grids(
    grid: dict, central: float, first: tuple[float, float], points: tuple[int, int]
) -> None:
    """No point of a projected grid is outside its box, and the box is no larger than it must be."""
    library = pytest.importorskip("eccodes")
    sample = "GRIB2" if "gridType" in grid else "polar_stereographic_sfc_grib2"
    lov = "LoVInDegrees" if "gridType" in grid else "orientationOfTheGridInDegrees"
    handle = library.codes_grib_new_from_samples(sample)
    try:
        for name, value in {
            "gridType": grid.get("gridType", "polar_stereographic"),
            "shapeOfTheEarth": 6,
            "Nx": points[0],
            "Ny": points[1],
            "DxInMetres": 40_000,
            "DyInMetres": 40_000,
            "latitudeOfFirstGridPointInDegrees": first[0],
            "longitudeOfFirstGridPointInDegrees": first[1],
            lov: central,
            "jScansPositively": 1,
            **grid,
        }.items():
            library.codes_set(handle, name, value)
        library.codes_set_values(handle, [0.0] * (points[0] * points[1]))
        library.codes_set(handle, "bitsPerValue", 8)
        latitudes, longitudes = (
            library.codes_get_array(handle, name) for name in ("latitudes", "longitudes")
        )
        found = grib2_reader.message(MemoryBytes(library.codes_get_message(handle))).footprint
    finally:
        library.codes_release(handle)
    assert found is not None
    assert found.box is not None
    west, south, east, north = found.box
    assert south <= latitudes.min() <= south + 0.011
    turned = (longitudes - west) % 360.0
    if (west, east) == (-180.0, 180.0):
        assert (north, latitudes.max() > 89.0) == (90.0, True)
        return
    assert north - 0.011 <= latitudes.max() <= north
    assert turned.min() <= 0.011
    assert (east - west) % 360.0 - 0.011 <= turned.max() <= (east - west) % 360.0 + 1e-9


def test_index_lines() -> None:
    """The first line of an index: reference time and what the field is valid for."""
    for when, first, last in (
        ("21 hour fcst", 21, 21),
        ("anl", 0, 0),
        ("0-6 hour acc fcst", 0, 6),
        ("20-21 hour max fcst", 20, 21),
        ("2 day fcst", 48, 48),
    ):
        found = grib2_reader.index(
            MemoryBytes(f"1:0:d=2026031406:PRMSL:mean sea level:{when}:\n2:9:d=x".encode())
        )
        start = ms("2026-03-14T06:00:00")
        assert (found.reference_ms, found.start_ms) == (start, start + first * 3_600_000)
        assert found.end_ms == start + last * 3_600_000
    for wrong in (b"", b"<html>", b"1:0:d=2026133106:PRMSL:x:anl:"):
        with pytest.raises(HeaderInvalid):
            grib2_reader.index(MemoryBytes(wrong))


def test_volume_headers() -> None:
    """Day 1 is the first of 1970; volumes of the first years have no site; no other day or site passes."""
    found = nexrad_header.volume(MemoryBytes(volume()))
    assert (found.start_ms, found.platform) == (ms("2026-03-14T12:34:56.250"), "KTWX")
    assert nexrad_header.volume(MemoryBytes(b"ARCHIVE2.001" + volume(site="    ")[12:])).platform is None
    good = volume()
    for start, end, bad in (
        (0, 4, b"AR3V"),
        (12, 16, b"\0\0\0\0"),
        (12, 16, b"\xff\0\0\0"),
        (16, 20, b"\xff\0\0\0"),
        (20, 24, b"k\xffW\n"),
    ):
        with pytest.raises(HeaderInvalid):
            nexrad_header.volume(MemoryBytes(good[:start] + bad + good[end:]))


# --- hostile -------------------------------------------------------------------------

SEEDS = (
    hdf5(GOES_ATTRIBUTES),
    classic(GOES_ATTRIBUTES),
    grib2(),
    grib2(hours=1, until="2026-03-15T03:00:00"),
    volume(),
)


@given(
    st.binary(max_size=400),
    st.sampled_from((b"", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"GRIB\0\0\0\x02", b"AR2V0006.")),
)
@settings(max_examples=300)
def test_random_bytes_never_crash_a_reader(data: bytes, start: bytes) -> None:
    """Whatever the bytes: facts or a clear refusal, nothing else."""
    for reader in READERS:
        read_safely(reader, start + data)


@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=6))
@settings(max_examples=600)
def test_damaged_headers_never_crash_a_reader(seed: bytes, changes: list[tuple[int, int]]) -> None:
    """The same of valid headers with a few bytes changed, where lengths and addresses are."""
    data = bytearray(seed)
    for at, value in changes:
        data[at % len(data)] = value
    for reader in READERS:
        read_safely(reader, bytes(data))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    library = pytest.importorskip("netCDF4")
    path = tmp_path_factory.mktemp("dense") / "made.nc"
    with library.Dataset(path, "w") as made:
        for number in range(200):
            made.setncattr(f"filler_{number}", f"text {number}")
        made.setncattr_string("time_coverage_start", "2026-03-14T12:01:17Z")
        made.setncattr("platform_ID", "G19")
        for number in range(20):
            made.createVariable(f"v{number}", "f4", ())
    return path.read_bytes()


def test_every_damaged_byte_of_a_dense_file(dense: bytes) -> None:
    """Heaps, trees and tables with wrong bytes, one at a time: a refusal at most, and soon."""
    assert read_safely(netcdf.attributes, dense) is not None
    used = [at for at in range(len(dense)) if dense[at]][:: max(1, len(dense) // 300)]
    for at in used:
        for value in (0, 0xFF, dense[at] ^ 1):
            read_safely(netcdf.attributes, dense[:at] + bytes([value]) + dense[at + 1 :])


def test_headers_in_circles() -> None:
    """An object header that continues where it began ends with a refusal."""
    data = bytearray(hdf5({"a": "b"}, padding=64))
    at = data.find(b"OHDR") + 10
    body = (48 + 6).to_bytes(8, "little") + (64).to_bytes(8, "little")
    data[at : at + 4 + len(body)] = bytes([0x10, 16, 0, 0]) + body
    with pytest.raises(HeaderInvalid):
        Hdf5(MemoryBytes(bytes(data))).attributes()
    with pytest.raises(HeaderUnread):
        _read_on(MemoryBytes(b"0" * 10, steps_max=3))


def _read_on(file: Bytes) -> None:
    for _ in range(10):
        file.at(0, 1)
