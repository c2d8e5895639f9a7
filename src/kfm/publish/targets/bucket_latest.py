"""`latest/` in a bucket: the head's documents, or also its files, by name.

It is written after the pointer moved, object by object. `latest/version.json` says which version it shows,
and is written last. Documents are replaced by their ETags, which are read before the pointer: one that is
older than what the pointer shows replaces none. Files, and what is removed, have no such condition, so the
marker first names the version that they are of: whatever happens then, the next projector compares with that
one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal

import msgspec
from msgspec.structs import replace

from kfm.model.bucket_options import LatestContents
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import TargetUnavailable
from kfm.model.records import Asset, Item, Promotion, Record
from kfm.model.versions import Version
from kfm.ports import ObjectAttributes, PublishedVersions
from kfm.publish.catalogue import HashedDocuments, encode, tombstone_of
from kfm.publish.catalogue.addresses import COLLECTION, DCAT, WITHDRAWN
from kfm.publish.catalogue.pages import Earlier
from kfm.publish.targets.bucket_layout import (
    LATEST,
    LATEST_FILES,
    VERSIONS,
    Pointer,
    file_attributes,
    latest_key,
)
from kfm.publish.targets.bucket_objects import Assets, DatasetObjects
from kfm.publish.targets.folder import HeadReader, version_name

ATTEMPTS_MAX = 20
COMPARED_MAX = 16  # versions whose files may be there; beyond that all are looked at
LOOKED_UP_MAX = 1000  # paths at once
README = "README.txt"
MARKER = f"{LATEST}version.json"
README_TEXT = b"""\
The newest version of this dataset, by name.

These objects are replaced one by one. A reader who fetches several of them while a new version arrives can
meet two versions here. ../current.json names one whole version; what it leads to is never replaced.
"""


class LatestMarker(Record, frozen=True):
    """The contents of `latest/version.json`."""

    latest: Literal[1]
    dataset_id: str
    sequence: int  # the version that is shown; 0: none yet
    version_id: str
    contents: Literal["documents", "files"]
    arriving: tuple[int, ...] = ()  # versions of which files may be here as well

    def is_of(self, promotion: Promotion, contents: LatestContents) -> bool:
        """Is all of this version here, and nothing else?"""
        shown = (self.sequence, self.version_id, self.contents, self.arriving)
        return shown == (promotion.sequence, promotion.version_id, contents, ())


class LatestFolder:
    """Brings `latest/` to what the pointer shows."""

    def __init__(
        self,
        name: str,
        objects: DatasetObjects,
        contents: LatestContents,
        pointer: Callable[[], Pointer | None],
    ) -> None:
        self._name = name
        self._objects = objects
        self._contents = contents
        self._pointer = pointer
        self._touched: set[int] = set()  # versions for which we may have replaced or removed newer objects

    def update(self, promotion: Promotion, head: HeadReader, known: object) -> None:
        """`promotion`: what the pointer was seen to show. `known`: as a projection is given it."""
        for _ in range(ATTEMPTS_MAX):
            marker, etag = self._marker()
            if self._is_settled(marker, promotion):
                return
            there = {key: self._objects.tagged(key) for key in _DOCUMENTS}
            # Only now: what is replaced was there when the pointer showed this version.
            pointer, found = self._pointer(), head()
            if pointer is None or found is None or pointer.sequence != found[0].sequence:
                # A newer one is on its way, and brings its own.
                if marker is None or self._touched <= {*marker.arriving}:
                    return
                if self._objects.put_if(MARKER, _encoded(self._claimed(marker, ())), etag):
                    return
                continue
            promotion = found[0]
            if self._is_settled(marker, promotion):
                return
            if self._contents == "never":
                self._remove_all()
                return
            if self._written(found, marker, etag, there, known):
                return
        raise TargetUnavailable(f"{self._name}: {LATEST} was replaced {ATTEMPTS_MAX} times meanwhile.")

    def _is_settled(self, marker: LatestMarker | None, promotion: Promotion) -> bool:
        if marker is None:
            return self._contents == "never"
        return marker.is_of(promotion, self._contents) and self._touched <= {promotion.sequence}

    # --- writing ---

    def _written(
        self,
        found: tuple[Promotion, Version],
        marker: LatestMarker | None,
        etag: str | None,
        there: dict[str, tuple[bytes, str] | None],
        known: object,
    ) -> bool:
        """False: another projector was here meanwhile."""
        promotion, version = found
        whole = LatestMarker(
            latest=1,
            dataset_id=promotion.dataset_id,
            sequence=promotion.sequence,
            version_id=promotion.version_id,
            contents="files" if self._contents == "files" else "documents",
        )
        gone: Iterator[str] = iter(())
        if marker is None or (self._contents == "files" and marker.contents != "files"):
            marker = replace(whole, sequence=0, version_id="")  # no files are here yet
        if self._contents == "files" or _removes(promotion, there):
            claim = _encoded(self._claimed(marker, (promotion.sequence,)))
            if not self._objects.put_if(MARKER, claim, etag) or not (etag := self._tag_of(claim)):
                return False
            self._touched.add(promotion.sequence)
        if self._contents == "files":
            changed, gone = self._differences(version, marker, known)
            for _ in self._objects.put_files(version, changed, _place, replacing=True):
                if not self._is_ours(etag):
                    return False
        elif marker.contents == "files":
            gone = (stat.key for stat in self._objects.list(LATEST_FILES))
        for key, data in self._documents(promotion, version).items():
            if not self._is_replaced(key, data, there[key]):
                return False
        for key in gone:
            self._objects.delete(key)
        return self._objects.put_if(MARKER, _encoded(whole), etag)

    def _documents(self, promotion: Promotion, version: Version) -> dict[str, bytes | None]:
        """None: it is not here with this version."""
        folder = f"{VERSIONS}{version_name(promotion)}/"
        earlier = Earlier(version, self._objects.get(folder + COLLECTION))
        made = HashedDocuments(version, earlier, self._objects.get)
        for _ in self._objects.put_documents(made.new()):
            pass  # nothing, unless what the pointer leads to was damaged
        stands = tombstone_of(promotion)
        return {
            LATEST + COLLECTION: made.collection("../"),
            LATEST + DCAT: made.dcat("../", f"../{folder}"),
            LATEST + README: README_TEXT,
            LATEST + WITHDRAWN: encode(stands) if stands is not None else None,
        }

    def _is_replaced(self, key: str, data: bytes | None, there: tuple[bytes, str] | None) -> bool:
        if data is None:
            if there is not None:
                self._objects.delete(key)
            return True
        if there is not None and there[0] == data:
            return True
        return self._objects.put_if(key, data, there[1] if there is not None else None)

    def _differences(
        self, version: Version, marker: LatestMarker, known: object
    ) -> tuple[Assets, Iterator[str]]:
        """The files that may be others here, and the keys of those that may be here and are not in it."""
        bases = self._bases(marker, known)
        if bases is None:
            everything = [(item, asset) for item in version.items() for asset in item.assets]
            listed = (stat.key[len(LATEST_FILES) :] for stat in self._objects.list(LATEST_FILES))
            return everything, _keys_without(version, listed)
        changed: dict[str, tuple[Item, Asset]] = {}
        left: set[str] = set()
        for base in bases:
            for before, after in version.changed_items(base):
                old = {(a.path, a.sha256, a.media_type) for a in before.assets} if before else set()
                left |= {path for path, _, _ in old}
                for asset in after.assets if after is not None else ():
                    assert after is not None
                    if (asset.path, asset.sha256, asset.media_type) not in old:
                        changed[asset.path] = (after, asset)
        return list(changed.values()), _keys_without(version, iter(sorted(left)))

    def _bases(self, marker: LatestMarker, known: object) -> list[Version | None] | None:
        """The versions whose files may be here, None for no files; None for all: they are not known."""
        sequences = {marker.sequence, *marker.arriving, *self._touched}
        if len(sequences) > COMPARED_MAX or not isinstance(known, PublishedVersions):
            return None
        bases: list[Version | None] = []
        for sequence in sorted(sequences):
            base = known.version(sequence) if sequence else None
            if sequence and base is None:
                return None
            bases.append(base)
        return bases

    def _remove_all(self) -> None:
        """The marker last: it says that there is something."""
        for stat in self._objects.list(LATEST):
            if stat.key != MARKER:
                self._objects.delete(stat.key)
        self._objects.delete(MARKER)

    # --- the marker ---

    def _marker(self) -> tuple[LatestMarker | None, str | None]:
        found = self._objects.tagged(MARKER)
        if found is None:
            return None, None
        try:
            return msgspec.json.decode(found[0], type=LatestMarker), found[1]
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise TargetUnavailable(f"{self._name}: {MARKER} is not ours; move {LATEST} away.") from error

    def _claimed(self, marker: LatestMarker, more: tuple[int, ...]) -> LatestMarker:
        arriving = sorted({*marker.arriving, *self._touched, *more})
        return replace(marker, arriving=tuple(arriving[-COMPARED_MAX - 1 :]))

    def _tag_of(self, data: bytes) -> str | None:
        """The ETag of the marker, if it still is this one."""
        found = self._objects.tagged(MARKER)
        return found[1] if found is not None and found[0] == data else None

    def _is_ours(self, etag: str | None) -> bool:
        found = self._objects.tagged(MARKER)
        return found is not None and found[1] == etag


_DOCUMENTS = tuple(LATEST + name for name in (COLLECTION, DCAT, README, WITHDRAWN))


def _removes(promotion: Promotion, there: dict[str, tuple[bytes, str] | None]) -> bool:
    """Does a document go with this version?"""
    return there[LATEST + WITHDRAWN] is not None and tombstone_of(promotion) is None


def _encoded(marker: LatestMarker) -> bytes:
    return canonical_bytes(msgspec.to_builtins(marker)) + b"\n"


def _place(asset: Asset) -> tuple[str, ObjectAttributes]:
    return latest_key(asset.path), file_attributes(asset, latest=True)


def _keys_without(version: Version, paths: Iterator[str]) -> Iterator[str]:
    """The keys of those that the version does not have."""
    forest = version.pages.files_forest()
    while some := list(islice(paths, LOOKED_UP_MAX)):
        there = forest.lookup(version.files_id, some)
        yield from (latest_key(path) for path in some if path not in there)
