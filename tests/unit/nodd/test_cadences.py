"""Cadences that come with datasets: each fits what the dataset's own grammar reads from keys."""

from __future__ import annotations

import pytest

from kfm.model.feeds import HOUR_MS, FeedProduct
from kfm.nodd.dataset_registry import Registry, built_in, load_registry, shipped_feed

REGISTRY = Registry(built_in())
SCAN = "s20263210101170_e20263210101199_c20263210101210"
KEYS = [
    ("noaa-goes19", f"OR_ABI-L1b-RadC-M6C03_G19_{SCAN}.nc", 192),
    ("noaa-goes19", f"OR_ABI-L2-CMIPM1-M6C13_G19_{SCAN}.nc", 960),
    ("noaa-goes19", f"OR_ABI-L2-MCMIPF-M6_G19_{SCAN}.nc", 6),
    ("noaa-goes19", f"OR_ABI-L2-ACHAC-M6_G19_{SCAN}.nc", None),
    ("noaa-goes19", f"OR_GLM-L2-LCFA_G19_{SCAN}.nc", 180),
    ("unidata-nexrad-level2", "2026/11/17/KICT/KICT20261117_010117_V06", 5),
    ("unidata-nexrad-level3", "ICT_N0B_2026_11_17_01_01_17", 5),
    ("noaa-hrrr-bdp-pds", "hrrr.20261117/conus/hrrr.t01z.wrfsfcf18.grib2", 19),
    ("noaa-hrrr-bdp-pds", "hrrr.20261117/conus/hrrr.t06z.wrfsfcf18.grib2", 49),
    ("noaa-hrrr-bdp-pds", "hrrr.20261117/conus/hrrr.t06z.wrfsubhf18.grib2", 19),
    ("noaa-hrrr-bdp-pds", "hrrr.20261117/alaska/hrrr.t06z.wrfsfcf18.ak.grib2", None),
    ("noaa-gfs-bdp-pds", "gfs.20261117/06/atmos/gfs.t06z.pgrb2.0p25.f003", 209),
    ("noaa-gfs-bdp-pds", "gfs.20261117/06/atmos/gfs.t06z.pgrb2.1p00.f003", 129),
    ("noaa-mrms-pds", "CONUS/PrecipRate_00.00/20261117/MRMS_PrecipRate_00.00_20261117-010000.grib2.gz", 28),
    (
        "noaa-mrms-pds",
        "CONUS/MultiSensor_QPE_24H_Pass2_00.00/20261117/"
        "MRMS_MultiSensor_QPE_24H_Pass2_00.00_20261117-010000.grib2.gz",
        1,
    ),
    ("noaa-nwm-pds", "nwm.20261117/short_range/nwm.t01z.short_range.land.f001.conus.nc", 18),
    ("noaa-nwm-pds", "nwm.20261117/analysis_assim/nwm.t01z.analysis_assim.channel_rt.tm00.conus.nc", 3),
    ("noaa-rap-pds", "rap.20261117/rap.t01z.awp130pgrbf00.grib2", 22),
    ("noaa-nam-pds", "nam.20261117/nam.t06z.awphys06.tm00.grib2", 53),
    ("noaa-nam-pds", "nam.20261117/nam.t06z.conusnest.hiresf06.tm00.grib2", 61),
    ("noaa-rtma-pds", "rtma2p5.20261117/rtma2p5.t01z.2dvaranl_ndfd.grb2_wexp", 1),
    ("noaa-rtma-pds", "rtma2p5_ru.20261117/rtma2p5_ru.t0115z.2dvaranl_ndfd.grb2", 4),
    ("noaa-urma-pds", "urma2p5.20261117/urma2p5.t01z.2dvaranl_ndfd.grb2_wexp", 1),
]


@pytest.mark.req("DAT-2")
@pytest.mark.parametrize(
    ("bucket", "key", "per_hour"), KEYS, ids=[key.rpartition("/")[2][:40] for _, key, _ in KEYS]
)
def test_a_key_has_the_cadence_of_its_product(bucket: str, key: str, per_hour: int | None) -> None:
    """By the product and platform that its grammar reads, in the hour of its data; none where none is
    declared."""
    reading = REGISTRY.read("aws", bucket, key)
    assert reading.product is not None
    known = shipped_feed(reading.dataset).cadences
    row = FeedProduct(
        dataset=reading.dataset,
        product=reading.product,
        platform=reading.platform,
        since_ms=0,
        cadences=tuple(one for one in known if one.fits(reading.product, reading.platform)),
    )
    data_ms = reading.reference_time_ms or reading.time_range_start_ms
    assert data_ms is not None
    cadence = row.cadence_at(data_ms // HOUR_MS * HOUR_MS)
    assert (None if cadence is None else cadence.per_hour) == per_hour


@pytest.mark.req("DAT-2")
def test_each_shipped_cadence_is_tried_by_a_key() -> None:
    """One that no key fits would promise what nothing can keep."""
    tried = []
    for bucket, key, _ in KEYS:
        reading = REGISTRY.read("aws", bucket, key)
        known = shipped_feed(reading.dataset).cadences
        tried += [
            (reading.dataset, one) for one in known if one.fits(reading.product or "", reading.platform)
        ]
    datasets = {dataset.name for dataset in load_registry().datasets if dataset.cadences}
    assert {name for name, _ in tried} == datasets
    for dataset in built_in():
        for cadence in dataset.cadences:
            assert cadence.per_hour >= 1
            assert cadence.latency_ms > 0
            assert all(0 <= hour <= 23 for hour in cadence.hours)
