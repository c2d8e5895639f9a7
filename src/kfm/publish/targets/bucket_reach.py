"""What versions in a bucket lead to: pages of their catalogues, items, pages of their trees of files."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.trees import decode
from kfm.model.versions import VersionRoot
from kfm.publish.catalogue.addresses import COLLECTION, MANIFEST, address_of
from kfm.publish.targets.bucket_layout import CATALOGUE, VERSIONS, hash_in, page_key
from kfm.publish.targets.bucket_objects import DatasetObjects


class BucketReach:
    """Hashes that are in the addresses of what some versions need. What several share is read once.

    What can't be read is an error, since nothing is removed on half the knowledge; unless it is about what
    goes: some of that may be gone already.
    """

    def __init__(self, name: str, objects: DatasetObjects, *, going: bool = False) -> None:
        self._name = name
        self._objects = objects
        self._going = going
        self._seen: set[bytes] = set()  # as bytes: there may be hundreds of thousands

    def __contains__(self, sha256: str) -> bool:
        return bytes.fromhex(sha256) in self._seen

    def add(self, versions: Iterable[str]) -> BucketReach:
        """Versions by their names. One that is not whole, since it was never shown, leads to nothing."""
        for version in versions:
            folder = f"{VERSIONS}{version}/"
            if (collection := self._objects.get(folder + COLLECTION)) is not None:
                self._follow(folder + COLLECTION, collection)
            if (manifest := self._objects.get(folder + MANIFEST)) is not None:
                self._add_tree(manifest)
        return self

    def _is_new(self, sha256: str) -> bool:
        one = bytes.fromhex(sha256)
        if one in self._seen:
            return False
        self._seen.add(one)
        return True

    def _follow(self, key: str, document: bytes) -> None:
        waiting = self._links(key, document)
        while waiting:
            address = waiting.pop()
            found = hash_in(address)
            if found is None or not self._is_new(found) or not address.startswith(CATALOGUE):
                continue
            if (page := self._require(address)) is not None:
                waiting += self._links(address, page)

    def _links(self, key: str, document: bytes) -> list[str]:
        try:
            links = msgspec.json.decode(document)["links"]
            return [address_of(link["href"]) for link in links if link["rel"] in ("item", "child")]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise self._unreadable(key) from error

    def _add_tree(self, manifest: bytes) -> None:
        try:
            waiting = [msgspec.json.decode(manifest, type=VersionRoot).files.tree]
        except msgspec.DecodeError:
            return  # of before: it lists its files itself
        while waiting:
            page_id = waiting.pop()
            if not self._is_new(page_id):
                continue
            key = page_key(page_id)
            if (body := self._require(key)) is None:
                continue
            try:
                node = decode(page_id, body.decode())
            except (StoreCorrupt, UnicodeError) as error:
                raise self._unreadable(key) from error
            below = [row[1] for row in node.rows] if node.level else []
            if node.level == 1:  # leaves lead to files, which the ledger knows
                for one in below:
                    self._is_new(one)
            else:
                waiting += below

    def _require(self, key: str) -> bytes | None:
        found = self._objects.get(key)
        if found is None and not self._going:
            raise self._unreadable(key)
        return found

    def _unreadable(self, key: str) -> TargetUnavailable:
        return TargetUnavailable(
            f"{self._name}: {key} is missing or damaged, and a kept version leads to it: nothing is removed.",
            remedy="Bring the object back from a copy of the bucket; or wait until the versions that lead to "
            "it are not kept any more.",
        )
