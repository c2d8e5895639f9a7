"""What the catalogue is told of an object."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kfm.model.catalogue import CatalogueEntry
from kfm.model.units import Content
from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.catalogue.item_facts import entry
from kfm.nodd.dataset_registry import Generic, IntakePolicy, load_registry
from kfm.nodd.inspect.inspection import InspectionResult

REGISTRY = load_registry(IntakePolicy(generic=(Generic(dataset="mine", bucket="my-bucket"),)))
DATASETS = {dataset.name: dataset for dataset in REGISTRY.datasets}
SCAN = "OR_ABI-L1b-RadF-M6C01_G18_s20240010001170_e20240010003543_c20240010003576.nc"
GOES = ("noaa-goes18", f"ABI-L1b-RadF/2024/001/00/{SCAN}")
HRRR = ("noaa-hrrr-bdp-pds", "hrrr.20240101/conus/hrrr.t00z.wrfsfcf06.grib2")
RADAR = ("unidata-nexrad-level2", "2024/01/01/KICT/KICT20240101_000123_V06")


def told(bucket: str, key: str, looked: Any = None, content: Content = Content()) -> CatalogueEntry:  # noqa: B008
    reading = REGISTRY.read("aws", bucket, key)
    return entry(reading, content, 1, looked, DATASETS.get(reading.dataset))


def properties(made: CatalogueEntry) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(made.properties)
    return found


def test_a_scan_is_a_range_with_its_sector() -> None:
    """Start, end, time of making, level, platform and the sector, cut where it crosses the antimeridian."""
    made = told(*GOES, content=Content(etag="e", size=7))
    assert (made.start_ms, made.end_ms, made.at_ms) == (1704067277000, 1704067434300, 1704067277000)
    assert properties(made) == {
        "kfm:dataset": "goes-abi",
        "kfm:geometry_basis": "sector F as seen from GOES-west",
        "kfm:product": "ABI-L1b-RadF",
        "license": "CC0-1.0",
        "platform": "GOES-18",
        "processing:datetime": "2024-01-01T00:03:57.600Z",
        "processing:level": "L1B",
    }
    assert made.bbox == (141.7005, -81.3282, -55.7005, 81.3282)
    geometry = msgspec.json.decode(made.geometry or "null")
    assert geometry["type"] == "MultiPolygon"
    assert [(part[0][0][0], part[0][1][0]) for part in geometry["coordinates"]] == [
        (141.7005, 180.0),
        (-180.0, -55.7005),
    ]
    assert made.asset.media_type == "application/netcdf"
    assert (made.asset.etag, made.asset.size, made.asset.href) == ("e", 7, f"s3://{GOES[0]}/{GOES[1]}")


def test_a_forecast_tells_its_cycle_and_its_horizon() -> None:
    """A forecast's time is the time that it is valid for; its cycle is the forecast extension's."""
    made = told(*HRRR)
    assert made.at_ms == made.start_ms == made.end_ms == 1704088800000
    assert properties(made)["forecast:reference_datetime"] == "2024-01-01T00:00:00Z"
    assert properties(made)["forecast:horizon"] == "PT6H"


def test_a_horizon_without_a_cycle_is_no_horizon() -> None:
    """A key without folders does not tell the day: the hour is kept, the extension is not used."""
    made = told("noaa-hrrr-bdp-pds", "hrrr.t00z.wrfsfcf06.grib2")
    assert properties(made)["kfm:forecast_hour"] == 6
    assert not [name for name in properties(made) if name.startswith("forecast:")]
    assert made.at_ms is None


@pytest.mark.parametrize(
    ("bucket", "key"), [HRRR, ("noaa-gfs-bdp-pds", "gfs.20240101/00/a/x.t00z.pgrb2.f003")]
)
def test_a_sidecar_says_of_its_item_what_the_data_say(bucket: str, key: str) -> None:
    """Whichever comes first makes the same item, also where the sidecar was inspected."""
    looked = InspectionResult(
        integrity_status="ok", metadata_status="ok", checksum="sha256:" + "a" * 64, doubts=("NO_MAGIC",)
    )
    data, index = told(bucket, key), told(bucket, f"{key}.idx", looked)
    assert index.asset.role == "index"
    assert index.asset.checksum is not None
    assert msgspec.structs.replace(index, asset=data.asset) == data


def test_doubts_about_a_message_are_none_about_the_data() -> None:
    """A folder that disagrees is the item's; a strange event time is not."""
    astray = REGISTRY.read("aws", GOES[0], f"ABI-L1b-RadF/2023/001/00/{SCAN}")
    assert astray.suspect == ("FOLDER_DISAGREES",)
    doubted = msgspec.structs.replace(astray, suspect=("EVENT_TIME_FUTURE", *astray.suspect))
    made = entry(doubted, Content(), 1, None, None)
    assert properties(made)["kfm:suspect"] == ["FOLDER_DISAGREES"]
    only = msgspec.structs.replace(astray, suspect=("EVENT_TIME_FUTURE",))
    assert "kfm:suspect" not in properties(entry(only, Content(), 1, None, None))


def test_a_header_speaks_where_the_key_is_silent() -> None:
    """The end of a volume comes from its header; what the key tells stays, and both sides of a quarrel."""
    looked = InspectionResult(
        integrity_status="ok",
        metadata_status="suspect",
        doubts=("HEADER_DISAGREES",),
        checksum="sha256:" + "b" * 64,
        disagrees={"start": {"key": 1, "header": 2}},
        start_ms=1,
        end_ms=1704067283000 + 300_000,
        platform="elsewhere",
        footprint=Footprint(basis="the volume header", point=(1.0, 2.0)),
    )
    made = told(*RADAR, looked=looked)
    assert (made.start_ms, made.end_ms) == (1704067283000, 1704067583000)
    assert made.bbox == (-97.44, 37.65, -97.44, 37.65)
    assert properties(made)["platform"] == "KICT"
    assert properties(made)["kfm:disagrees"] == {"start": {"key": 1, "header": 2}}
    assert properties(made)["kfm:suspect"] == ["HEADER_DISAGREES"]
    assert made.asset.checksum == "sha256:" + "b" * 64


def test_a_header_that_ends_before_the_key_begins_makes_no_range() -> None:
    """Two sources of one range may contradict each other: then there is a start and no end."""
    looked = InspectionResult(integrity_status="ok", metadata_status="ok", end_ms=1)
    assert told(*RADAR, looked=looked).end_ms is None


def test_of_a_generic_object_nothing_is_made_up() -> None:
    """No product, no place, no licence, no time."""
    made = told("my-bucket", "a file?.bin")
    assert properties(made) == {"kfm:dataset": "mine"}
    assert (made.bbox, made.geometry, made.at_ms) == (None, None, None)
    assert made.asset.href == "s3://my-bucket/a%20file%3F.bin"
    assert made.asset.media_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("key", "media_type"),
    [
        ("gfs.20240101/00/atmos/gfs.t00z.pgrb2.0p25.f003", "application/wmo-GRIB2"),
        ("gfs.20240101/00/atmos/gfs.t00z.pgrb2.0p25.f003.idx", "text/plain"),
        ("gfs.20240101/00/atmos/gfs.t00z.atmanl.nc", "application/netcdf"),
    ],
)
def test_the_end_of_a_name_tells_its_type(key: str, media_type: str) -> None:
    """A known ending decides; otherwise the dataset's own type holds."""
    assert told("noaa-gfs-bdp-pds", key).asset.media_type == media_type


def test_an_analysis_of_the_past_has_no_horizon() -> None:
    """`tm02` is two hours before its cycle: no ISO duration says that."""
    made = told(
        "noaa-nwm-pds", "nwm.20240101/analysis_assim/nwm.t05z.analysis_assim.channel_rt.tm02.conus.nc"
    )
    assert properties(made)["kfm:forecast_hour"] == -2
    assert properties(made)["forecast:reference_datetime"] == "2024-01-01T05:00:00Z"
    assert "forecast:horizon" not in properties(made)
