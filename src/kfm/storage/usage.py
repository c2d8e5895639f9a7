"""Where the bytes are: the ledger by table, objects, published trees, lineage; what gc would free."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kfm.model.errors import BackendUnavailable
from kfm.model.records import Record
from kfm.model.retention import ARTIFACTS
from kfm.storage.artifacts import folder_size
from kfm.storage.retention import preview

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.runs.gc import Collection


class TableSize(Record, frozen=True):
    """One table of the ledger with its indexes."""

    table: str
    bytes: int


class Place(Record, frozen=True):
    """Something outside the ledger. `bytes`: None where it can't be measured from here."""

    what: str
    where: str
    bytes: int | None


class Usage(Record, frozen=True):
    """Where the bytes are, and what `kfm gc` would free."""

    ledger_bytes: int
    free_bytes: int
    tables: tuple[TableSize, ...]
    places: tuple[Place, ...]
    collectable: dict[str, int | None]  # what → bytes that gc would free; None: unknown
    retention_enabled: bool

    @property
    def size(self) -> int:
        return self.ledger_bytes + sum(one.bytes or 0 for one in self.places)


def usage(app: App) -> Usage:
    """Reads only. Each file counts once in its place, however many names lead to it."""
    reader = app.ledger.retention_reader()
    sizes = reader.table_sizes() if app.ledger.is_stored else {}
    tables = [TableSize(table=name, bytes=size) for name, size in sizes.items()]
    plan = preview(app.ledger, app.settings.retention, app.artifact_folders)
    rows = {one.kind: one.bytes for one in plan.kinds}
    artifacts = rows.pop(ARTIFACTS)
    free, collection = reader.free_bytes() if app.ledger.is_stored else 0, _collection(app)
    return Usage(
        ledger_bytes=sum(one.bytes for one in tables) + free,
        free_bytes=free,
        tables=tuple(sorted(tables, key=lambda one: (-one.bytes, one.table))),
        places=tuple(_places(app, collection)),
        collectable={
            "objects": None if collection is None else collection.size,
            "ledger": sum(rows.values()),
            "artifacts": artifacts,
        },
        retention_enabled=app.settings.retention.enabled,
    )


def _places(app: App, collection: Collection | None) -> list[Place]:
    settings, state = app.settings, app.state
    objects = settings.objects
    found = [
        Place(what="objects", where=objects, bytes=None if collection is None else collection.stored)
        if objects is not None
        else _folder("objects", f"{state}/objects")
    ]
    for target in settings.publish:
        if target.kind == "local" and target.path is not None:
            found.append(_folder("published", app.loaded.resolve(target.path)))
        else:
            found.append(Place(what="published", where=target.name or target.kind, bytes=None))
    if settings.lineage.export == "file":
        named = settings.lineage.path
        path = app.loaded.resolve(named) if named is not None else f"{state}/lineage/openlineage.jsonl"
        found.append(_folder("lineage", os.path.dirname(path)))
    found.append(_folder("artifacts", f"{state}/runs"))
    return found


def _folder(what: str, path: str) -> Place:
    return Place(what=what, where=path, bytes=folder_size(path) if os.path.isdir(path) else 0)


def _collection(app: App) -> Collection | None:
    """What gc would remove; None: the bucket of the objects is out of reach."""
    from kfm.runs import gc

    try:
        return gc.plan(app.kernel, app.objects)
    except BackendUnavailable:
        return None
