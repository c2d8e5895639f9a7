"""A catalogue of some hundred items of many datasets: scans, forecasts with indexes, volumes, whole years."""

from __future__ import annotations

from kfm.model.units import Content
from kfm.nodd.catalogue.item_facts import entry
from kfm.nodd.dataset_registry import Generic, IntakePolicy, Registry, load_registry
from tests.catalogue_model import ModelCatalogue

NOW_MS = 1_704_200_000_000
REGISTRY: Registry = load_registry(IntakePolicy(generic=(Generic(dataset="mine", bucket="my-bucket"),)))
DATASETS = {dataset.name: dataset for dataset in REGISTRY.datasets}
SITES = ("KICT", "KDDC", "KTLX", "KOAX", "KXXX")  # the last one is nowhere


def keys() -> list[tuple[str, str]]:
    """(bucket, key), sidecars before and after what they describe."""
    found = []
    for hour in range(24):
        for satellite, sector in (("16", "C"), ("18", "F")):
            stamp = f"2024001{hour:02d}0117"
            name = f"OR_ABI-L2-CMIP{sector}-M6C01_G{satellite}_s{stamp}0_e{stamp}9_c{stamp}9.nc"
            found.append((f"noaa-goes{satellite}", f"ABI-L2-CMIP{sector}/2024/001/{hour:02d}/{name}"))
        forecast = f"hrrr.20240101/conus/hrrr.t{hour:02d}z.wrfsfcf06.grib2"
        pair = [("noaa-hrrr-bdp-pds", forecast), ("noaa-hrrr-bdp-pds", f"{forecast}.idx")]
        found += pair if hour % 2 else pair[::-1]
        for site in SITES:
            found.append(("unidata-nexrad-level2", f"2024/01/01/{site}/{site}20240101_{hour:02d}0123_V06"))
        found.append(("my-bucket", f"some/file {hour}?.bin"))
    found += [("noaa-ghcn-pds", f"csv/by_year/{year}.csv") for year in range(1990, 2000)]
    # A sidecar whose data never come: nothing to be seen.
    found.append(("noaa-hrrr-bdp-pds", "hrrr.20240102/conus/hrrr.t00z.wrfsfcf07.grib2.idx"))
    return found


def sample_catalogue() -> ModelCatalogue:
    model = ModelCatalogue()
    for index, (bucket, key) in enumerate(keys()):
        reading = REGISTRY.read("aws", bucket, key)
        content = Content(etag=f"e{index}", size=index)
        model.put(
            entry(reading, content, 1, None, DATASETS.get(reading.dataset)), NOW_MS + index, NOW_MS - index
        )
    return model
