"""The published tree in a bucket.

    <dataset>/current.json                        the pointer: moved by a conditional put only
    <dataset>/versions/00000012-0123456789ab/…    documents, never overwritten
    <dataset>/blobs/sha256/ab/cdef…               files, under their hash

Where something is withdrawn, the version has a `withdrawn.json`, and the pointer leads to it.

The pointer's ETag is the fence: it is read before the head, and the put is refused if anybody moved
the pointer since. So what is replaced is what was read, and what was read had a lower sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import BackendUnavailable, CircuitOpen, StoreCorrupt, TargetUnavailable
from kfm.model.records import Asset, Manifest, Promotion, Record
from kfm.ports import Bucket, Objects
from kfm.publish.catalogue import WITHDRAWN, documents, tombstone_of
from kfm.publish.targets.folder import COPY_BYTES, is_head, lost, require_folder_name, version_name
from kfm.publish.targets.shown import ShownVersion, is_done

ATTEMPTS_MAX = 20
POINTER = "its current.json"

HeadReader = Callable[[], tuple[Promotion, Manifest] | None]
History = Callable[[int], str | None]  # sequence → the version that this database promoted with it


class Pointer(Record, frozen=True):
    """The contents of `current.json`."""

    pointer: Literal[1]
    dataset_id: str
    sequence: int
    version_id: str
    manifest: str  # relative to the pointer
    collection: str
    withdrawn: str | msgspec.UnsetType = msgspec.UNSET  # the tombstone, where something is withdrawn


class BucketTree:
    """Projects heads into a bucket, by way of anything that has a conditional put."""

    def __init__(self, name: str, bucket: Bucket, objects: Objects, prefix: str = "") -> None:
        self.name = name
        self._bucket = bucket
        self._objects = objects
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def project(self, dataset_id: str, head: HeadReader, known: History | None = None) -> int | None:
        """Make `current.json` show the head; returns the sequence that it shows."""
        root = f"{self._prefix}{require_folder_name(dataset_id)}/"
        try:
            for _ in range(ATTEMPTS_MAX):
                shown, etag = self._shown(root)
                found = head()  # only now: a pointer moved from here on makes our put fail
                if found is None:
                    return None
                if shown and is_done(
                    self.name, ShownVersion(shown.sequence, shown.version_id), found[0], known, POINTER
                ):
                    return shown.sequence
                if self._uploaded(root, found, head) and self._point(root, found[0], etag):
                    return found[0].sequence
        except (StoreCorrupt, TargetUnavailable, CircuitOpen):
            raise
        except (BackendUnavailable, OSError) as error:
            raise TargetUnavailable(f"{self.name}: {error}") from error
        raise TargetUnavailable(f"{self.name}: the pointer moved {ATTEMPTS_MAX} times under our hands.")

    def _shown(self, root: str) -> tuple[Pointer | None, str | None]:
        found = self._bucket.get(f"{root}current.json")
        if found is None:
            return None, None
        if not found[1]:
            raise TargetUnavailable(
                f"{self.name}: the bucket gives no ETag, so the pointer can't be moved safely."
            )
        try:
            return msgspec.json.decode(found[0], type=Pointer), found[1]
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise TargetUnavailable(f"{self.name}: {root}current.json is not ours; move it away.") from error

    def _uploaded(self, root: str, found: tuple[Promotion, Manifest], head: HeadReader) -> bool:
        try:
            self._upload(root, *found)
        except StoreCorrupt:
            if is_head(found[0], head):
                raise
            return False  # so old by now that its objects were collected: begin again
        return True

    def _upload(self, root: str, promotion: Promotion, manifest: Manifest) -> None:
        """Everything that the pointer will lead to. What is there already is equal, by its name."""
        assets = {asset.sha256: (item, asset) for item in manifest.items for asset in item.assets}
        for item, asset in assets.values():
            key = root + blob_key(asset)
            there = self._bucket.head(key)
            if there is None or there.size != asset.size:
                try:
                    self._bucket.put_stream(key, self._chunks(asset))
                except StoreCorrupt as error:
                    raise lost(manifest, item, error) from error
        folder = f"{root}versions/{version_name(promotion)}/"
        made = documents(manifest, lambda asset: "../../" + blob_key(asset), tombstone_of(promotion))
        for name, data in made.items():
            self._bucket.put(folder + name, data, if_none_match=True)

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Remove these versions and blobs; returns how many objects were removed.

        Documents go first: a version that a reader finds by its address is whole, or has no manifest."""
        root = f"{self._prefix}{require_folder_name(dataset_id)}/"
        removed = 0
        try:
            for promotion in gone:
                folder = f"{root}versions/{version_name(promotion)}/"
                keys = sorted((stat.key for stat in self._bucket.list(folder)), key=_manifest_first)
                for key in keys:
                    check()
                    self._bucket.delete(key)
                removed += len(keys)
            for sha256 in sorted(blobs):
                key = root + sha256_key(sha256)
                if self._bucket.head(key) is not None:
                    check()
                    self._bucket.delete(key)
                    removed += 1
        except CircuitOpen:
            raise
        except (BackendUnavailable, OSError) as error:
            raise TargetUnavailable(f"{self.name}: {error}") from error
        return removed

    def _chunks(self, asset: Asset) -> Iterator[bytes]:
        size = 0
        reader = self._objects.open(asset.sha256)
        try:
            while data := reader.read(COPY_BYTES):
                size += len(data)
                yield data
        finally:
            reader.close()
        if size != asset.size:
            raise StoreCorrupt(f"Object sha256:{asset.sha256} of {asset.path} has another length.")

    def _point(self, root: str, promotion: Promotion, etag: str | None) -> bool:
        folder = f"versions/{version_name(promotion)}"
        pointer = Pointer(
            pointer=1,
            dataset_id=promotion.dataset_id,
            sequence=promotion.sequence,
            version_id=promotion.version_id,
            manifest=f"{folder}/manifest.json",
            collection=f"{folder}/collection.json",
            withdrawn=f"{folder}/{WITHDRAWN}" if tombstone_of(promotion) else msgspec.UNSET,
        )
        body = canonical_bytes(msgspec.to_builtins(pointer)) + b"\n"
        key = f"{root}current.json"
        if etag is None:
            return self._bucket.put(key, body, if_none_match=True)
        return self._bucket.put(key, body, if_match=etag)


def _manifest_first(key: str) -> tuple[bool, str]:
    return not key.endswith("/manifest.json"), key


def blob_key(asset: Asset) -> str:
    return sha256_key(asset.sha256)


def sha256_key(sha256: str) -> str:
    return f"blobs/sha256/{sha256[:2]}/{sha256[2:]}"
