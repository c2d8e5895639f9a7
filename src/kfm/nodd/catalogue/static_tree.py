"""A static STAC tree: whole or not at all, and never more than a page of it in memory.

catalog.json
{collection}/collection.json
{collection}/items.parquet                        all items, as stac-geoparquet
{collection}/{year}/{month}/{day}/catalog.json    links to the day's items
{collection}/{year}/{month}/{day}/items/{id}.json
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import msgspec

from kfm.model.catalogue import CatalogueItem, CollectionFigures
from kfm.model.errors import BackendUnavailable, UsageError
from kfm.model.records import Record
from kfm.model.times import rfc3339
from kfm.nodd.catalogue import stac_items
from kfm.nodd.catalogue.geoparquet import ItemTable
from kfm.nodd.catalogue.search import pages_of
from kfm.nodd.grammar import Dataset
from kfm.system import sync_folder

if TYPE_CHECKING:
    from kfm.db.catalogue import CatalogueReader

FORMS = ("static", "geoparquet")
MIRROR = "items.parquet"
PAGE_ITEMS = 500


class Exported(Record, frozen=True):
    """What was written."""

    folder: str
    items: dict[str, int]  # collection → items
    files: int


def export_catalogue(
    catalogue: CatalogueReader,
    datasets: Mapping[str, Dataset],
    folder: str,
    *,
    unique: str,
    forms: Sequence[str] = FORMS,
    collections: Sequence[str] = (),
) -> Exported:
    """Write the tree beside its place, then give it its name. `unique` names it until then.

    Items that come while it is written may be in it or not. The folder must not be there yet, or be empty.
    """
    target = os.path.abspath(folder)
    found = catalogue.collections()
    for name in collections:
        if not any(one.collection_id == name for one in found):
            raise UsageError(
                f"There is no collection `{name[:64]}`.", remedy="`kfm catalogue show` lists them."
            )
    wanted = [one for one in found if not collections or one.collection_id in collections]
    with _workplace(target, unique) as place:
        tree = _Tree(place, datasets, forms)
        for figures in wanted:
            pages = pages_of(catalogue, figures.collection_id, PAGE_ITEMS)
            tree.collection(figures, chain.from_iterable(pages))
        tree.root(wanted)
        _show(place, target)
    return Exported(folder=target, items=tree.items, files=tree.files)


class _Tree:
    def __init__(self, place: str, datasets: Mapping[str, Dataset], forms: Sequence[str]) -> None:
        self._place = place
        self._datasets = datasets
        self._static = "static" in forms
        self._mirrored = "geoparquet" in forms
        self.items: dict[str, int] = {}
        self.files = 0

    def root(self, wanted: Sequence[CollectionFigures]) -> None:
        links = [stac_items.link("root", "./catalog.json")]
        for figures in wanted:
            title = stac_items.title_of(self._datasets.get(figures.collection_id), figures)
            links.append(
                stac_items.link("child", f"./{quote(figures.collection_id)}/collection.json", title=title)
            )
        self._write("catalog.json", stac_items.render_catalog(links))

    def collection(self, figures: CollectionFigures, items: Iterator[CatalogueItem]) -> None:
        name = figures.collection_id
        mirror = ItemTable(os.path.join(self._place, f".{name}.ndjson")) if self._mirrored else None
        days: list[str] = []
        count = 0
        for day, group in groupby(items, key=lambda item: rfc3339(item.at_ms)[:10]):
            days.append(day)
            with self._day(name, day) as add:
                for item in group:
                    add(item)
                    count += 1
                    if mirror is not None:
                        mirror.add(stac_items.render_item(item, links=_mirror_links()))
        self.items[name] = count
        document = stac_items.render_collection(
            self._datasets.get(name),
            msgspec.structs.replace(figures, items=count),
            links=self._collection_links(days),
            mirror=f"./{MIRROR}" if mirror is not None and count else None,
        )
        self._write(f"{name}/collection.json", document)
        if mirror is not None:
            if count:
                mirror.write(self._path(f"{name}/{MIRROR}"), document)
                self.files += 1
            mirror.close()

    def _collection_links(self, days: Sequence[str]) -> list[dict[str, Any]]:
        links = [stac_items.link("root", "../catalog.json"), stac_items.link("parent", "../catalog.json")]
        if self._static:
            links += (
                stac_items.link("child", f"./{day.replace('-', '/')}/catalog.json", title=day) for day in days
            )
        return links

    @contextmanager
    def _day(self, name: str, day: str) -> Iterator[Any]:
        """Takes a day's items one by one; their links go straight into the day's catalog."""
        if not self._static:
            yield lambda _item: None
            return
        folder = f"{name}/{day.replace('-', '/')}"
        up = "../" * 4
        head = stac_items.render_catalog(
            [
                stac_items.link("root", f"{up}catalog.json"),
                stac_items.link("parent", f"{up[3:]}collection.json"),
            ],
            catalog_id=f"{name}-{day}",
            title=day,
            description=f"Items of {name} of {day}.",
        )
        with self._open(f"{folder}/catalog.json") as file:
            encoded = msgspec.json.encode(head)
            assert encoded.endswith(b"]}"), "links are the last field"
            file.write(encoded[:-2])

            def add(item: CatalogueItem) -> None:
                href = f"./items/{stac_items.segment(item.item_id)}.json"
                file.write(b"," + msgspec.json.encode(stac_items.link("item", href, stac_items.GEOJSON)))
                self._write(
                    f"{folder}/items/{item.item_id}.json", stac_items.render_item(item, links=_ITEM_LINKS)
                )

            yield add
            file.write(b"]}\n")

    # --- files -------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        path = os.path.join(self._place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def _open(self, name: str) -> BinaryIO:
        self.files += 1
        return open(self._path(name), "xb")

    def _write(self, name: str, document: dict[str, Any]) -> None:
        with self._open(name) as file:
            file.write(msgspec.json.encode(document) + b"\n")


# An item lies five folders deep: collection, year, month, day, items.
_ITEM_LINKS = (
    stac_items.link("root", "../../../../../catalog.json"),
    stac_items.link("parent", "../catalog.json"),
    stac_items.link("collection", "../../../../collection.json"),
)


def _mirror_links() -> list[dict[str, Any]]:
    return [
        stac_items.link("root", "../catalog.json"),
        stac_items.link("parent", "./collection.json"),
        stac_items.link("collection", "./collection.json"),
    ]


@contextmanager
def _workplace(target: str, unique: str) -> Iterator[str]:
    """A hidden folder beside the target; gone again, whatever happens."""
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise UsageError(
            f"{target} is there already.", remedy="Name a folder that is not there yet, or an empty one."
        )
    parent, name = os.path.split(target)
    place = os.path.join(parent, f".{name}.{unique}")
    try:
        os.makedirs(parent, exist_ok=True)
        os.mkdir(place)
    except OSError as error:
        raise BackendUnavailable(
            f"The folder {parent} can't be written: {(error.strerror or str(error)).lower()}.",
            remedy="Name a folder that can be written.",
        ) from None
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _show(place: str, target: str) -> None:
    """The bytes first, then the name: after a loss of power there is all of it or nothing."""
    os.sync()  # once for all: a tree has too many files to wait for each
    try:
        os.rename(place, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise UsageError(
                f"{target} has come into being meanwhile.", remedy="Name another folder."
            ) from None
        raise
    sync_folder(os.path.dirname(target))
