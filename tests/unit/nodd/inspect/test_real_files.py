"""Real files, where a collection of them is configured. It is no part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kfm.model.units import Content
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.inspect.inspection import inspect
from kfm.nodd.inspect.verdicts import Levels
from kfm.nodd.messages.record_outcomes import Arrival, parse_key
from tests.nodd_objects import Shelf

FOLDER = (
    Path(os.environ.get("KFM_NODD_CASES") or Path(__file__).resolve().parents[5] / "shared/data/nodd")
    / "real"
)
REGISTRY = load_registry()
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no collection of real files (KFM_NODD_CASES)")

# file → bucket and key under which it was, or would have been, announced
FILES = {
    "OR_ABI-L2-LSTM2-M6_G16_s20211381700538_e20211381700595_c20211381701211.nc": ("noaa-goes16", None),
    "OR_GLM-L2-LCFA_G16_s20203662359400_e20210010000004_c20210010000030.nc": ("noaa-goes16", None),
    "OR_GLM-L2-LCFA_G17_s20200160612000_e20200160612110_c20200160612335.nc": ("noaa-goes17", None),
    "CARIB__MRMS_MultiSensor_QPE_24H_Pass2_00.00_20220602-030000.grib2.gz": (
        "noaa-mrms-pds",
        "CARIB/MultiSensor_QPE_24H_Pass2_00.00/20220602/MRMS_MultiSensor_QPE_24H_Pass2_00.00_20220602-030000.grib2.gz",
    ),
    "GUAM__MRMS_MultiSensor_QPE_01H_Pass1_00.00_20220601-120000.grib2.gz": (
        "noaa-mrms-pds",
        "GUAM/MultiSensor_QPE_01H_Pass1_00.00/20220601/MRMS_MultiSensor_QPE_01H_Pass1_00.00_20220601-120000.grib2.gz",
    ),
    "KLTX20050329_100015.gz": ("unidata-nexrad-level2", None),
    "KLOT19950413_132143.gz": ("unidata-nexrad-level2", None),
    "KDMX20250101_225441_V06": ("unidata-nexrad-level2", None),
    "example_nexrad_archive_msg31_compressed.ar2v": ("unidata-nexrad-level2", "KATX20130717_195024_V06"),
    "Level2_KLBB_single_chunk": ("unidata-nexrad-level2-chunks", "KLBB/12/20220101-000000-005-I"),
    "KDDC_N0Q_20200817_0501.nids": ("unidata-nexrad-level3", "DDC_N0Q_2020_08_17_05_01_00"),
    "hrrr.wrfsubhf.sample.grib2": (
        "noaa-hrrr-bdp-pds",
        "hrrr.20221014/conus/hrrr.t01z.wrfsubhf01.grib2",
    ),
    "20221014__gfs.t06z.pgrb2.0p25.f021.idx": (
        "noaa-gfs-bdp-pds",
        "gfs.20221014/06/atmos/gfs.t06z.pgrb2.0p25.f021.idx",
    ),
    "hrrr.t00z.wrfsfcf24.grib2.idx": (
        "noaa-hrrr-bdp-pds",
        "hrrr.20250801/conus/hrrr.t00z.wrfsfcf24.grib2.idx",
    ),
}
HEADERLESS = ("Level2_KLBB_single_chunk", "KDDC_N0Q_20200817_0501.nids")
ENDLESS = ("KDDC_N0Q_20200817_0501.nids",)  # nothing in them tells where they end; nor does text


@pytest.mark.parametrize("name", FILES)
def test_real_files(name: str) -> None:
    """A real file is whole and agrees with its key; without its end it is not whole."""
    bucket, key = FILES[name]
    outcome = parse_key(bucket, key or name, REGISTRY, 1_798_761_600_000)
    assert isinstance(outcome, Arrival)
    reading = outcome.reading
    dataset = REGISTRY.find(reading.dataset)
    assert dataset is not None
    data, shelf = (FOLDER / name).read_bytes(), Shelf()
    shelf.put(reading.object_uri, data)
    for level in ("head", "magic", "full"):
        levels = Levels(integrity=level, metadata="header")  # type: ignore[arg-type]
        looked = inspect(reading, Content(), levels, shelf, media_type=dataset.media_type)
        expected = "unknown" if name in HEADERLESS else "ok"
        assert (looked.integrity_status, looked.metadata_status, looked.disagrees) == ("ok", expected, {})
        assert (looked.doubts, looked.error_code) == ((), None)
    if name in ENDLESS or name.endswith(".idx"):
        return
    for cut in (len(data) - 1, len(data) * 2 // 3):
        shelf.put(reading.object_uri, data[:cut])
        looked = inspect(reading, Content(), Levels(integrity="full"), shelf, media_type=dataset.media_type)
        assert looked.error_code == "TRUNCATED", cut
