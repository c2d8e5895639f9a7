"""Places of backups: a folder or a bucket, with one store of objects for all backups in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kfm.model.bucket_options import PREFIXES
from kfm.model.errors import BackendUnavailable, UsageError
from kfm.model.patterns import late
from kfm.model.redaction import redact
from kfm.objects.local import CHUNK_BYTES, LocalObjects
from kfm.objects.remote import RemoteObjects
from kfm.system import os_trouble, sync, sync_folder

if TYPE_CHECKING:
    from kfm.ports import Bucket, CollectableObjects, Files, Ids

FOLDER = "backups"
MANIFEST = "manifest.json"
_SCHEME = late(r"([a-z][a-z0-9+.-]+):")
_SMALL_BYTES_MAX = 16 * 1024 * 1024


class BackupPlace(Protocol):
    """Files by name, whole or not at all, and objects by hash."""

    name: str
    objects: CollectableObjects

    def put(self, name: str, path: str) -> None: ...
    def fetch(self, name: str, path: str) -> None:
        """Into a file that is not there yet; UsageError if there is none of that name."""

    def read(self, name: str) -> bytes | None:
        """A small one; None if it is not there."""

    def backups(self) -> list[str]:
        """The ids of those that have a manifest, the oldest first."""


class BackupFolder:
    """Implements `BackupPlace` on a disk; what it says to have is durable."""

    def __init__(self, root: str, files: Files, ids: Ids) -> None:
        self.name = root
        self._root = root.rstrip("/")
        self._files = files
        self._ids = ids
        self.objects: CollectableObjects = LocalObjects(files, f"{self._root}/objects", ids)

    def put(self, name: str, path: str) -> None:
        made = f"{self._root}/{name}"
        folder = os.path.dirname(made)
        try:
            self._files.make_dirs(folder)
            temporary = f"{made}.{self._ids.new()}.tmp"
            write_file(temporary, _chunks(path))
            os.rename(temporary, made)
            sync_folder(folder)
        except OSError as error:
            raise _refused(error) from error

    def fetch(self, name: str, path: str) -> None:
        if not os.path.exists(f"{self._root}/{name}"):
            raise missing_file(name)
        try:
            write_file(path, _chunks(f"{self._root}/{name}"))
        except OSError as error:
            raise _refused(error) from error

    def read(self, name: str) -> bytes | None:
        try:
            with open(f"{self._root}/{name}", "rb") as file:
                return file.read(_SMALL_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused(error) from error

    def backups(self) -> list[str]:
        try:
            names = os.listdir(f"{self._root}/{FOLDER}")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _refused(error) from error
        return sorted(name for name in names if os.path.exists(f"{self._root}/{FOLDER}/{name}/{MANIFEST}"))


class BackupBucket:
    """Implements `BackupPlace` on a bucket, or on a prefix of one."""

    def __init__(self, name: str, bucket: Bucket) -> None:
        self.name = name
        self._bucket = bucket
        self.objects: CollectableObjects = RemoteObjects(bucket, "objects")

    def put(self, name: str, path: str) -> None:
        self._bucket.put_stream(name, _chunks(path))
        found, size = self._bucket.head(name), os.path.getsize(path)
        if found is None or found.size != size:
            raise BackendUnavailable(f"{self.name}: {name} did not arrive whole.")

    def fetch(self, name: str, path: str) -> None:
        if self._bucket.head(name) is None:
            raise missing_file(name)
        with self._bucket.read(name) as (_, chunks):
            try:
                write_file(path, chunks)
            except OSError as error:
                raise _refused(error) from error

    def read(self, name: str) -> bytes | None:
        found = self._bucket.get(name)
        return None if found is None else found[0]

    def backups(self) -> list[str]:
        keys = [stat.key for stat in self._bucket.list(f"{FOLDER}/")]
        return sorted(key.split("/")[1] for key in keys if key.endswith(f"/{MANIFEST}"))


def is_bucket(address: str) -> bool:
    """A bucket by its address, or a folder by its path; UsageError for what looks like neither."""
    scheme = _SCHEME.match(address)
    if scheme is None:
        return False
    if scheme[1] in PREFIXES and address.partition("://")[2].strip("/"):
        return True
    raise UsageError(
        f"{redact(address)} is neither a folder nor a bucket.",
        remedy=f"Write the path of a folder (./{scheme[0]}… if it begins so), or a bucket with its prefix: "
        f"{', '.join(f'{one}://NAME/PREFIX' for one in PREFIXES)}.",
    )


def write_file(path: str, chunks: Iterable[bytes]) -> None:
    """A new file for its owner alone, durable; or none. What fails names the file: a full disk names none."""
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.writelines(chunks)
            file.flush()
            sync(file.fileno())
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                os.unlink(path)
        raise OSError(error.errno, error.strerror, error.filename or path) from error


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield data


def missing_file(name: str) -> UsageError:
    return UsageError(
        f"The backup is not whole: {name} is not there.", remedy="Restore another one: `--backup ID`."
    )


def _refused(error: OSError) -> BackendUnavailable:
    text, remedy = os_trouble(error)
    return BackendUnavailable(text, remedy=remedy)
