"""`kfm catalogue`: search, show, serve, export and reconcile the STAC catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line, table
from kfm.cli.progress import watched
from kfm.cli.reading_server import serve_readers
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, readable_size
from kfm.nodd.grammar import Dataset
from kfm.web.listener import LOOPBACK, address_of, is_private, listener, shown_host

if TYPE_CHECKING:
    from kfm.db.catalogue import CatalogueReader
    from kfm.model.catalogue import CatalogueItem, CollectionFigures, Search

FOUND_MAX = 100_000
_PAGE = 500


@click.group(name="catalogue", cls=CommandGroup)
def command() -> None:
    """Search, show, serve and export the catalogue: one STAC item for each announced object."""


# --- search, show and export -------------------------------------------------------


@command.command()
@click.option("--collection", "collections", multiple=True, metavar="ID", help="Only of this collection.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only items of this id.")
@click.option("--bbox", metavar="W,S,E,N", help="Only what touches this box, in degrees.")
@click.option(
    "--datetime",
    "moment",
    metavar="TIME",
    help="Only what overlaps a time, or a range such as A/B, ../B, A/..",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, FOUND_MAX),
    default=100,
    show_default=True,
    help="At most so many items.",
)
@session_options
def search(
    session: CommandSession,
    collections: tuple[str, ...],
    ids: tuple[str, ...],
    bbox: str | None,
    moment: str | None,
    limit: int,
) -> None:
    """Find items, newest first.

    With --json the result is a GeoJSON FeatureCollection of STAC items; with -o jsonl one item a line.

    \b
    kfm catalogue search --collection nexrad-l2 --bbox=-102.1,37,-94.6,40 --limit 10
    kfm catalogue search --datetime 2026-06-15T00:00:00Z/.. --json
    """
    from kfm.nodd.catalogue.stac_items import render_item

    wanted = _search(collections, ids, bbox, moment, limit)
    with session.app(read_only=True) as app:
        found = list(_found(reader_of(app), wanted, limit + 1))
    more, found = len(found) > limit, found[:limit]
    rows = [] if session.output == "text" else [render_item(item) for item in found]
    document = {"type": "FeatureCollection", "features": rows, "numberReturned": len(found)}
    session.emit(document, _table(found), rows=rows)
    if more:
        session.note(f"there are more than {counted(limit, 'item')}; --limit shows more of them")


@command.command()
@click.argument("collection", metavar="[COLLECTION]", required=False)
@click.argument("item", metavar="[ITEM]", required=False)
@session_options
def show(session: CommandSession, collection: str | None, item: str | None) -> None:
    """Show all collections, one COLLECTION, or one ITEM of it with its files.

    With --json the result is the STAC document: {"collections": […]}, a Collection, or an Item.
    """
    from kfm.nodd.catalogue.stac_items import render_collection, render_item

    with session.app(read_only=True) as app:
        reader = reader_of(app)
        if collection is not None and item is not None:
            found = reader.item(collection, item)
            if found is None:
                raise UsageError(
                    f"There is no item `{one_line(item[:128])}` in `{one_line(collection[:64])}`.",
                    remedy=f"`kfm catalogue search --collection {one_line(collection[:64])}` lists them.",
                )
            document = render_item(found)
            session.emit(document, _item_lines(found, document))
            return
        every = reader.collections()
    if collection is None:
        datasets = _datasets()
        rows = [render_collection(datasets.get(one.collection_id), one) for one in every]
        lines = (
            table(("COLLECTION", "ITEMS", "FROM", "UNTIL"), map(_figures, every))
            if every
            else ["it is empty"]
        )
        session.emit({"collections": rows}, lines, rows=rows)
        return
    one = _one(every, collection)
    document = render_collection(_datasets().get(collection), one)
    session.emit(document, _collection_lines(one, document))


@command.command()
@click.argument("folder", metavar="FOLDER", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(("static", "geoparquet", "both")),
    default="static",
    show_default=True,
    help="STAC documents in dated folders, one Parquet file for each collection, or both.",
)
@click.option("--collection", "collections", multiple=True, metavar="ID", help="Only this collection.")
@session_options
def export(session: CommandSession, folder: str, form: str, collections: tuple[str, ...]) -> None:
    """Write the catalogue into FOLDER, which must not be there yet: it appears whole, or not at all.

    A static catalogue needs no server: put it where files are served, and STAC clients can walk it.
    geoparquet (it needs the extra `parquet`) is stac-geoparquet: DuckDB, GDAL and GeoPandas read it.
    """
    from kfm.nodd.catalogue.static_tree import FORMS, export_catalogue

    with session.app(read_only=True) as app:
        made = export_catalogue(
            reader_of(app),
            _datasets(),
            folder,
            unique=app.ids.new(),
            forms=FORMS if form == "both" else (form,),
            collections=collections,
        )
    total = sum(made.items.values())
    document = {"folder": made.folder, "format": form, "items": total, "files": made.files}
    rows = [{"collection": name, "items": count} for name, count in made.items.items()]
    summary = (
        f"{counted(total, 'item')} of {counted(len(rows), 'collection')} in {counted(made.files, 'file')}"
    )
    session.emit({**document, "collections": rows}, [f"{summary}: {one_line(made.folder)}"])


def _datasets() -> dict[str, Dataset]:
    from kfm.nodd.dataset_registry import load_registry

    return {dataset.collection: dataset for dataset in load_registry().datasets}


def _search(
    collections: tuple[str, ...], ids: tuple[str, ...], bbox: str | None, moment: str | None, limit: int
) -> Search:
    from kfm.model.catalogue import Search
    from kfm.nodd.catalogue.search import parse_bbox, parse_datetime, parse_names

    from_ms, until_ms = (None, None) if moment is None else parse_datetime(moment)
    return Search(
        collections=parse_names("--collection", collections),
        ids=parse_names("--id", ids),
        bbox=None if bbox is None else parse_bbox([part.strip() for part in bbox.split(",")]),
        from_ms=from_ms,
        until_ms=until_ms,
        limit=min(limit + 1, _PAGE),
    )


def _found(reader: CatalogueReader, search: Search, limit: int) -> Iterator[CatalogueItem]:
    import msgspec

    count = 0
    while page := reader.find_items(search):
        for item in page:
            yield item
            count += 1
            if count == limit:
                return
        search = msgspec.structs.replace(search, after=(page[-1].at_ms, page[-1].number))


def _one(every: list[CollectionFigures], name: str) -> CollectionFigures:
    for one in every:
        if one.collection_id == name:
            return one
    from kfm.model.quantities import did_you_mean

    known = [each.collection_id for each in every]
    raise UsageError(
        f"There is no collection `{one_line(name[:64])}`{did_you_mean(name, known)}",
        remedy="`kfm catalogue show` lists them.",
    )


def _table(found: list[CatalogueItem]) -> list[str]:
    from kfm.model.times import rfc3339

    if not found:
        return ["nothing was found"]
    rows = [(item.collection_id, rfc3339(item.at_ms), str(len(item.assets)), item.item_id) for item in found]
    return table(("COLLECTION", "DATETIME (UTC)", "FILES", "ITEM"), rows, spare=("FILES",))


def _figures(one: CollectionFigures) -> tuple[str, str, str, str]:
    from kfm.model.times import rfc3339

    start, end = ("-" if at_ms is None else rfc3339(at_ms) for at_ms in (one.start_ms, one.end_ms))
    return one.collection_id, f"{one.items}", start, end


def _collection_lines(one: CollectionFigures, document: dict[str, Any]) -> list[str]:
    _, items, start, end = _figures(one)
    return [
        f"{one.collection_id}: {document['title']}",
        f"  items    {items}",
        f"  from     {start}",
        f"  until    {end}",
        f"  bbox     {_box(one.bbox)}",
        f"  licence  {document['license']}",
    ]


def _item_lines(item: CatalogueItem, document: dict[str, Any]) -> list[str]:
    lines = [f"{item.collection_id} {item.item_id}"]
    lines += (
        f"  {name}: {one_line(str(value))}"
        for name, value in document["properties"].items()
        if value is not None
    )
    lines.append(f"  bbox: {_box(item.bbox)}")
    for name, asset in document["assets"].items():
        size = f", {readable_size(asset['file:size'])}" if "file:size" in asset else ""
        lines.append(f"  {name}: {asset['type']}{size}, unit {asset['kfm:wal_id']}")
        lines.append(f"    {one_line(asset['href'])}")
        if "alternate" in asset:
            lines.append(f"    {one_line(asset['alternate']['gdal']['href'])}")
    return lines


def _box(box: tuple[float, ...] | None) -> str:
    return "unknown" if box is None else ", ".join(f"{edge:g}" for edge in box)


# --- serve -------------------------------------------------------------------------


@command.command()
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="0 chooses a free one.",
)
@session_options
def serve(session: CommandSession, host: str, port: int) -> None:
    """Serve the catalogue as a read-only STAC API until stopped; pystac-client and QGIS can search it.

    It is for this machine: only loopback addresses are listened on, and only names of this machine are
    answered to. Where people are declared, clients send the token of one who may read. To let others read
    the catalogue, give them what `kfm catalogue export` writes.

    \b
    kfm catalogue serve --port 8080
    python -c "from pystac_client import Client; print(*Client.open('http://127.0.0.1:8080').search().items())"
    """

    run_server(session, host, port, _datasets(), reader_of)


def run_server(
    session: CommandSession,
    host: str,
    port: int,
    datasets: Mapping[str, Dataset],
    reader_of: Callable[[Any], CatalogueReader],
) -> None:
    """Until Ctrl-C or SIGTERM."""
    host = _loopback(host)
    from kfm.app import open_app

    loaded = session.load()

    @contextmanager
    def opened() -> Iterator[CatalogueReader]:
        # Opened anew each time: a ledger may be made, moved or restarted while we serve.
        with open_app(loaded, read_only=True, what="kfm catalogue serve") as app:
            yield reader_of(app)

    with opened() as reader:  # a store that can't be read is an error now, not for the first client
        reader.collections()

    def app() -> Any:
        from kfm.config.live import LiveConfig
        from kfm.web.gone import gone_for_readers
        from kfm.web.readers import ForReaders
        from kfm.web.stac import stac_app

        live = LiveConfig(loaded)  # names of schedules may give a masked dataset away

        def gone(collection_id: str, item_id: str | None) -> Any:
            with open_app(loaded, read_only=True, what="kfm catalogue serve") as app:
                return gone_for_readers(app, live.schedules, collection_id, item_id)

        stac = stac_app(opened, datasets, hosts=(*LOOPBACK, shown_host(host)), gone=gone)
        people = loaded.people()
        return ForReaders(stac, lambda: people)

    with listener(host, port) as listening:
        serve_readers(session, listening, "/", app)


def _loopback(text: str) -> str:
    host = address_of(text)
    if not is_private(host):
        raise UsageError(
            f"Other machines could read the catalogue on {host}, without showing who they are.",
            remedy="Listen on 127.0.0.1. For others, `kfm catalogue export` writes files for any web server.",
        )
    return host


def reader_of(app: Any) -> CatalogueReader:
    """The catalogue within the ledger."""
    catalogue: CatalogueReader = app.ledger.catalogue()
    return catalogue


# --- reconcile ---------------------------------------------------------------------


@command.command(name="reconcile")
@click.argument("replicas", nargs=-1, metavar="[REPLICA]...")
@click.option("--repair", is_flag=True, help="Deliver again what differs, and remove what we no longer have.")
@session_options
def reconcile(session: CommandSession, replicas: tuple[str, ...], repair: bool) -> int:
    """Compare external STAC APIs with our catalogue, item by item.

    Deliveries keep them equal; this finds what was changed there by others, and what a late answer left
    behind. Items that others put into the same collections are not touched.

    Exit codes: 0 equal, or repaired · 1 something differs · 4 a replica is unavailable.
    """
    from kfm.nodd.replicas import compare_all

    progress = watched(session)
    with session.app(role=None if repair else "read") as app:
        session.inform()
        progress.phase("comparing")
        results = compare_all(app, replicas, repair=repair, progress=progress.advance)
        progress.done()
    rows = [
        {
            **msgspec.to_builtins(compared),
            "delivered": delivered.sent if delivered else 0,
            "refused": delivered.refused if delivered else 0,
            "waiting": delivered.waiting if delivered else 0,
        }
        for compared, delivered in results
    ]
    differs = sum(compared.differs for compared, _ in results)
    left = sum(row["refused"] + row["waiting"] for row in rows)
    code = int(bool(left if repair else differs))
    names = ("replica", "items", "equal", "missing", "stale", "extra", "delivered", "refused")
    lines = table([name.upper() for name in names], [tuple(str(row[name]) for name in names) for row in rows])
    session.emit({"replicas": rows, "exit_code": code}, lines, rows=rows)
    if differs and not repair:
        session.note("`kfm catalogue reconcile --repair` delivers again what differs")
    return code
