"""Other datasets of the same ledger as a source: the versions that are their heads, by their own objects.

Bytes come from the object store by their hash, never from a target: targets may be behind, and are others'
to change. Either every input holds something, or nothing is found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from kfm.model.derived import InputPin, items_read, missing_of, part_of
from kfm.model.keys import file_of_urn, file_urn
from kfm.model.records import Asset, Found, Item, Promotion, Window
from kfm.model.settings import Limits, SourceSettings
from kfm.model.versions import Version
from kfm.model.windows import SNAPSHOT
from kfm.ports import Objects, Reader
from kfm.sources.placement import StreamDownload, published_path, settled

CHUNK_BYTES = 1024 * 1024
Head = Callable[[str], tuple[Promotion, Version] | None]


class DatasetSource:
    """The datasets that another one is made of."""

    def __init__(
        self,
        source: SourceSettings,
        head: Head,
        objects: Objects,
        limits: Limits,
        public_name: Callable[[str], str] = str,
    ) -> None:
        """`public_name`: what a dataset is called where its own name must not be told."""
        self._source = source
        self._public_name = public_name
        self._head = head
        self._objects = objects
        self._limits = limits
        self.pins: tuple[InputPin, ...] = ()  # of the last discovery

    def discover(self, window: Window) -> list[Found]:
        found, pins = [], []
        for dataset_id, read_as in sorted(self._source.datasets.items()):
            head = self._head(dataset_id)
            items = items_read(head[1], (window.start_ms, window.end_ms), read_as) if head else ()
            pins.append(
                InputPin(
                    dataset_id=dataset_id,
                    read_as=read_as,
                    sequence=head[0].sequence if head else 0,
                    version_id=head[0].version_id if head else None,
                    part=part_of(items),
                )
            )
            found += [self._found(dataset_id, item, asset, window) for item in items for asset in item.assets]
        self.pins = tuple(pins)
        return [] if missing_of(pins) else settled(self._source.id, found, self._limits)

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[StreamDownload]:
        named = file_of_urn(found.uri)
        assert named is not None, "it was found by us"
        reader = self._objects.open(named[2])  # which compares the bytes with their hash
        try:
            _skip(reader, offset)
            yield StreamDownload(offset, found, iter(lambda: reader.read(CHUNK_BYTES), b""))
        finally:
            reader.close()

    def _found(self, dataset_id: str, item: Item, asset: Asset, window: Window) -> Found:
        relpath = f"{dataset_id}/{asset.path}"
        named = self._source.pipeline is not None or window == SNAPSHOT
        return Found(
            uri=self._address(dataset_id, asset),
            # A pipeline knows its inputs by dataset and path; what is published as it is has its own place.
            path=relpath if named else published_path(self._source, window, relpath),
            media_type=asset.media_type,
            size=asset.size,
            checksum=f"sha256:{asset.sha256}",
            modified_ms=item.interval_ms[1] if asset.modified_ms is None else asset.modified_ms,
        )

    def _address(self, dataset_id: str, asset: Asset) -> str:
        """The name of the file, as by the run that made it; it is published with what is made of it."""
        public = self._public_name(dataset_id)
        if public == dataset_id or self._public_name(self._source.dataset) != self._source.dataset:
            return file_urn(dataset_id, asset.path, asset.sha256)
        return file_urn(public, asset.sha256, asset.sha256)


def _skip(reader: Reader, size: int) -> None:
    while size > 0 and (data := reader.read(min(size, CHUNK_BYTES))):
        size -= len(data)
