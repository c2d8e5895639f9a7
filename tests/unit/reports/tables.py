"""Versions of a dataset in memory, with the bytes of their files."""

from __future__ import annotations

import io
from hashlib import sha256

from kfm.model.errors import StoreCorrupt
from kfm.model.item_ids import item_id
from kfm.model.records import Asset, Item, Manifest, Window
from kfm.model.settings import Care, CareLevel, Rights
from kfm.model.versions import Version, version_of
from kfm.ports import Reader

DAY_MS = 86_400_000
MEDIA = {
    "csv": "text/csv",
    "jsonl": "application/jsonl",
    "geojson": "application/geo+json",
    "bin": "image/png",
}


class Store:
    """Bytes by their hashes."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, path: str, data: bytes) -> Asset:
        name = sha256(data).hexdigest()
        self.blobs[name] = data
        media_type = MEDIA.get(path.rpartition(".")[2], "application/octet-stream")
        return Asset(path=path, sha256=name, size=len(data), media_type=media_type)

    def open(self, name: str) -> Reader:
        if name not in self.blobs:
            raise StoreCorrupt(f"Object {name} is missing.")
        return io.BytesIO(self.blobs[name])

    def item(
        self, files: dict[str, bytes], day: int = 0, bbox: tuple[str, str, str, str] | None = None
    ) -> Item:
        window = Window(start_ms=day * DAY_MS, end_ms=(day + 1) * DAY_MS, spec="")
        return Item(
            id=item_id("s", window, None),
            source_id="s",
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            partition=None,
            assets=tuple(self.put(path, data) for path, data in sorted(files.items())),
            bbox=bbox,
        )

    def version(self, *items: Item, level: CareLevel = "public") -> Version:
        return version_of(
            Manifest(
                dataset_id="d",
                title="d",
                description="d",
                domain="general",
                keywords=(),
                rights=Rights(license="CC0-1.0", care=Care(label="x", level=level)),
                items=tuple(sorted(items, key=lambda item: item.id)),
            )
        )
