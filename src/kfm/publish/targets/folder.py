"""The published tree on a local disk: a version is built under a temporary name, durable, then shown.

    <dataset>/current -> .versions/00000012-0123456789ab
    <dataset>/.versions/00000012-0123456789ab/    a version
    <dataset>/.versions/.shared/…                 folders that large versions share
    <dataset>/.tickets/…                          projectors at work

A ticket is the fence: a process that is about to show a version, or to collect, removes those of others
first, and without its ticket a projector can't move `current`. Versions of before lie in `versions/`.
"""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.records import Promotion
from kfm.model.templates import safe_path
from kfm.model.versions import Version
from kfm.objects.local import CHUNK_BYTES
from kfm.ports import Files, Ids, Objects, PublishedVersions
from kfm.publish.catalogue import tombstone_of
from kfm.publish.catalogue.addresses import COLLECTION, MANIFEST, WITHDRAWN
from kfm.publish.catalogue.pages import Earlier
from kfm.publish.targets.folder_builder import (
    EarlierFolders,
    Linking,
    SharedFolders,
    VersionBuilder,
    file_sha256,
    read_file,
    remove_tree,
)
from kfm.publish.targets.folder_plan import ENTRIES_MAX, FolderPlan, is_shared
from kfm.system import os_trouble

ATTEMPTS_MAX = 50
TICKET_KILL_TRIES_MAX = 10
VERSIONS = ".versions"
PLACES = (VERSIONS, "versions")  # the second: of before, which is only read and collected
_BUILDING, _TRASH = ".building-", ".trash-"

HeadReader = Callable[[], tuple[Promotion, Version] | None]
History = Callable[[int], str | None]  # sequence → the version that this database promoted with it


def version_name(promotion: Promotion) -> str:
    """`00000012-0123456789ab`: in order of promotion, and telling what is inside."""
    return _name(promotion.sequence, promotion.version_id)


def _name(sequence: int, version_id: str) -> str:
    return f"{sequence:08d}-{version_id.removeprefix('sha256:')[:12]}"


def sequence_of(name: str) -> int:
    """The sequence in a version's name; raises ValueError for any other name."""
    digits, dash, rest = name.partition("-")
    if not (dash and rest and digits.isascii() and digits.isdigit()):
        raise ValueError(f"not the name of a version: {name!r}")
    return int(digits)


def is_known(name: str, known: Callable[[int], str | None]) -> bool:
    """Did this database promote the version of this name?"""
    sequence = sequence_of(name)
    version_id = known(sequence)
    return version_id is not None and _name(sequence, version_id) == name


def is_head(promotion: Promotion, head: HeadReader) -> bool:
    found = head()
    return found is not None and found[0].sequence == promotion.sequence


def require_folder_name(dataset_id: str) -> str:
    if "/" in dataset_id or safe_path(dataset_id) != dataset_id or dataset_id.startswith("."):
        raise TargetUnavailable(f"{dataset_id!r} can't be the name of a folder.")
    return dataset_id


class VersionFolder(NamedTuple):
    """A version that stands in a dataset's folder."""

    place: str  # one of PLACES
    name: str

    @property
    def sequence(self) -> int:
        return sequence_of(self.name)


class _Fenced(Exception):
    """Another projector removed our ticket: begin again, and read the head again."""


class LocalTree:
    """Projects heads into a folder on this machine."""

    def __init__(
        self,
        name: str,
        files: Files,
        objects: Objects,
        ids: Ids,
        path: str,
        *,
        linking: Linking = "versions",
    ) -> None:
        self.name = name
        self._path = path.rstrip("/") or "/"
        self._files = files.below(self._path)
        self._objects = objects
        self._ids = ids
        self._linking = linking

    def project(self, dataset_id: str, head: HeadReader, known: History | None = None) -> int | None:
        """Make `current` show the head; returns the sequence that it shows."""
        folder = self._folder(dataset_id)
        try:
            shown = self._shown_already(folder, head)
            for _ in range(0 if shown is not None else ATTEMPTS_MAX):
                with contextlib.suppress(_Fenced):
                    return self._attempt(folder, head, known)
        except OSError as error:
            error.filename = error.filename or folder
            trouble = os_trouble(error)
            raise TargetUnavailable(f"{self.name}: {trouble.text}", remedy=trouble.remedy) from error
        if shown is None:
            raise TargetUnavailable(
                f"{self.name}: fenced {ATTEMPTS_MAX} times by others at work on {folder}."
            )
        return shown or None

    def _folder(self, dataset_id: str) -> str:
        return f"{self._path}/{require_folder_name(dataset_id)}"

    def _shown_already(self, folder: str, head: HeadReader) -> int | None:
        """The common case: nothing to do, so nothing is written. 0: nothing was ever promoted."""
        found = head()
        if found is None:
            return 0
        if not self._stands(folder, *found):
            return None
        self._files.fsync_dir(folder)  # the process that moved the pointer may have died before this
        with contextlib.suppress(FileNotFoundError):
            self._kill_others(folder, "")  # other projectors at work here show an older one, or died
        return found[0].sequence

    # --- one attempt ---

    def _attempt(self, folder: str, head: HeadReader, known: History | None) -> int | None:
        self._files.make_dirs(f"{folder}/{VERSIONS}")
        self._files.make_dirs(f"{folder}/.tickets")
        mine = self._ids.new()
        ticket = f"{folder}/.tickets/{mine}"
        self._files.mkdir(ticket)
        try:
            found = head()  # only now: whatever is promoted from here on removes our ticket
            if found is None:
                return None
            return self._show(folder, mine, found, head, known)
        finally:
            self._drop_ticket(ticket)

    def _show(
        self,
        folder: str,
        mine: str,
        found: tuple[Promotion, Version],
        head: HeadReader,
        known: History | None,
    ) -> int:
        promotion, version = found
        shown = self._shown(folder)
        if shown is not None and known is not None and not is_known(shown.name, known):
            raise self._foreign(shown, promotion.sequence)
        if shown is not None and shown.name == version_name(promotion) and not self._stands(folder, *found):
            shown = None  # it is gone, or was altered: built and shown again
        if shown is not None and shown.sequence >= promotion.sequence:
            self._require_same_history(shown, head)
            self._files.fsync_dir(folder)
            return shown.sequence
        ticket = f"{folder}/.tickets/{mine}"
        try:
            self._build(folder, mine, promotion, version, self._base(folder, shown, known))
            self._kill_others(folder, ticket)
            self._point(folder, ticket, version_name(promotion))
        except FileNotFoundError as error:
            raise _Fenced from error
        except StoreCorrupt as error:
            if is_head(promotion, head):
                raise
            raise _Fenced from error  # so old by now that its objects were collected
        self._files.fsync_dir(folder)
        return promotion.sequence

    def _base(
        self, folder: str, shown: VersionFolder | None, known: History | None
    ) -> tuple[EarlierFolders, Earlier | None] | None:
        """The folders of the version that is shown, and what is in them, if that is known."""
        if shown is None or self._linking == "never":
            return None
        place = f"{folder}/{shown.place}/{shown.name}"
        if not self._files.exists(f"{place}/{MANIFEST}"):
            return None
        there = EarlierFolders(self._files, SharedFolders(self._files, f"{folder}/{VERSIONS}"), place)
        version = known.version(shown.sequence) if isinstance(known, PublishedVersions) else None
        if version is None or not self._holds(place, version.version_id, version):
            return there, None
        return there, Earlier(version, read_file(self._files, f"{place}/{COLLECTION}"))

    def _build(
        self,
        folder: str,
        mine: str,
        promotion: Promotion,
        version: Version,
        base: tuple[EarlierFolders, Earlier | None] | None,
    ) -> None:
        building = f"{folder}/{VERSIONS}/{_BUILDING}{mine}"
        final = f"{folder}/{VERSIONS}/{version_name(promotion)}"
        shared = SharedFolders(self._files, f"{folder}/{VERSIONS}", f"{promotion.sequence:08d}-{mine}")
        if not self._holds(final, promotion.version_id, version):
            there, earlier = base or (None, None)
            plan = FolderPlan(version, tombstone_of(promotion), earlier)
            sharing = shared if is_shared(version) and self._linking != "never" else None
            try:
                builder = VersionBuilder(
                    self._files, self._objects, building, linking=self._linking, earlier=there, shared=sharing
                )
                builder.build(plan)
                # What was linked is there as long as our ticket is: see `discard`.
                if not self._files.exists(f"{folder}/.tickets/{mine}"):
                    raise _Fenced
                if self._settle(folder, building, promotion, version):
                    shared.keep()
            finally:
                if self._files.exists(building):
                    remove_tree(self._files, building)
                shared.remove()
        self._files.fsync_dir(f"{folder}/{VERSIONS}")  # also when another process made it

    def _settle(self, folder: str, building: str, promotion: Promotion, version: Version) -> bool:
        """Give a version its name. False, if another projector was quicker: versions are immutable."""
        final = f"{folder}/{VERSIONS}/{version_name(promotion)}"
        for is_last in (False, True):
            try:
                self._files.rename(building, final)
            except OSError as error:
                if self._holds(final, promotion.version_id, version):
                    return False
                if not self._files.exists(building):
                    raise _Fenced from error
                if is_last:
                    raise
            else:
                return True
            # What stands there is not that version any more.
            self._trash(folder, VersionFolder(VERSIONS, version_name(promotion)))
        return False

    def _kill_others(self, folder: str, mine: str) -> None:
        for name in self._files.listdir(f"{folder}/.tickets"):
            if f"{folder}/.tickets/{name}" != mine:
                self._drop_ticket(f"{folder}/.tickets/{name}")
                self._trash(folder, VersionFolder(VERSIONS, f"{_BUILDING}{name}"))

    def _trash(self, folder: str, what: VersionFolder) -> bool:
        """Remove a folder of versions. Renamed before it is emptied: a version is whole or gone."""
        trash = f"{folder}/{what.place}/{_TRASH}{self._ids.new()}"
        try:
            self._files.rename(f"{folder}/{what.place}/{what.name}", trash)
        except FileNotFoundError:
            return False
        with contextlib.suppress(OSError):  # its owner may still be writing; what is left goes another time
            remove_tree(self._files, trash)
        return True

    def _drop_ticket(self, ticket: str) -> None:
        """Remove a ticket for good. Its owner puts one link into it at most once, so this ends."""
        for _ in range(TICKET_KILL_TRIES_MAX):
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(f"{ticket}/current")
            try:
                self._files.rmdir(ticket)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                return
        raise TargetUnavailable(f"{self.name}: {ticket} can't be removed.")

    def _point(self, folder: str, ticket: str, version: str) -> None:
        self._files.symlink(f"{VERSIONS}/{version}", f"{ticket}/current")
        self._files.rename(f"{ticket}/current", f"{folder}/current")

    # --- what is shown ---

    def stands(self, dataset_id: str, promotion: Promotion) -> bool:
        """Does `current` lead to this version? False if its folder is gone, or another's by now."""
        return self._stands(self._folder(dataset_id), promotion)

    def _stands(self, folder: str, promotion: Promotion, version: Version | None = None) -> bool:
        shown = self._shown(folder)
        return (
            shown is not None
            and shown.name == version_name(promotion)
            and self._holds(f"{folder}/{shown.place}/{shown.name}", promotion.version_id, version)
        )

    def _holds(self, place: str, version_id: str, version: Version | None) -> bool:
        """Is the version in this folder? Its manifest is looked at, and the shared folders at its top, not
        each of its files."""
        if file_sha256(self._files, f"{place}/{MANIFEST}") != version_id.removeprefix("sha256:"):
            return False
        if version is None or not is_shared(version):
            return True
        shared = SharedFolders(self._files, place.rpartition("/")[0])
        return all(
            self._files.exists(shared.place(name))
            if (name := shared.linked(f"{place}/{top}")) is not None
            else self._is_folder(f"{place}/{top}")
            for top in FolderPlan(version).top()
        )

    def _is_folder(self, place: str) -> bool:
        try:
            self._files.readlink(place)
        except OSError as error:
            return error.errno == errno.EINVAL
        return False

    def _shown(self, folder: str) -> VersionFolder | None:
        """The version that `current` shows."""
        try:
            target = self._files.readlink(f"{folder}/current")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise TargetUnavailable(f"{self.name}: {folder}/current is not ours; move it away.") from error
        shown = VersionFolder(*target.rpartition("/")[::2])
        try:
            if shown.place not in PLACES:
                raise ValueError
            sequence_of(shown.name)
        except ValueError:
            raise TargetUnavailable(
                f"{self.name}: {folder}/current points to {target}; move it away."
            ) from None
        return shown

    def _require_same_history(self, shown: VersionFolder, head: HeadReader) -> None:
        """A target that is ahead of its database belongs to another one, or to a lost past."""
        found = head()  # again: a newer one may have been promoted and shown meanwhile
        known = found[0].sequence if found else 0
        same = found is not None and (known > shown.sequence or version_name(found[0]) == shown.name)
        if not same:
            raise self._foreign(shown, known)

    def _foreign(self, shown: VersionFolder, at: int) -> TargetUnavailable:
        return TargetUnavailable(
            f"{self.name}: it shows {shown.name}, which is not of this database; the database is at {at}.",
            remedy="The target belongs to another state folder, or the state was lost or restored: "
            "give it another path, or remove its `current` and project again.",
        )

    # --- collecting ---

    def datasets(self) -> list[str]:
        try:
            names = self._files.listdir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in names if self._has_versions(f"{self._path}/{name}")]

    def _has_versions(self, folder: str) -> bool:
        return any(self._files.exists(f"{folder}/{place}") for place in PLACES)

    def versions(self, dataset_id: str) -> list[tuple[str, int]]:
        """Names and sequences of the finished versions that stand there."""
        standing = self._standing(self._folder(dataset_id))
        names = {one.name for one in standing if not one.name.startswith(".")}
        return [(name, sequence_of(name)) for name in sorted(names)]

    def shown_tombstone(self, dataset_id: str) -> bytes | None:
        """The document about what is withdrawn from the version that `current` shows; None: nothing is."""
        folder = self._folder(dataset_id)
        shown = self._shown(folder)
        if shown is None:
            return None
        try:
            file = self._files.open(f"{folder}/{shown.place}/{shown.name}/{WITHDRAWN}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return b"".join(iter(lambda: file.read(CHUNK_BYTES), b""))
        finally:
            file.close()

    def _standing(self, folder: str) -> Iterator[VersionFolder]:
        """Versions, and what is left of unfinished ones."""
        for place in PLACES:
            try:
                names = self._files.listdir(f"{folder}/{place}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name in names:
                if name.startswith((_BUILDING, _TRASH)):
                    yield VersionFolder(place, name)
                with contextlib.suppress(ValueError):
                    sequence_of(name)
                    yield VersionFolder(place, name)

    def discard(
        self, dataset_id: str, names: Iterable[str], check: Callable[[], None] = lambda: None
    ) -> list[str]:
        """Remove old versions, what only they had of shared folders, and what dead projectors left; returns
        the names of the versions that were removed.

        Tickets go before anything else: a projector that is about to show one of these begins again and reads
        a head that is kept. What is shown is read before that: a projector whose ticket comes later builds on
        that version, or on a newer one. Folders are renamed before they are emptied: a version is whole or
        gone.
        """
        folder = self._folder(dataset_id)
        try:
            shown = self._shown(folder)
            self._kill_others(folder, "")
            return self._discard(folder, shown, set(names), check)
        except OSError as error:
            error.filename = error.filename or folder
            trouble = os_trouble(error)
            raise TargetUnavailable(f"{self.name}: {trouble.text}", remedy=trouble.remedy) from error

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Remove these versions; returns how many were there. Their files lie in their folders, so none is
        left over. TargetUnavailable where one has to stay."""
        del blobs
        check()
        folder, names = self._folder(dataset_id), {version_name(promotion) for promotion in gone}
        if not self._has_versions(folder):
            return 0
        removed = self.discard(dataset_id, names, check)
        if left := sorted({one.name for one in self._standing(folder)} & names):
            raise TargetUnavailable(
                f"{self.name}: {left[0]} of {dataset_id} can't go while `current` shows nothing newer.",
                remedy="`kfm project` makes it show the head; then the rest is removed.",
            )
        return len(removed)

    def _discard(
        self, folder: str, shown: VersionFolder | None, names: set[str], check: Callable[[], None]
    ) -> list[str]:
        self._files.fsync_dir(folder)  # before what it replaced goes: a power cut must not bring that back
        shared = SharedFolders(self._files, f"{folder}/{VERSIONS}")
        # Listed before unfinished versions go: what is made from here on is not among them.
        candidates = shared.names()
        removed = []
        for one in list(self._standing(folder)):
            is_version = not one.name.startswith(".")
            if is_version and not (one.name in names and shown and one.sequence < shown.sequence):
                continue
            check()
            if self._trash(folder, one) and is_version:
                removed.append(one.name)
        if candidates:
            self._sweep(folder, shared, candidates, check)
        with contextlib.suppress(OSError):
            self._files.rmdir(f"{folder}/{PLACES[1]}")  # once nothing of before is left
        return removed

    def _sweep(
        self, folder: str, shared: SharedFolders, candidates: list[str], check: Callable[[], None]
    ) -> None:
        """Remove the shared folders that no version leads to. Durably without those that did, before."""
        self._files.fsync_dir(f"{folder}/{VERSIONS}")
        standing = [one for one in self._standing(folder) if one.place == VERSIONS]
        kept = shared.reached(f"{folder}/{VERSIONS}/{one.name}" for one in standing)
        for name in candidates:
            if name not in kept:
                check()
                remove_tree(self._files, shared.place(name))


def crowded(version: Version, most: int = ENTRIES_MAX) -> list[tuple[str, int]]:
    """(folder, entries) of the folders of files with more than so many: each change in one makes it anew."""
    entries: Counter[str] = Counter()
    seen: set[str] = set()
    for path, _, _ in version.files():
        folder = path.rpartition("/")[0]
        entries[folder] += 1
        while folder and folder not in seen:
            seen.add(folder)
            folder = folder.rpartition("/")[0]
            entries[folder] += 1
    return sorted((folder, count) for folder, count in entries.items() if count > most)
