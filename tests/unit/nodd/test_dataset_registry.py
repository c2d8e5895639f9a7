"""Datasets of plugins, conflicts, and what a policy adds."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model.errors import ConfigError, PluginConflict, UsageError
from kfm.nodd.dataset_registry import (
    BUILT_IN,
    GROUP,
    Generic,
    IntakePolicy,
    Registry,
    built_in,
    load_registry,
)
from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.messages.record_outcomes import Arrival, RefusedRecord, parse_key
from kfm.nodd.patterns import Pattern, Template
from kfm.nodd.spans import whole_year

NOW_MS = 4_102_444_800_000
TIDES = Dataset(
    name="tides",
    title="Tide gauges",
    places=(Place(bucket="tides-bucket"),),
    topics=("arn:aws:sns:us-east-1:123456789012:NewTide",),
    rules=(
        Rule(
            pattern=Pattern("{gauge:word}/{year:yyyy}.csv"),
            product=Template("gauge"),
            platform=Template("{gauge}"),
            times=whole_year,
        ),
    ),
)


def make_tides() -> Dataset:
    return TIDES


class Point:
    """An entry point as importlib shows it."""

    def __init__(self, name: str, made: Any, owner: str = "tides-plugin") -> None:
        self.name, self.made, self.value = name, made, f"{owner}:{name}"
        self.dist = type("Dist", (), {"name": owner})()

    def load(self) -> Any:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(*points: Point) -> None:
        monkeypatch.setattr(metadata, "entry_points", lambda group: list(points) if group == GROUP else [])

    return install


@pytest.mark.parametrize("made", [TIDES, make_tides])
def test_plugin_adds_a_dataset(made: Any, install: Any) -> None:
    """A dataset in one file, by an entry point: its keys are read, its topic may speak."""
    install(Point("tides", made))
    registry = load_registry()
    outcome = parse_key("tides-bucket", "gauge-1/1999.csv", registry, NOW_MS)
    assert isinstance(outcome, Arrival)
    assert (outcome.reading.dataset, outcome.reading.platform) == ("tides", "gauge-1")
    assert TIDES.topics[0] in registry.topics


def test_two_datasets_of_one_name_are_an_error(install: Any) -> None:
    """Both owners are named, also where one of them is kfm."""
    other = msgspec.structs.replace(TIDES, title="Other")
    install(Point("tides", TIDES, "one"), Point("tides", other, "two"))
    with pytest.raises(PluginConflict, match="one and two"):
        load_registry()
    install(Point("hrrr", msgspec.structs.replace(TIDES, name="hrrr"), "one"))
    with pytest.raises(PluginConflict, match="kfm and one"):
        load_registry()


@pytest.mark.parametrize(
    "made", [RuntimeError("broken"), lambda: None, msgspec.structs.replace(TIDES, name="x")]
)
def test_broken_plugin_is_named(made: Any, install: Any) -> None:
    """The error names the package that has to be fixed."""
    install(Point("tides", made, "careless"))
    with pytest.raises(ConfigError, match="careless"):
        load_registry()


def test_several_homes_are_refused() -> None:
    """Ids would collide if one key could be at home in two buckets."""
    twice = msgspec.structs.replace(TIDES, places=(Place(bucket="a-a"), Place(bucket="b-b")))
    with pytest.raises(ConfigError, match="homes"):
        Registry((twice,))


@pytest.mark.req("WAL-20")
def test_generic_items_need_a_policy() -> None:
    """An unknown bucket is refused until a policy names it; known keys keep their dataset."""
    policy = IntakePolicy(
        generic=(
            Generic(dataset="extra", bucket="noaa-goes16"),
            Generic(dataset="extra", bucket="other-bucket"),
        )
    )
    registry = load_registry(policy)
    one = parse_key("noaa-goes16", "notes/a.txt", registry, NOW_MS)
    two = parse_key("other-bucket", "notes/a.txt", registry, NOW_MS)
    assert isinstance(parse_key("third-bucket", "notes/a.txt", registry, NOW_MS), RefusedRecord)
    assert isinstance(one, Arrival)
    assert isinstance(two, Arrival)
    assert {one.reading.dataset, two.reading.dataset} == {"extra"}
    assert one.reading.stac_item_id != two.reading.stac_item_id
    glm = "OR_GLM-L2-LCFA_G16_s20240010000000_e20240010000200_c20240010000220.nc"
    known = parse_key("noaa-goes16", glm, registry, NOW_MS)
    assert isinstance(known, Arrival)
    assert known.reading.dataset == "goes-glm"


def test_ids_of_generic_items_do_not_depend_on_the_configuration() -> None:
    """Whatever other buckets are named, and in which order: an object keeps its item, and has it alone."""
    one, other = Generic(dataset="extra", bucket="one"), Generic(dataset="extra", bucket="other")
    found: dict[str, set[str]] = {"one": set(), "other": set()}
    for generic in ((one,), (other,), (one, other), (other, one)):
        registry = load_registry(IntakePolicy(generic=generic))
        for each in generic:
            found[each.bucket].add(registry.read("aws", each.bucket, "k/0").stac_item_id)
    assert [len(ids) for ids in found.values()] == [1, 1]
    assert not found["one"] & found["other"]


@pytest.mark.parametrize("name", ["hrrr", "Not a name", "", "-x"])
def test_generic_names_are_names_of_their_own(name: str) -> None:
    """A generic dataset can't take the place of a known one."""
    with pytest.raises(UsageError):
        load_registry(IntakePolicy(generic=(Generic(dataset=name, bucket="a-bucket"),)))


def test_built_in_datasets_are_complete() -> None:
    """Each module has one dataset of its name, and no topic of a second region slips in."""
    datasets = built_in()
    assert [dataset.name for dataset in datasets] == [name.replace("_", "-") for name in BUILT_IN]
    for dataset in datasets:
        assert dataset.places[0].home
        assert all(topic.startswith("arn:aws:sns:us-east-1:") for topic in dataset.topics)


def test_page_tells_the_truth(install: Any) -> None:
    """The dataset of the how-to works as it stands there."""
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/add-a-dataset.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    install(Point("river-cameras", names["DATASET"]))
    bucket, key = page.partition("kfm nodd parse --key ")[2].partition("\n")[0].split()
    photo, sidecar = (parse_key(bucket, f"{key}{end}", load_registry(), NOW_MS) for end in ("", ".json"))
    assert isinstance(photo, Arrival)
    assert isinstance(sidecar, Arrival)
    assert photo.reading.platform == "06887500"
    assert sidecar.reading.asset == "metadata"
    assert sidecar.reading.stac_item_id == photo.reading.stac_item_id
