"""The published tree in a bucket. Its addresses are in `bucket_layout`.

Everything but the pointer and `latest/` is written once: what differs between the version that the pointer
shows and the head is sent, then the pointer is moved. Where something is withdrawn, the version has a
`withdrawn.json`, and the pointer leads to it.

The pointer's ETag is the fence: it is read before the head, and the put is refused if anybody moved
the pointer since. So what is replaced is what was read, and what was read had a lower sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Protocol

import msgspec

from kfm.model.bucket_options import LatestContents
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import BackendUnavailable, CircuitOpen, StoreCorrupt, TargetUnavailable
from kfm.model.records import Asset, Manifest, ObjectStat, Promotion
from kfm.model.trees import EMPTY, Forest
from kfm.model.version_trees import files_forest
from kfm.model.versions import Version, VersionPages, VersionRoot
from kfm.ports import Bucket, ObjectAttributes, Objects, Progress, PublishedVersions
from kfm.publish.catalogue import HashedDocuments, encode, tombstone_of
from kfm.publish.catalogue.addresses import COLLECTION, DCAT, MANIFEST, WITHDRAWN, hashed_asset_name
from kfm.publish.catalogue.pages import Earlier
from kfm.publish.targets.bucket_latest import LatestFolder
from kfm.publish.targets.bucket_layout import (
    BLOBS,
    CATALOGUE,
    FILES,
    ITEMS,
    LATEST_FILES,
    LAYOUT,
    PAGES,
    POINTER,
    VERSIONS,
    Pointer,
    blob_key,
    file_attributes,
    hash_in,
    page_key,
)
from kfm.publish.targets.bucket_objects import Assets, DatasetObjects
from kfm.publish.targets.bucket_reach import BucketReach
from kfm.publish.targets.folder import (
    HeadReader,
    History,
    is_head,
    require_folder_name,
    sequence_of,
    version_name,
)
from kfm.publish.targets.shown import ShownVersion, is_done

ATTEMPTS_MAX = 20
SHOWN_MIN = 100  # uploads that are shorter show no progress
PAGES_MAX = 256  # pages of a tree that are read at once
PROBE = ".kfm-conditional-put"
_NO_ETAG = '"00000000000000000000000000000000"'

Check = Callable[[], None]


class Kept(Protocol):
    """What is kept of a dataset, as the ledger knows it."""

    @property
    def sequences(self) -> Collection[int]: ...
    @property
    def blobs(self) -> Collection[str]: ...
    @property
    def is_earlier_name(self) -> bool:
        """Of a dataset that goes by another name now: no version comes here any more."""


class BucketTree:
    """Projects heads into a bucket, by way of anything that has a conditional put."""

    def __init__(
        self,
        name: str,
        bucket: Bucket,
        objects: Objects,
        prefix: str = "",
        progress: Progress | None = None,
        latest: LatestContents = "documents",
    ) -> None:
        self.name = name
        self._progress = progress
        self._bucket = bucket
        self._objects = objects
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._latest = latest
        self._is_probed = False

    def project(self, dataset_id: str, head: HeadReader, known: History | None = None) -> int | None:
        """Make `current.json` show the head; returns the sequence that it shows."""
        there = self._of(dataset_id)
        with self._reached():
            for _ in range(ATTEMPTS_MAX):
                shown, etag = self._shown(there)
                found = head()  # only now: a pointer moved from here on makes our put fail
                if found is None:
                    return None
                if not shown or not self._is_done(shown, found[0], known):
                    self._require_conditions()
                    base = _base(there, shown, known)
                    if not self._uploaded(there, found, base, head) or not self._point(there, found[0], etag):
                        continue
                self._keep_latest(there, found[0], head, known)
                return found[0].sequence
        raise TargetUnavailable(f"{self.name}: the pointer moved {ATTEMPTS_MAX} times under our hands.")

    def _is_done(self, shown: Pointer, promotion: Promotion, known: History | None) -> bool:
        version = ShownVersion(shown.sequence, shown.version_id)
        return is_done(self.name, version, promotion, known, f"its {POINTER}")

    def _shown(self, there: DatasetObjects) -> tuple[Pointer | None, str | None]:
        found = there.tagged(POINTER)
        if found is None:
            return None, None
        if not found[1]:
            raise TargetUnavailable(
                f"{self.name}: the bucket gives no ETag, so the pointer can't be moved safely."
            )
        try:
            return msgspec.json.decode(found[0], type=Pointer), found[1]
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise TargetUnavailable(f"{self.name}: its {POINTER} is not ours; move it away.") from error

    def _require_conditions(self) -> None:
        """Once: does the store refuse a put whose condition does not hold? Some take it and ignore that."""
        if self._is_probed:
            return
        key, text = self._prefix + PROBE, b"Puts on conditions are tried with this object.\n"
        is_new = self._bucket.put(key, text, if_none_match=True)
        ignored = (is_new and self._bucket.put(key, text, if_none_match=True)) or self._bucket.put(
            key, text, if_match=_NO_ETAG
        )
        if ignored:
            raise TargetUnavailable(
                f"{self.name}: the store ignores conditions of puts (If-Match, If-None-Match), so two "
                "processes could overwrite each other's pointer.",
                remedy="Use a store that keeps them, or switch them on; see the option `conditional_put`.",
            )
        self._is_probed = True

    # --- uploading ---

    def _uploaded(
        self, there: DatasetObjects, found: tuple[Promotion, Version], base: Earlier | None, head: HeadReader
    ) -> bool:
        try:
            self._upload(there, *found, base)
        except StoreCorrupt:
            if is_head(found[0], head):
                raise
            return False  # so old by now that its objects were collected: begin again
        return True

    def _upload(
        self, there: DatasetObjects, promotion: Promotion, version: Version, base: Earlier | None
    ) -> None:
        """Everything that the pointer will lead to and the version that it shows does not have: what leads to
        another comes after it. What else is there already is equal, by its name."""
        made = HashedDocuments(version, base, there.get)
        files = _new_files(made)
        items = len(version) if made.pages.is_fresh else len(made.pages.changes)
        progress = self._progress if len(files) + items >= SHOWN_MIN else None
        if progress is not None:
            progress.phase(f"upload to {self.name}", len(files) + items)
        for keys in chain(
            there.put_files(version, files, _place),
            there.put_documents(_tree_pages(version, base)),
            there.put_documents(made.new()),
            there.put_documents(_own(made, version, promotion)),
        ):
            if progress is not None:
                progress.advance(sum(key.startswith((FILES, ITEMS)) for key in keys))
        if progress is not None:
            progress.done()

    def _point(self, there: DatasetObjects, promotion: Promotion, etag: str | None) -> bool:
        folder = f"{VERSIONS}{version_name(promotion)}/"
        pointer = Pointer(
            pointer=1,
            dataset_id=promotion.dataset_id,
            sequence=promotion.sequence,
            version_id=promotion.version_id,
            manifest=folder + MANIFEST,
            collection=folder + COLLECTION,
            withdrawn=folder + WITHDRAWN if tombstone_of(promotion) else msgspec.UNSET,
            layout=LAYOUT,
        )
        return there.put_if(POINTER, canonical_bytes(msgspec.to_builtins(pointer)) + b"\n", etag)

    def _keep_latest(
        self, there: DatasetObjects, promotion: Promotion, head: HeadReader, known: History | None
    ) -> None:
        folder = LatestFolder(self.name, there, self._latest, lambda: self._shown(there)[0])
        folder.update(promotion, head, known)

    # --- collecting ---

    def versions(self, dataset_id: str) -> list[tuple[str, int]]:
        """Names and sequences of the versions that have documents there."""
        with self._reached():
            return [(name, sequence_of(name)) for name in _versions(self._of(dataset_id))]

    def discard(self, dataset_id: str, names: Iterable[str], check: Check = lambda: None) -> list[str]:
        """Remove the documents of old versions; returns the names of those that were there.

        Older than what the pointer shows: a projector that still works on one of them can't move the pointer
        any more, since its ETag is another by now."""
        there = self._of(dataset_id)
        removed = []
        with self._reached():
            shown, _ = self._shown(there)
            for name in names:
                if shown is None or sequence_of(name) >= shown.sequence:
                    continue
                if _remove_documents(there, name, check):
                    removed.append(name)
        return removed

    def unneeded(self, dataset_id: str, kept: Kept, before_ms: int) -> Iterator[ObjectStat]:
        """What is shared between versions, is needed by none that is kept, and was put before then.

        None while the pointer shows an older version than the oldest that is kept: a reader may be there, and
        a projector may show the next. Which items and pages a version needs is read from those that are here,
        so these stay until the newest one is."""
        there = self._of(dataset_id)
        with self._reached():
            shown, _ = self._shown(there)
            oldest, newest = min(kept.sequences, default=0), max(kept.sequences, default=0)
            is_emptied = shown is not None and not _has_items(there, shown)
            if shown is None or (shown.sequence < oldest and not is_emptied):
                return
            here = _versions(there)
            names = {name for name in here if sequence_of(name) >= oldest} | {_version_of(shown)}
            yield from _old(there, (FILES,), kept.blobs, before_ms)
            is_before = any(here.get(name) for name in names)
            yield from _old(there, (BLOBS,), kept.blobs if is_before else (), before_ms)
            if shown.sequence < newest and not (is_emptied and kept.is_earlier_name):
                return
            reach = BucketReach(self.name, there).add(sorted(names))
            yield from _old(there, (CATALOGUE, ITEMS, PAGES), reach, before_ms)

    def sweep(
        self, dataset_id: str, kept: Kept, before_ms: int, check: Check = lambda: None
    ) -> Iterator[ObjectStat]:
        """Remove what is unneeded, and tell of each."""
        there = self._of(dataset_id)
        for stat in self.unneeded(dataset_id, kept, before_ms):
            check()
            with self._reached():
                there.delete(stat.key)
            yield stat

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Check = lambda: None,
    ) -> int:
        """Remove these versions with what only they lead to, and these files; returns how many objects were
        removed. What leads to the rest goes last: what is left after an interruption is found again."""
        there, removed = self._of(dataset_id), 0
        names = {version_name(promotion) for promotion in gone}
        with self._reached():
            for key in self._purged(there, names, blobs):
                check()
                there.delete(key)
                removed += 1
        return removed

    def _purged(self, there: DatasetObjects, names: set[str], blobs: Collection[str]) -> Iterator[str]:
        """Keys, in the order in which they go."""
        here, (shown, _) = _versions(there).keys(), self._shown(there)
        stay = (here - names) | ({_version_of(shown)} if shown is not None else set())
        alive = BucketReach(self.name, there).add(sorted(stay))
        doomed = BucketReach(self.name, there, going=True).add(sorted(here & names))
        # Older ones that nothing leads to are of versions whose documents went before. A projector at work
        # has put its own after the pointer was moved last.
        before_ms = there.modified_ms(POINTER) or 0
        for prefix in (PAGES, CATALOGUE, ITEMS):
            for stat in there.list(prefix):
                sha256 = hash_in(stat.key)
                if sha256 is None or sha256 in alive:
                    continue
                if sha256 in doomed or (stat.modified_ms is not None and stat.modified_ms < before_ms):
                    yield stat.key
            if prefix == PAGES:
                yield from (f"{VERSIONS}{name}/{MANIFEST}" for name in sorted(here & names))
        for sha256 in sorted(blobs):
            yield from (stat.key for stat in there.list(f"{FILES}{sha256}/"))
            if there.modified_ms(blob_key(sha256)) is not None:
                yield blob_key(sha256)
        if shown is not None:
            yield from _strays(there, shown)
        for name in sorted(here & names):
            yield from _documents_of(there, name)

    # --- the bucket ---

    def _of(self, dataset_id: str) -> DatasetObjects:
        root = f"{self._prefix}{require_folder_name(dataset_id)}/"
        return DatasetObjects(self._bucket, root, self._objects)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Trouble of the bucket is the target's."""
        try:
            yield
        except (StoreCorrupt, TargetUnavailable, CircuitOpen):
            raise
        except (BackendUnavailable, OSError) as error:
            raise TargetUnavailable(f"{self.name}: {error}") from error


# --- what is sent ------------------------------------------------------------------------


def _base(there: DatasetObjects, shown: Pointer | None, known: History | None) -> Earlier | None:
    """The version that the pointer shows, which was found to be of this database: what it leads to was there
    when it was pointed at, and collection leaves it. None, if it is in another layout, or not known."""
    if shown is None or shown.layout != LAYOUT or not isinstance(known, PublishedVersions):
        return None
    version = known.version(shown.sequence)
    collection = there.get(shown.collection)
    return Earlier(version, collection) if version is not None and collection is not None else None


def _new_files(made: HashedDocuments) -> Assets:
    """The files of items that differ, unless the item had them before."""
    found: dict[tuple[str, str], Assets] = {}
    for before, after in made.pages.changes:
        old = {_told(asset) for asset in before.assets} if before is not None else set()
        for asset in after.assets if after is not None else ():
            assert after is not None
            if _told(asset) not in old:
                found[_told(asset)[:2]] = [(after, asset)]
    return [one for some in found.values() for one in some]


def _told(asset: Asset) -> tuple[str, str, str]:
    """Its address, and its type, which is told with it."""
    return asset.sha256, asset.path.rpartition("/")[2], asset.media_type


def _place(asset: Asset) -> tuple[str, ObjectAttributes]:
    return hashed_asset_name(asset), file_attributes(asset)


def _tree_pages(version: Version, base: Earlier | None) -> Iterator[tuple[str, bytes]]:
    """The pages of the tree of files that the shown version does not have, those below before those above."""
    if version.form == 1:
        return  # its manifest lists all files
    if version.files_id == EMPTY:
        yield page_key(EMPTY), b"[0,[]]"
        return
    old = base.version if base is not None and base.version.form == version.form else None
    pages = VersionPages(version.pages, old.pages) if old is not None else version.pages
    new = iter(
        _fresh_pages(pages.files_forest(), old.files_id if old is not None else EMPTY, version.files_id)
    )
    while some := list(islice(new, PAGES_MAX)):
        bodies = version.pages.bodies(some)
        for page_id in some:
            yield page_key(page_id), bodies[page_id].encode()


def _fresh_pages(forest: Forest, old: str, new: str) -> list[str]:
    """The pages of a tree that another one does not have, from its leaves upwards. What both share is not
    read."""
    there, level = [old], forest.node(old).level
    here, depth = [new], forest.node(new).level
    found: list[str] = []
    while level > depth:
        there, level = _below(forest, there), level - 1
    while True:
        if level == depth:
            shared = set(there) & set(here)
            there = [one for one in there if one not in shared]
            here = [one for one in here if one not in shared]
        found = here + found
        if depth == 0:
            return found
        here, depth = _below(forest, here), depth - 1
        if level > depth:
            there, level = _below(forest, there), level - 1


def _below(forest: Forest, page_ids: Iterable[str]) -> list[str]:
    return [row[1] for one in page_ids for row in forest.node(one).rows]


def _own(made: HashedDocuments, version: Version, promotion: Promotion) -> Iterator[tuple[str, bytes]]:
    """The documents that each version has for itself."""
    folder = f"{VERSIONS}{version_name(promotion)}/"
    yield folder + MANIFEST, b"".join(version.pieces())
    yield folder + COLLECTION, made.collection("../../")
    yield folder + DCAT, made.dcat("../../", "./")
    stands = tombstone_of(promotion)
    if stands is not None:
        yield folder + WITHDRAWN, encode(stands)


# --- what is removed ---------------------------------------------------------------------


def _versions(there: DatasetObjects) -> dict[str, bool]:
    """Names, in order, of the versions that have documents there; is it in the layout of before, with its own
    items?"""
    found: dict[str, bool] = {}
    for stat in there.list(VERSIONS):
        name, _, rest = stat.key[len(VERSIONS) :].partition("/")
        with suppress(ValueError):
            sequence_of(name)
            found[name] = found.get(name, False) or rest.startswith(ITEMS)
    return dict(sorted(found.items()))


def _version_of(shown: Pointer) -> str:
    return shown.manifest[len(VERSIONS) :].partition("/")[0]


def _has_items(there: DatasetObjects, shown: Pointer) -> bool:
    """Under an earlier name of a dataset, or of one that was withdrawn, the pointer shows none."""
    found = _manifest(there, shown)
    if isinstance(found, VersionRoot):
        return found.items.count > 0
    return found is None or bool(found.items)


def _manifest(there: DatasetObjects, shown: Pointer) -> VersionRoot | Manifest | None:
    """Of what the pointer shows, in the form that it has; None: it can't be read."""
    found = there.get(shown.manifest) or b""
    unreadable = (msgspec.DecodeError, UnicodeError, RecursionError)
    with suppress(*unreadable):
        return msgspec.json.decode(found, type=VersionRoot)
    with suppress(*unreadable):
        return msgspec.json.decode(found, type=Manifest)
    return None


def _old(
    there: DatasetObjects, prefixes: Iterable[str], needed: Collection[str] | BucketReach, before_ms: int
) -> Iterator[ObjectStat]:
    for prefix in prefixes:
        for stat in there.list(prefix):
            sha256 = hash_in(stat.key)
            is_old = stat.modified_ms is not None and stat.modified_ms < before_ms
            if is_old and sha256 is not None and sha256 not in needed:
                yield stat


def _remove_documents(there: DatasetObjects, name: str, check: Check) -> int:
    removed = 0
    for key in _documents_of(there, name):
        check()
        there.delete(key)
        removed += 1
    return removed


def _documents_of(there: DatasetObjects, name: str) -> list[str]:
    """Manifest first: a version that a reader finds by its address is whole, or has no manifest."""
    keys = (stat.key for stat in there.list(f"{VERSIONS}{name}/"))
    return sorted(keys, key=lambda key: (not key.endswith(f"/{MANIFEST}"), key))


def _strays(there: DatasetObjects, shown: Pointer) -> Iterator[str]:
    """Files in `latest/` that the version which is shown does not have: a late put of another process."""
    listed = (stat.key for stat in there.list(LATEST_FILES))
    first = next(listed, None)
    manifest = _manifest(there, shown) if first is not None else None
    if first is None or manifest is None:
        return
    keys, has = chain([first], listed), _looked_up(there, manifest)
    while some := list(islice(keys, PAGES_MAX)):
        have = has([key[len(LATEST_FILES) :] for key in some])
        yield from (key for key in some if key[len(LATEST_FILES) :] not in have)


def _looked_up(
    there: DatasetObjects, manifest: VersionRoot | Manifest
) -> Callable[[list[str]], Collection[str]]:
    """Those of some paths that a version has."""
    if isinstance(manifest, Manifest):
        return lambda _paths: {asset.path for item in manifest.items for asset in item.assets}

    def load(page_id: str) -> str:
        found = there.get(page_key(page_id))
        if found is None:
            raise TargetUnavailable(f"{page_key(page_id)} of the version that is shown is missing.")
        return found.decode()

    forest = files_forest(load)
    return lambda paths: forest.lookup(manifest.files.tree, paths)
