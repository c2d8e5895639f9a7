"""The catalogue as files, read by programs that are not ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pystac
import pytest
import shapely
import stac_geoparquet.arrow

from kfm.model.catalogue import CatalogueItem, Search
from kfm.model.errors import UsageError
from kfm.nodd.catalogue import static_tree
from kfm.nodd.catalogue.geoparquet import ItemTable, wkb
from kfm.nodd.catalogue.stac_items import render_item
from kfm.nodd.catalogue.static_tree import Exported, export_catalogue
from tests.catalogue_model import ModelCatalogue
from tests.catalogue_samples import DATASETS, sample_catalogue
from tests.stac_checks import problems


@pytest.fixture(scope="module")
def model() -> ModelCatalogue:
    return sample_catalogue()


@pytest.fixture(scope="module")
def exported(model: ModelCatalogue, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("export") / "deep" / "out"
    return export_catalogue(model, DATASETS, str(folder), unique="u")


def documents(folder: str) -> dict[str, dict[str, Any]]:
    return {str(path): json.loads(path.read_bytes()) for path in Path(folder).rglob("*.json")}


def test_a_foreign_client_walks_the_tree(model: ModelCatalogue, exported: Exported) -> None:
    """pystac finds every item that is visible, once, by relative links alone."""
    root = pystac.Catalog.from_file(f"{exported.folder}/catalog.json")
    found = [(item.collection_id, item.id) for item in root.get_items(recursive=True)]
    assert sorted(found) == sorted((each.collection_id, each.item_id) for each in model.visible())
    assert sum(exported.items.values()) == len(found)
    item = next(iter(root.get_items(recursive=True)))
    collection, top = item.get_collection(), item.get_root()
    assert collection is not None
    assert top is not None
    assert (collection.id, top.id) == (item.collection_id, "kfm")


def test_every_document_is_valid(exported: Exported) -> None:
    """Catalogs, collections and items, by the public schemas; and none names the place where it was made."""
    found = documents(exported.folder)
    assert exported.files == len(found) + len(exported.items)
    for document in found.values():
        assert problems(document) == []
        for link in document["links"]:
            assert link["href"].startswith("."), link


def test_items_lie_under_their_day(model: ModelCatalogue, exported: Exported) -> None:
    """A path is the collection, the date and the id."""
    wanted = Path(exported.folder, "hrrr/2024/01/01/items/hrrr.20240101~conus~hrrr.t00z.wrfsfcf06.grib2.json")
    assert wanted.is_file()
    assert not list(Path(exported.folder).rglob("*wrfsfcf07*"))


def test_a_collection_names_its_mirror(exported: Exported) -> None:
    """With the role that clients look for."""
    collection = pystac.Collection.from_file(f"{exported.folder}/goes-abi/collection.json")
    mirror = collection.assets["geoparquet-items"]
    assert (mirror.roles, mirror.media_type) == (["collection-mirror"], "application/vnd.apache.parquet")
    assert Path(str(mirror.get_absolute_href())).is_file()


# --- stac-geoparquet -----------------------------------------------------------------


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def same_times(properties: dict[str, Any]) -> dict[str, Any]:
    """Tables have milliseconds always."""
    return {
        name: value.replace(".000Z", "Z") if isinstance(value, str) else value
        for name, value in properties.items()
    }


@pytest.mark.parametrize("name", ["goes-abi", "hrrr", "nexrad-l2", "ghcn-d", "mine"])
def test_a_foreign_reader_gets_the_items_back(model: ModelCatalogue, exported: Exported, name: str) -> None:
    """stac-geoparquet makes of the table what was rendered: geometry, box, times, assets, properties."""
    table = pq.read_table(f"{exported.folder}/{name}/items.parquet")
    wanted = {each.item_id: each for each in model.visible() if each.collection_id == name}
    assert set(table["id"].to_pylist()) == wanted.keys()
    placed = table.filter(pc.is_valid(table["geometry"]))  # this reader knows no items without a box
    found = {each["id"]: each for each in stac_geoparquet.arrow.stac_table_to_items(placed)}
    assert found.keys() == {item_id for item_id, item in wanted.items() if item.bbox is not None}
    for item_id in found:
        item = wanted[item_id]
        document, back = without_nulls(render_item(item)), without_nulls(found[item_id])
        assert same_times(back.pop("properties")) == document.pop("properties")
        del document["links"], back["links"]
        assert back == document


def test_an_item_without_a_place_is_a_row_without_one(model: ModelCatalogue, exported: Exported) -> None:
    """Geometry and box are null, everything else is there."""
    rows = pq.read_table(f"{exported.folder}/mine/items.parquet").to_pylist()
    assert {(each["geometry"], each["bbox"]) for each in rows} == {(None, None)}
    (item,) = model.find_items(Search(collections=("mine",), limit=1))
    (row,) = (each for each in rows if each["id"] == item.item_id)
    assert without_nulls(row["assets"]) == render_item(item)["assets"]
    assert row["kfm:datetime_basis"] == "announcement"


def test_the_file_says_what_it_is(exported: Exported) -> None:
    """GeoParquet 1.1: where the geometry is, its kinds, and columns that cover it; and the collection."""
    metadata = pq.read_metadata(f"{exported.folder}/goes-abi/items.parquet").metadata
    geo = json.loads(metadata[b"geo"])
    column = geo["columns"][geo["primary_column"]]
    assert (geo["version"], column["encoding"]) == ("1.1.0", "WKB")
    assert column["geometry_types"] == ["MultiPolygon", "Polygon"]
    assert column["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]
    told = json.loads(metadata[b"stac-geoparquet"])
    assert told["collections"]["goes-abi"]["type"] == "Collection"


def test_duckdb_reads_all_collections(model: ModelCatalogue, exported: Exported) -> None:
    """Plain SQL over all of them, boxes and times included."""
    files = f"{exported.folder}/*/items.parquet"
    query = (
        f"select count(*), count(distinct id) from read_parquet('{files}', union_by_name=true) "
        "where bbox.xmin <= -97 and bbox.xmax >= -98 and bbox.ymin <= 38 and bbox.ymax >= 37"
    )
    counted = duckdb.sql(query).fetchall()
    found = model.find_items(Search(bbox=(-98.0, 37.0, -97.0, 38.0), limit=10_000))
    plain = [each for each in found if each.bbox is not None and each.bbox[0] <= each.bbox[2]]
    assert counted == [(len(plain), len(plain))]


@pytest.mark.parametrize("name", ["Point", "Polygon", "MultiPolygon"])
def test_well_known_binary(model: ModelCatalogue, name: str) -> None:
    """GEOS reads what we write."""
    item = next(each for each in model.visible() if each.geometry and each.geometry["type"] == name)
    assert item.geometry is not None
    assert shapely.from_wkb(wkb(item.geometry)) == shapely.geometry.shape(item.geometry)


def test_values_of_several_kinds_become_text(tmp_path: Path) -> None:
    """A property that is a text here and a number there keeps both, as JSON; nothing is lost or guessed."""
    odd: list[Any] = ["text", 5, {"a": [1]}, None]
    mirror = ItemTable(str(tmp_path / "spool"))
    for index, value in enumerate(odd):
        mirror.add(
            {
                "type": "Feature",
                "id": str(index),
                "geometry": None,
                "properties": {
                    "datetime": "2024-01-01T00:00:00Z",
                    "kfm:odd": value,
                    "kfm:n": index + index / 2,
                    "kfm:none": {},
                },
            }
        )
    mirror.write(str(tmp_path / "x.parquet"), {"id": "c"})
    mirror.close()
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert [each["kfm:odd"] for each in rows] == ['"text"', "5", '{"a":[1]}', None]
    assert [each["kfm:n"] for each in rows] == [0, 1.5, 3, 4.5]
    assert sorted(os.listdir(tmp_path)) == ["x.parquet"]


# --- whole or not at all -------------------------------------------------------------


def test_a_folder_with_something_in_it_is_not_touched(model: ModelCatalogue, tmp_path: Path) -> None:
    """Nothing of what is there is touched; an empty folder is taken."""
    (tmp_path / "kept").write_text("x")
    with pytest.raises(UsageError):
        export_catalogue(model, DATASETS, str(tmp_path), unique="u")
    with pytest.raises(UsageError):
        export_catalogue(model, DATASETS, str(tmp_path / "kept"), unique="u")
    assert os.listdir(tmp_path) == ["kept"]
    (tmp_path / "empty").mkdir()
    made = export_catalogue(
        model, DATASETS, str(tmp_path / "empty"), unique="u", forms=("static",), collections=("mine",)
    )
    assert made.items == {"mine": 24}
    assert not list(tmp_path.rglob("*.parquet"))
    assert "assets" not in json.loads((tmp_path / "empty/mine/collection.json").read_bytes())


def test_half_an_export_is_never_seen(model: ModelCatalogue, tmp_path: Path) -> None:
    """If reading breaks off, neither the folder nor anything beside it is there."""

    class Breaks(ModelCatalogue):
        def find_items(self, search: Search) -> list[CatalogueItem]:
            if search.after is not None:
                raise OSError("gone")
            return model.find_items(msgspec.structs.replace(search, limit=5))

        collections = model.collections

    with pytest.raises(OSError, match="gone"):
        export_catalogue(Breaks(), DATASETS, str(tmp_path / "out"), unique="u")
    assert os.listdir(tmp_path) == []


def test_pages_are_bounded(model: ModelCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many items there are, a page of them is read at a time, and all of them are there."""
    monkeypatch.setattr(static_tree, "PAGE_ITEMS", 7)
    limits: set[int] = set()

    class Watched(ModelCatalogue):
        collections = model.collections

        def find_items(self, search: Search) -> list[CatalogueItem]:
            limits.add(search.limit)
            return model.find_items(search)

    made = export_catalogue(Watched(), DATASETS, str(tmp_path / "out"), unique="u", forms=("geoparquet",))
    assert limits == {7}
    assert sum(made.items.values()) == len(model.visible())
    assert sorted(each.name for each in (tmp_path / "out/hrrr").iterdir()) == [
        "collection.json",
        "items.parquet",
    ]


def test_an_unknown_collection_is_told(model: ModelCatalogue, tmp_path: Path) -> None:
    """Rather than writing an empty tree."""
    with pytest.raises(UsageError, match="no collection `none`"):
        export_catalogue(model, DATASETS, str(tmp_path / "out"), unique="u", collections=("none",))
