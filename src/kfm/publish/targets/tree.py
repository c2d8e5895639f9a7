"""One version as a folder of files: built under a temporary name, durable, then given its name."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.records import Asset, Item, Manifest, Promotion
from kfm.model.templates import safe_path
from kfm.model.times import rfc3339
from kfm.ports import Files, Objects
from kfm.publish.catalogue import documents, in_data_folder

Linking = Literal["versions", "objects", "never"]

COPY_BYTES = 1024 * 1024
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
# Where a hard link can't be made, a copy serves: other file system, too many links, not supported.
_UNLINKABLE = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOENT)


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

    def build(self, manifest: Manifest) -> None:
        """Everything of this version, durable when this returns (but for the folder's own name)."""
        self._files.mkdir(self._into)
        self._folders = {self._into: None}
        known = self._earlier_assets()
        for name, data in documents(manifest, in_data_folder).items():
            self._place_document(name, data)
        for item in manifest.items:
            for asset in item.assets:
                try:
                    self._place_asset(asset, known)
                except StoreCorrupt as error:
                    raise lost(manifest, item, error, damaged=self._objects.has(asset.sha256)) from error
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
        except msgspec.DecodeError:
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


def lost(manifest: Manifest, item: Item, error: StoreCorrupt, *, damaged: bool) -> StoreCorrupt:
    """An object of a promoted version is missing or damaged: whose it is, and how it comes back."""
    window = f"{rfc3339(item.window_start_ms)}/{rfc3339(item.window_end_ms)}"
    return StoreCorrupt(
        f"{manifest.dataset_id}, item {item.id}: {error.detail}",
        remedy="Bring the object back from a copy of the objects folder and run `kfm project`; or "
        + ("remove the damaged object and " if damaged else "")
        + "fetch its window again: "
        f"`kfm run --source {item.source_id} --window {window} --force --rationale TEXT --ticket ID`.",
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
