"""Objects of one dataset in a bucket, by keys relative to it: small ones many at once, large ones alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

from msgspec.structs import replace

from kfm.model.errors import StoreCorrupt
from kfm.model.records import Asset, Item, ObjectStat
from kfm.model.versions import Version
from kfm.ports import Bucket, ManyPuts, NewObject, ObjectAttributes, Objects
from kfm.publish.targets.bucket_layout import document_attributes
from kfm.publish.targets.folder_builder import COPY_BYTES, lost

SMALL_BYTES_MAX = COPY_BYTES  # an object that is sent with others at once
BATCH_OBJECTS_MAX = 256
BATCH_BYTES_MAX = 16 * 1024 * 1024

Assets = list[tuple[Item, Asset]]
Sent = list[str]  # keys
Place = Callable[[Asset], tuple[str, ObjectAttributes]]  # where a file goes, and what is told with it


class DatasetObjects:
    """What a projector and a collector do with one dataset's part of a bucket."""

    def __init__(self, bucket: Bucket, root: str, objects: Objects) -> None:
        self._bucket = bucket
        self._root = root
        self._objects = objects

    def get(self, key: str) -> bytes | None:
        found = self.tagged(key)
        return found[0] if found is not None else None

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        """With its ETag."""
        return self._bucket.get(self._root + key)

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        for stat in self._bucket.list(self._root + prefix):
            yield replace(stat, key=stat.key[len(self._root) :])

    def modified_ms(self, key: str) -> int | None:
        stat = self._bucket.head(self._root + key)
        return stat.modified_ms if stat is not None else None

    def delete(self, key: str) -> None:
        self._bucket.delete(self._root + key)

    # --- documents ---

    def put_if(self, key: str, data: bytes, etag: str | None) -> bool:
        """Put a document in the place of the one that has this ETag, or of none. False: another is there."""
        attributes = document_attributes(key)
        if etag is None:
            return self._bucket.put(self._root + key, data, if_none_match=True, attributes=attributes)
        return self._bucket.put(self._root + key, data, if_match=etag, attributes=attributes)

    def put_documents(self, documents: Iterable[tuple[str, bytes]]) -> Iterator[Sent]:
        """The keys of what was sent, as it goes on. What is there already is equal, and young again."""
        return self._put_all((key, data, document_attributes(key)) for key, data in documents)

    # --- files ---

    def put_files(
        self, version: Version, assets: Assets, place: Place, *, replacing: bool = False
    ) -> Iterator[Sent]:
        """The keys of what was sent, as it goes on. `replacing`: what is there may be other bytes."""
        yield from self._put_all(self._small(version, assets, place))
        for item, asset in assets:
            if asset.size > SMALL_BYTES_MAX:
                key, attributes = place(asset)
                if replacing or not self._is_there(key, asset.size):
                    try:
                        self._bucket.put_stream(self._root + key, self._chunks(asset), attributes=attributes)
                    except StoreCorrupt as error:
                        raise lost(version.dataset_id, item, error) from error
                yield [key]

    def _is_there(self, key: str, size: int) -> bool:
        stat = self._bucket.head(self._root + key)
        return stat is not None and stat.size == size

    def _small(self, version: Version, assets: Assets, place: Place) -> Iterator[NewObject]:
        for item, asset in assets:
            if asset.size <= SMALL_BYTES_MAX:
                key, attributes = place(asset)
                try:
                    yield key, b"".join(self._chunks(asset)), attributes
                except StoreCorrupt as error:
                    raise lost(version.dataset_id, item, error) from error

    def _chunks(self, asset: Asset) -> Iterator[bytes]:
        """The bytes, compared as they pass: their address is their hash."""
        digest, size = sha256(), 0
        reader = self._objects.open(asset.sha256)
        try:
            while data := reader.read(COPY_BYTES):
                digest.update(data)
                size += len(data)
                yield data
        finally:
            reader.close()
        if size != asset.size or digest.hexdigest() != asset.sha256:
            raise StoreCorrupt(f"Object sha256:{asset.sha256} of {asset.path} holds other bytes.")

    def _put_all(self, objects: Iterable[NewObject]) -> Iterator[Sent]:
        for batch in _batches(objects):
            placed = [(self._root + key, data, attributes) for key, data, attributes in batch]
            if isinstance(self._bucket, ManyPuts):
                self._bucket.put_many(placed)
            else:
                for key, data, attributes in placed:
                    self._bucket.put(key, data, attributes=attributes)
            yield [key for key, _, _ in batch]


def _batches(objects: Iterable[NewObject]) -> Iterator[list[NewObject]]:
    batch: list[NewObject] = []
    size = 0
    for one in objects:
        batch.append(one)
        size += len(one[1])
        if len(batch) >= BATCH_OBJECTS_MAX or size >= BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
