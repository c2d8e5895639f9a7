"""The published tree on a local disk: a version is built under a temporary name, durable, then shown."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.gates import force_command
from kfm.model.next_steps import run_command
from kfm.model.records import Asset, Item, Manifest, Promotion
from kfm.model.templates import safe_path
from kfm.ports import Files, Ids, Objects
from kfm.publish.catalogue import Tombstone, documents, in_data_folder, tombstone_of
from kfm.system import os_trouble

Linking = Literal["versions", "objects", "never"]

COPY_BYTES = 1024 * 1024
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
# Where a hard link can't be made, a copy serves: other file system, too many links, not supported.
_UNLINKABLE = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOENT)
ATTEMPTS_MAX = 50
TICKET_KILL_TRIES_MAX = 10


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


class VersionBuilder:
    """Writes one version's files into a folder that is not published yet.

    Folders are made one by one, never with their parents: when another process moves the unfinished
    folder away, the next step fails instead of beginning a second, incomplete one.
    """

    def __init__(
        self, files: Files, objects: Objects, into: str, earlier: str | None, linking: Linking
    ) -> None:
        self._files = files
        self._objects = objects
        self._into = into
        self._earlier = earlier if linking != "never" else None
        self._linking = linking
        self._folders: dict[str, None] = {}  # in the order in which they were made

    def build(self, manifest: Manifest, tombstone: Tombstone | None = None) -> None:
        """Everything of this version, durable when this returns (but for the folder's own name)."""
        self._files.mkdir(self._into)
        self._folders = {self._into: None}
        known = self._earlier_assets()
        for name, data in documents(manifest, in_data_folder, tombstone).items():
            self._place_document(name, data)
        for item in manifest.items:
            for asset in item.assets:
                try:
                    self._place_asset(asset, known)
                except StoreCorrupt as error:
                    raise lost(manifest, item, error) from error
        for folder in reversed(list(self._folders)):
            self._files.fsync_dir(folder)

    def _path(self, name: str) -> str:
        """The path of a file to be, with its folders made."""
        folder = self._into
        for part in safe_path(name).split("/")[:-1]:
            folder = f"{folder}/{part}"
            if folder not in self._folders:
                self._files.mkdir(folder)
                self._folders[folder] = None
        return f"{self._into}/{name}"

    def _place_document(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if self._earlier and self._holds(f"{self._earlier}/{name}", data):
            with contextlib.suppress(_CannotLink):
                return self._link(f"{self._earlier}/{name}", path)
        self._write(path, data)
        return None

    def _place_asset(self, asset: Asset, known: Mapping[str, str]) -> None:
        path = self._path(f"data/{asset.path}")
        for candidate in self._candidates(asset, known):
            # Anybody may have edited it in place: a link would carry that on.
            if file_sha256(self._files, candidate) == asset.sha256:
                with contextlib.suppress(_CannotLink):
                    return self._link(candidate, path)
        self._copy(asset, path)
        return None

    def _candidates(self, asset: Asset, known: Mapping[str, str]) -> list[str]:
        found = []
        if self._linking == "objects" and (stored := self._objects.local_path(asset.sha256)):
            found.append(stored)
        if asset.sha256 in known:
            found.append(f"{self._earlier}/data/{known[asset.sha256]}")
        return found

    def _earlier_assets(self) -> dict[str, str]:
        """What an earlier version holds, by hash: unchanged files need no second copy."""
        if self._earlier is None:
            return {}
        data = read_file(self._files, f"{self._earlier}/manifest.json")
        try:
            manifest = msgspec.json.decode(data or b"", type=Manifest)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {}
        return {asset.sha256: asset.path for item in manifest.items for asset in item.assets}

    def _holds(self, path: str, data: bytes) -> bool:
        return read_file(self._files, path, bytes_max=len(data)) == data

    def _link(self, old: str, new: str) -> None:
        try:
            self._files.link(old, new)
        except OSError as error:
            if error.errno in _UNLINKABLE and self._files.exists(self._into):
                raise _CannotLink from error
            raise

    def _write(self, path: str, data: bytes) -> None:
        writer = self._files.create(path)
        try:
            writer.write(data)
            writer.fsync()
        finally:
            writer.close()

    def _copy(self, asset: Asset, path: str) -> None:
        """Copy the object, and compare what passes by with what the manifest promises."""
        digest, size = hashlib.sha256(), 0
        reader = self._objects.open(asset.sha256)
        try:
            writer = self._files.create(path)
            try:
                while data := reader.read(COPY_BYTES):
                    digest.update(data)
                    size += len(data)
                    writer.write(data)
                writer.fsync()
            finally:
                writer.close()
        finally:
            reader.close()
        if digest.hexdigest() != asset.sha256 or size != asset.size:
            raise StoreCorrupt(f"Object sha256:{asset.sha256} of {asset.path} holds other bytes.")


class _CannotLink(Exception):
    pass


def file_sha256(files: Files, path: str) -> str | None:
    """The hash of what stands there; None if no file does."""
    digest = hashlib.sha256()
    try:
        reader = files.open(path)
        try:
            while data := reader.read(COPY_BYTES):
                digest.update(data)
        finally:
            reader.close()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return digest.hexdigest()


def lost(manifest: Manifest, item: Item, error: StoreCorrupt) -> StoreCorrupt:
    """An object of a promoted version is missing or damaged: whose it is, and how it comes back."""
    return StoreCorrupt(
        f"{manifest.dataset_id}, item {item.id}: {error.detail}",
        remedy="Bring the object back from a copy of the objects folder and run `kfm project`; or "
        "fetch its window again: "
        f"`{force_command(run_command(item.source_id, item.window_start_ms, item.window_end_ms))}`.",
    )


def read_file(files: Files, path: str, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes | None:
    """A file's bytes; None if it is not there or longer than allowed."""
    try:
        reader = files.open(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    parts, size = [], 0
    try:
        while data := reader.read(COPY_BYTES):
            parts.append(data)
            size += len(data)
            if size > bytes_max:
                return None
    except IsADirectoryError:
        return None
    finally:
        reader.close()
    return b"".join(parts)


def remove_tree(files: Files, path: str) -> None:
    """Remove a file, a link or a folder with all that is in it; links are not followed."""
    try:
        files.unlink(path)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        pass
    with contextlib.suppress(FileNotFoundError):
        for name in files.listdir(path):
            remove_tree(files, f"{path}/{name}")
        files.rmdir(path)


def is_head(promotion: Promotion, head: Callable[[], tuple[Promotion, Manifest] | None]) -> bool:
    found = head()
    return found is not None and found[0].sequence == promotion.sequence


def require_folder_name(dataset_id: str) -> str:
    if "/" in dataset_id or safe_path(dataset_id) != dataset_id or dataset_id.startswith("."):
        raise TargetUnavailable(f"{dataset_id!r} can't be the name of a folder.")
    return dataset_id


HeadReader = Callable[[], tuple[Promotion, Manifest] | None]
History = Callable[[int], str | None]  # sequence → the version that this database promoted with it


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
        if not self._stands(folder, found[0]):
            return None
        self._files.fsync_dir(folder)  # the process that moved the pointer may have died before this
        with contextlib.suppress(FileNotFoundError):
            self._kill_others(folder, "")  # other projectors at work here show an older one, or died
        return found[0].sequence

    # --- one attempt ---

    def _attempt(self, folder: str, head: HeadReader, known: History | None) -> int | None:
        self._files.make_dirs(f"{folder}/versions")
        self._files.make_dirs(f"{folder}/.tickets")
        mine = self._ids.new()
        ticket, building = f"{folder}/.tickets/{mine}", f"{folder}/versions/.building-{mine}"
        self._files.mkdir(ticket)
        try:
            found = head()  # only now: whatever is promoted from here on removes our ticket
            if found is None:
                return None
            return self._show(folder, ticket, building, found, head, known)
        finally:
            self._drop_ticket(ticket)
            if self._files.exists(building):
                remove_tree(self._files, building)

    def _show(
        self,
        folder: str,
        ticket: str,
        building: str,
        found: tuple[Promotion, Manifest],
        head: HeadReader,
        known: History | None,
    ) -> int:
        promotion, manifest = found
        shown = self._shown(folder)
        if shown is not None and known is not None and not is_known(shown, known):
            raise self._foreign(shown, promotion.sequence)
        if shown == version_name(promotion) and not self._stands(folder, promotion):
            shown = None  # it is gone, or was altered: built and shown again
        if shown is not None and sequence_of(shown) >= promotion.sequence:
            self._require_same_history(shown, head)
            self._files.fsync_dir(folder)
            return sequence_of(shown)
        try:
            self._build(folder, building, promotion, manifest, shown)
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

    def _build(
        self, folder: str, building: str, promotion: Promotion, manifest: Manifest, shown: str | None
    ) -> None:
        final = f"{folder}/versions/{version_name(promotion)}"
        if not self._holds(final, promotion):
            earlier = f"{folder}/versions/{shown}" if shown else None
            builder = VersionBuilder(self._files, self._objects, building, earlier, self._linking)
            builder.build(manifest, tombstone_of(promotion))
            self._settle(folder, building, promotion)
        self._files.fsync_dir(f"{folder}/versions")  # also when another process made it

    def _settle(self, folder: str, building: str, promotion: Promotion) -> None:
        """Give a version its name, unless another projector was quicker: versions are immutable."""
        final = f"{folder}/versions/{version_name(promotion)}"
        for is_last in (False, True):
            try:
                return self._files.rename(building, final)
            except OSError as error:
                if self._holds(final, promotion):
                    return None
                if not self._files.exists(building):
                    raise _Fenced from error
                if is_last:
                    raise
            self._trash(folder, version_name(promotion))  # what stands there is not that version any more
        return None

    def _kill_others(self, folder: str, mine: str) -> None:
        for name in self._files.listdir(f"{folder}/.tickets"):
            if f"{folder}/.tickets/{name}" != mine:
                self._drop_ticket(f"{folder}/.tickets/{name}")
                self._trash(folder, f".building-{name}")

    def _trash(self, folder: str, name: str) -> bool:
        """Remove a folder of versions. Renamed before it is emptied: a version is whole or gone."""
        trash = f"{folder}/versions/.trash-{self._ids.new()}"
        try:
            self._files.rename(f"{folder}/versions/{name}", trash)
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
        self._files.symlink(f"versions/{version}", f"{ticket}/current")
        self._files.rename(f"{ticket}/current", f"{folder}/current")

    # --- what is shown ---

    def stands(self, dataset_id: str, promotion: Promotion) -> bool:
        """Does `current` lead to this version? False if its folder is gone, or another's by now."""
        return self._stands(self._folder(dataset_id), promotion)

    def _stands(self, folder: str, promotion: Promotion) -> bool:
        name = version_name(promotion)
        return self._shown(folder) == name and self._holds(f"{folder}/versions/{name}", promotion)

    def _holds(self, version: str, promotion: Promotion) -> bool:
        """Is the version in this folder? Its manifest is looked at, not each of its files."""
        return file_sha256(self._files, f"{version}/manifest.json") == promotion.version_id.removeprefix(
            "sha256:"
        )

    def _shown(self, folder: str) -> str | None:
        """The name of the version that `current` shows."""
        try:
            target = self._files.readlink(f"{folder}/current")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise TargetUnavailable(f"{self.name}: {folder}/current is not ours; move it away.") from error
        name = target.removeprefix("versions/")
        try:
            sequence_of(name)
        except ValueError:
            raise TargetUnavailable(
                f"{self.name}: {folder}/current points to {target}; move it away."
            ) from None
        return name

    def _require_same_history(self, shown: str, head: HeadReader) -> None:
        """A target that is ahead of its database belongs to another one, or to a lost past."""
        found = head()  # again: a newer one may have been promoted and shown meanwhile
        known = found[0].sequence if found else 0
        same = found is not None and (known > sequence_of(shown) or version_name(found[0]) == shown)
        if not same:
            raise self._foreign(shown, known)

    def _foreign(self, shown: str, at: int) -> TargetUnavailable:
        return TargetUnavailable(
            f"{self.name}: it shows {shown}, which is not of this database; the database is at {at}.",
            remedy="The target belongs to another state folder, or the state was lost or restored: "
            "give it another path, or remove its `current` and project again.",
        )

    # --- collecting ---

    def datasets(self) -> list[str]:
        try:
            names = self._files.listdir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in names if self._files.exists(f"{self._path}/{name}/versions")]

    def versions(self, dataset_id: str) -> list[tuple[str, int]]:
        """Names and sequences of the finished versions that stand there."""
        try:
            names = self._files.listdir(f"{self._folder(dataset_id)}/versions")
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = []
        for name in names:
            with contextlib.suppress(ValueError):
                found.append((name, sequence_of(name)))
        return found

    def discard(self, dataset_id: str, names: Iterable[str]) -> list[str]:
        """Remove old versions, and what dead projectors left; returns what was removed.

        Tickets go first: a projector that is about to show one of these begins again and reads a
        head that is kept. Folders are renamed before they are emptied: a version is whole or gone.
        """
        folder = self._folder(dataset_id)
        try:
            self._kill_others(folder, "")
            return self._discard(folder, set(names))
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
        """Remove these versions; returns how many were there. Files lie in their version's folder, so none is
        left over."""
        del blobs
        check()
        if not self._files.exists(f"{self._folder(dataset_id)}/versions"):
            return 0
        return len(self.discard(dataset_id, map(version_name, gone)))

    def _discard(self, folder: str, names: set[str]) -> list[str]:
        shown = self._shown(folder)
        self._files.fsync_dir(folder)  # before what it replaced goes: a power cut must not bring that back
        removed = []
        for name in self._files.listdir(f"{folder}/versions"):
            old = name in names and shown is not None and sequence_of(name) < sequence_of(shown)
            if not (old or name.startswith((".building-", ".trash-"))):
                continue
            if self._trash(folder, name) and old:
                removed.append(name)
        return removed
