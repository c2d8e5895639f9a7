"""Keys and what they tell: one made-up key or more for each rule of each dataset."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from kfm.model.units import canonical_object_uri, wal_id
from kfm.nodd.dataset_registry import Generic, IntakePolicy, Registry, built_in, load_registry
from kfm.nodd.grammar import Dataset, Place, Rule, read
from kfm.nodd.messages.record_outcomes import Arrival, RefusedRecord, line, parse_key
from kfm.nodd.object_keys import quoted_uri
from kfm.nodd.patterns import Fields, Pattern, Template
from kfm.nodd.spans import Span, unknown, whole_year

NOW_MS = 4_102_444_800_000  # 2100
CASES = json.loads((Path(__file__).parent / "keys.json").read_text(encoding="utf-8"))
REGISTRY = load_registry()
GLM = "OR_GLM-L2-LCFA_{}_s{}_e{}_c20240010000220.nc"


@pytest.mark.req("WAL-2", "WAL-20")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['bucket']}/{case['key'][-40:]}")
def test_key_tells_what_is_pinned(case: dict[str, object]) -> None:
    """What a key tells, its item and its unit's id never change by themselves: the file is the promise.

    A changed `wal_id` would make a second unit of every object. If times are corrected, the former
    function stays in the rule as `frozen`.
    """
    outcome = parse_key(str(case["bucket"]), str(case["key"]), REGISTRY, NOW_MS)
    assert json.loads(msgspec.json.encode(line(outcome))) == case["expected"]


@pytest.mark.req("WAL-2")
def test_every_rule_has_a_pinned_key() -> None:
    """No rule can be changed without a pinned key that would notice."""
    used: set[tuple[str, int]] = set()
    for case in CASES:
        for dataset in built_in():
            key = case["key"].removesuffix(".idx")
            if case["expected"].get("dataset") == dataset.name:
                numbers = [n for n, rule in enumerate(dataset.rules) if rule.pattern.match(key) is not None]
                used.add((dataset.name, numbers[0]))
    assert used == {(dataset.name, n) for dataset in built_in() for n in range(len(dataset.rules))}


@pytest.mark.req("WAL-2")
def test_parser_fix_makes_no_second_unit() -> None:
    """A rule whose times are corrected keeps its units' ids with the function that it had before."""

    def before(fields: Fields) -> int | None:
        return whole_year(fields).start_ms

    rule = Rule(pattern=Pattern("{year:yyyy}.csv"), product=Template("table"), times=whole_year)
    fixed = msgspec.structs.replace(rule, times=unknown, frozen=before)
    ids = set()
    for each in (rule, fixed):
        dataset = _dataset(each)
        reading = read(dataset, dataset.places[0], "1990.csv")
        assert reading is not None
        ids.add(reading.wal_id)
    assert len(ids) == 1


@pytest.mark.req("WAL-2")
def test_unit_id_follows_from_dataset_address_and_start() -> None:
    """The id is that of the ledger's rule; a key with `?`, `#` or `%` keeps all of it."""
    policy = IntakePolicy(generic=(Generic(dataset="mine", bucket="my-bucket"),))
    registry = load_registry(policy)
    ids = set()
    for key in ("a?b", "a?c", "a#b", "a", "a%41", "aA"):
        outcome = parse_key("my-bucket", key, registry, NOW_MS)
        assert isinstance(outcome, Arrival)
        assert outcome.reading.object_uri == f"s3://my-bucket/{key}"
        assert canonical_object_uri(quoted_uri("aws", "my-bucket", key)) == outcome.reading.object_uri
        assert outcome.reading.wal_id == wal_id("mine", quoted_uri("aws", "my-bucket", key), None)
        assert outcome.reading.wal_id.startswith("0000000000000-")
        ids.add(outcome.reading.wal_id)
    assert len(ids) == 6


@pytest.mark.req("WAL-20")
def test_sidecar_is_an_asset_of_its_item() -> None:
    """An index is a unit of its own and belongs to the item of the file that it describes."""
    data, index = (
        parse_key(
            "noaa-hrrr-bdp-pds", f"hrrr.20260101/conus/hrrr.t00z.wrfsfcf01.grib2{end}", REGISTRY, NOW_MS
        )
        for end in ("", ".idx")
    )
    assert isinstance(data, Arrival)
    assert isinstance(index, Arrival)
    assert index.reading.stac_item_id == data.reading.stac_item_id
    assert index.reading.wal_id != data.reading.wal_id
    assert (data.reading.asset, index.reading.asset) == ("data", "index")
    assert index.reading.data_uri == data.reading.object_uri


@pytest.mark.parametrize(
    ("bucket", "key", "code"),
    [
        ("no-such-bucket", "a.nc", "BUCKET_UNKNOWN"),
        ("noaa-goes16", "robots.txt", "KEY_UNKNOWN"),
        ("noaa-goes16", "a" * 1025, "KEY_TOO_LONG"),
        ("noaa-goes16", "", "RECORD_INVALID"),
        ("no bucket", "a", "RECORD_INVALID"),
        ("noaa-goes16", "../up.nc", "KEY_UNSAFE"),
        ("noaa-goes16", "a/./b", "KEY_UNSAFE"),
        ("noaa-goes16", "C:\\x.nc", "KEY_UNSAFE"),
        ("noaa-goes16", "a\u2066b", "KEY_UNSAFE"),
        ("noaa-goes16", GLM.format("G17", "20240010000000", "20240010000200"), "PLATFORM_MISMATCH"),
        ("noaa-goes16", GLM.format("G42", "20240010000000", "20240010000200"), "PLATFORM_UNKNOWN"),
        ("noaa-goes16", GLM.format("G16", "20233660000000", "20233660000200"), "TIME_INVALID"),
        ("noaa-goes16", GLM.format("G16", "20240010000200", "20240010000000"), "TIME_ORDER"),
        ("noaa-hrrr-bdp-pds", "hrrr.20240101/conus/hrrr.t24z.wrfsfcf00.grib2", "TIME_INVALID"),
        ("noaa-hrrr-bdp-pds", "hrrr.99991231/conus/hrrr.t23z.wrfsfcf18.grib2", "TIME_INVALID"),
        ("unidata-nexrad-level3", "TWX_N0S_2024_13_01_00_00_00", "TIME_INVALID"),
        ("noaa-nesdis-n21-pds", "SVM05_j02_d20100309_t2359125_e0000371_b1_c2_oeac_ops.h5", "TIME_INVALID"),
        ("unidata-nexrad-level2-chunks", "KGLD/0/20260105-101112-014-E", "KEY_UNKNOWN"),
    ],
)  # fmt: skip
def test_bad_keys_are_refused(bucket: str, key: str, code: str) -> None:
    """What can't be a key of the bucket, or names a time that can't be, is refused with its code."""
    outcome = parse_key(bucket, key, REGISTRY, NOW_MS)
    assert isinstance(outcome, RefusedRecord)
    assert outcome.error_code == code
    assert len(key) < 20 or key not in outcome.error


def test_key_of_a_file_alone_tells_as_much_as_it_can() -> None:
    """Without its folder a model's file has no date: the forecast hour remains."""
    outcome = parse_key("noaa-hrrr-bdp-pds", "hrrr.t06z.wrfsfcf03.grib2", REGISTRY, NOW_MS)
    assert isinstance(outcome, Arrival)
    reading = outcome.reading
    assert (reading.forecast_hour, reading.reference_time_ms, reading.time_range_start_ms) == (3, None, None)


def test_dates_far_ahead_are_suspect() -> None:
    """An object that says it was made in the future is taken in, with a doubt; a forecast for it is fine."""
    now_ms = 1_700_000_000_000  # 2023-11-14
    late = parse_key("unidata-nexrad-level3", "TWX_N0S_2023_11_16_12_00_00", REGISTRY, now_ms)
    forecast = parse_key(
        "noaa-gfs-bdp-pds", "gfs.20231114/12/atmos/gfs.t12z.pgrb2.0p25.f384", REGISTRY, now_ms
    )
    assert isinstance(late, Arrival)
    assert isinstance(forecast, Arrival)
    assert late.reading.suspect == ("TIME_FUTURE",)
    assert forecast.reading.suspect == ()


@pytest.mark.req("RS-13")
def test_lines_hold_no_coordinates() -> None:
    """Where data lie is known for items of the catalogue, and stays out of operational lines."""
    outcome = parse_key("unidata-nexrad-level2", "2024/01/01/KTLX/KTLX20240101_000000_V06", REGISTRY, NOW_MS)
    assert isinstance(outcome, Arrival)
    assert outcome.reading.footprint is not None
    assert "35.33" not in msgspec.json.encode(line(outcome)).decode()


def test_footprints_are_claimed_only_where_known() -> None:
    """Sectors that move, sites that are not listed and satellites out of their slot have no geometry."""
    keys = {
        ("noaa-goes16", "OR_ABI-L2-CMIPF-M6C02_G16_s20200010000000_e20200010009000_c20200010009100.nc"): True,
        (
            "noaa-goes16",
            "OR_ABI-L2-CMIPM1-M6C02_G16_s20200010000000_e20200010000100_c20200010009100.nc",
        ): False,
        (
            "noaa-goes16",
            "OR_ABI-L2-CMIPF-M3C02_G16_s20170100000000_e20170100009000_c20170100009100.nc",
        ): False,
        ("unidata-nexrad-level3", "TWX_N0S_2024_12_31_23_59_59"): True,
        ("unidata-nexrad-level3", "ZZZ_N0S_2024_12_31_23_59_59"): False,
    }
    for (bucket, key), known in keys.items():
        outcome = parse_key(bucket, key, REGISTRY, NOW_MS)
        assert isinstance(outcome, Arrival), key
        assert (outcome.reading.footprint is not None) is known, key


def _dataset(rule: Rule) -> Dataset:
    return Dataset(name="mine", title="Mine", places=(Place(bucket="my-bucket"),), topics=(), rules=(rule,))


def _nothing(_fields: Fields) -> Span:
    return Span()


def test_two_datasets_that_claim_one_key_are_told() -> None:
    """The dataset of an object is never guessed."""
    rule = Rule(pattern=Pattern("{name:name}"), product=Template("{name}"), times=_nothing)
    one, other = _dataset(rule), msgspec.structs.replace(_dataset(rule), name="yours")
    outcome = parse_key("my-bucket", "x", Registry((one, other)), NOW_MS)
    assert isinstance(outcome, RefusedRecord)
    assert outcome.error_code == "KEY_AMBIGUOUS"
