"""Objects in a folder of this machine: staged, verified on reading; files of a project."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kfm.model.errors import StoreCorrupt, UsageError
from kfm.model.records import StoredObject

if TYPE_CHECKING:
    from kfm.ports import CollectorLease, Files, Ids, Objects, Reader


CHECKPOINT_BYTES = 4 * 1024 * 1024
PARTIALS_PER_KEY_MAX = 4
PARTIAL_KEYS_MAX = 256


class LocalObjects:
    """Immutable bytes under their SHA-256, in a folder."""

    def __init__(
        self, files: Files, root: str, ids: Ids, *, checkpoint_bytes: int = CHECKPOINT_BYTES
    ) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._ids = ids
        self._made: set[str] = set()
        self._partials = Partials(self, files)
        self.checkpoint_bytes = checkpoint_bytes

    def stage(self, resume_key: str | None = None) -> tuple[LocalStaging, int]:
        staging = LocalStaging(self, self._files, self._ids.new(), resume_key, self._partials)
        try:
            return staging, self._partials.take(resume_key, staging) if resume_key else 0
        except Exception:
            staging.abort()
            raise

    def has(self, sha256: str) -> bool:
        return self._files.exists(self._path(sha256))

    def size_of(self, sha256: str) -> int | None:
        try:
            return self._files.size(self._path(sha256))
        except FileNotFoundError:
            return None

    def open(self, sha256: str) -> Reader:
        try:
            return CheckedReader(self._files.open(self._path(sha256)), sha256)
        except FileNotFoundError:
            if self._put_back(sha256):
                return self.open(sha256)
            raise missing(sha256) from None

    def local_path(self, sha256: str) -> str | None:
        return self._path(sha256) if self.has(sha256) else None

    def delete(self, sha256: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self._path(sha256))

    def all(self) -> Iterator[str]:
        """What else lies there is not ours: it is passed over, and stays."""
        for fan in self._names("sha256"):
            for rest in self._names(f"sha256/{fan}"):
                if names_object(fan + rest):
                    yield fan + rest

    # --- collecting ---

    def stored(self) -> Iterator[StoredObject]:
        for sha256 in self.all():
            modified_ms, size = self.modified_ms(sha256), self.size_of(sha256)
            if modified_ms is not None and size is not None:  # it is still there
                yield StoredObject(sha256=sha256, size=size, modified_ms=modified_ms)

    def modified_ms(self, sha256: str) -> int | None:
        try:
            return self._files.modified_ms(self._path(sha256))
        except FileNotFoundError:
            return None

    def delete_old(
        self, names: Sequence[str], before_ms: int, lease: CollectorLease
    ) -> Iterator[dict[str, bool]]:
        for sha256 in names:
            lease.check()
            yield {sha256: self.delete_if_older(sha256, before_ms)}

    def delete_if_older(self, sha256: str, before_ms: int) -> bool:
        """Take it away, look at what was taken, and put it back if it was staged meanwhile."""
        age = self.modified_ms(sha256)
        if age is None or age >= before_ms:
            return False
        self.folder("tmp")
        taken = self.path(f"tmp/{self._ids.new()}.{sha256}")
        try:
            self._files.rename(self._path(sha256), taken)
            if self._files.modified_ms(taken) < before_ms:
                self._files.unlink(taken)
                return True
        except FileNotFoundError:
            return False  # another process removed it, or a reader put it back
        self._put_back(sha256)
        return False

    def _put_back(self, sha256: str) -> bool:
        """Give objects their names back that a collector took away, and perhaps died before it decided."""
        found = [f"tmp/{name}" for name in self._names("tmp") if name.endswith(f".{sha256}")]
        for name in found:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                self._named_again(self.path(name), self._path(sha256))
        if found:
            self._files.fsync_dir(self.folder(object_key(sha256).rpartition("/")[0]))
        for name in found:
            self.discard(name)
        return bool(found) and self.has(sha256)

    def _named_again(self, taken: str, path: str) -> None:
        try:
            self._files.link(taken, path)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:
            # No hard links here. Bytes that were staged meanwhile are replaced by the same bytes,
            # and fresh: collecting spares them.
            self._files.touch(taken)
            self._files.rename(taken, path)

    def leftovers(self, before_ms: int) -> list[tuple[str, int]]:
        """Temp files and partials begun before then, with their sizes: their ids tell when that was."""
        stale = [f"tmp/{name}" for name in self._names("tmp") if _begun_ms(name) < before_ms]
        for key in self._names("partial"):
            stale += [f"partial/{key}/{n}" for n in self._names(f"partial/{key}") if _begun_ms(n) < before_ms]
        sized = []
        for name in stale:
            with contextlib.suppress(FileNotFoundError):
                sized.append((name, self._files.size(self.path(name))))
        return sized

    def tidy(self, before_ms: int) -> int:
        """Remove those; but what a collector took away and left goes back, to be judged again."""
        stale = self.leftovers(before_ms)
        for name, _ in stale:
            taken = name.rpartition(".")[2] if name.startswith("tmp/") else ""
            if len(taken) == 64:
                self._put_back(taken)
            else:
                self.discard(name)
        return len(stale)

    # --- for the two classes below ---

    def path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def folder(self, name: str) -> str:
        """The folder's path; made durable once for each process."""
        path = self.path(name)
        if path not in self._made:
            self._files.make_dirs(path)
            self._made.add(path)
        return path

    def forget(self, name: str) -> None:
        self._made.discard(self.path(name))

    def discard(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self.path(name))

    def land(self, temp: str, sha256: str) -> None:
        """Give a durable temp file its final name, durably. An equal one may stand there already."""
        path, key = self._path(sha256), object_key(sha256)
        folder = self.folder(key.rpartition("/")[0])
        try:
            _read_through(CheckedReader(self._files.open(path), sha256))
            self._files.touch(path)  # fresh again: collecting spares it
        except (OSError, StoreCorrupt):  # it is not there, or damaged
            self._files.rename(self.path(temp), path)
        # Also when it was there: the process that put it may have died before this line.
        self._files.fsync_dir(folder)
        self.discard(temp)

    def _path(self, sha256: str) -> str:
        return self.path(object_key(sha256))

    def _names(self, folder: str) -> list[str]:
        try:
            return self._files.listdir(self.path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []


class LocalStaging:
    """One object on its way in. Its temp file has one writer, ever."""

    def __init__(
        self, objects: LocalObjects, files: Files, unique: str, resume_key: str | None, partials: Partials
    ) -> None:
        self._objects = objects
        self._unique = unique
        self._key = partials.key(resume_key) if resume_key else None
        self._partials = partials
        self._temp = f"tmp/{unique}"
        objects.folder("tmp")
        self._writer = files.create(objects.path(self._temp))
        self._hash = hashlib.sha256()
        self._size = 0
        self._checkpoint: str | None = None
        self._checkpoint_size = 0
        self._open = True

    def write(self, data: bytes) -> None:
        self._writer.write(data)
        self._hash.update(data)
        self._size += len(data)
        if self._key and self._size - self._checkpoint_size >= self._objects.checkpoint_bytes:
            self.mark()

    def commit(self) -> tuple[str, int]:
        sha256 = self._hash.hexdigest()
        self._writer.fsync()
        self._close()
        self._objects.land(self._temp, sha256)
        self._drop_checkpoint()
        return sha256, self._size

    def keep_partial(self) -> None:
        try:
            if self._open and self._key and self._size > self._checkpoint_size:
                self.mark()
        finally:
            self._close()
            self._objects.discard(self._temp)

    def abort(self) -> None:
        self._close()
        self._objects.discard(self._temp)
        self._drop_checkpoint()

    def mark(self) -> None:
        """From here a later attempt can go on: the bytes are durable before the name says so."""
        assert self._key is not None
        self._writer.fsync()
        earlier = self._checkpoint
        self._checkpoint = self._partials.mark(self._temp, self._key, f"{self._unique}.{self._size}")
        self._checkpoint_size = self._size
        if earlier:
            self._objects.discard(earlier)

    def _drop_checkpoint(self) -> None:
        if self._checkpoint:
            self._objects.discard(self._checkpoint)
            self._checkpoint = None

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._writer.close()


class Partials:
    """What interrupted attempts left behind, bounded."""

    def __init__(self, objects: LocalObjects, files: Files) -> None:
        self._objects = objects
        self._files = files

    @staticmethod
    def key(resume_key: str) -> str:
        return hashlib.sha256(resume_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def mark(self, temp: str, key: str, name: str) -> str | None:
        folder = f"partial/{key}"
        try:
            self._objects.folder(folder)
            self._files.link(self._objects.path(temp), self._objects.path(f"{folder}/{name}"))
        except OSError:
            # Resuming is a convenience: no hard links here, or the empty folder was tidied away.
            self._objects.forget(folder)
            return None
        self._bound(key)
        return f"{folder}/{name}"

    def take(self, resume_key: str, staging: LocalStaging) -> int:
        """Copy the longest partial into the new object; all that were seen are then done with."""
        folder = f"partial/{self.key(resume_key)}"
        found = sorted(self._list(folder), key=_length, reverse=True)
        copied = self._copy(f"{folder}/{found[0]}", _length(found[0]), staging) if found else 0
        if copied:
            staging.mark()  # before the old ones go: being killed now must not lose them
        for name in found:
            self._objects.discard(f"{folder}/{name}")
        return copied

    def _copy(self, name: str, length: int, staging: LocalStaging) -> int:
        try:
            if self._files.size(self._objects.path(name)) < length:
                return 0  # damaged: begin again
            reader = self._files.open(self._objects.path(name))
        except FileNotFoundError:
            return 0  # another attempt was quicker
        left = length
        try:
            while left and (data := reader.read(min(left, CHUNK_BYTES))):
                staging.write(data)
                left -= len(data)
        finally:
            reader.close()
        assert left == 0, name
        return length

    def _bound(self, key: str) -> None:
        for name in sorted(self._list(f"partial/{key}"), key=_length)[:-PARTIALS_PER_KEY_MAX]:
            self._objects.discard(f"partial/{key}/{name}")
        keys = self._list("partial")
        if len(keys) <= PARTIAL_KEYS_MAX:
            return
        newest = {other: max(self._list(f"partial/{other}"), default="") for other in keys if other != key}
        for other in sorted(newest, key=lambda it: newest[it])[: len(keys) - PARTIAL_KEYS_MAX]:
            for name in self._list(f"partial/{other}"):
                self._objects.discard(f"partial/{other}/{name}")
            with contextlib.suppress(OSError):
                self._files.rmdir(self._objects.path(f"partial/{other}"))

    def _list(self, folder: str) -> list[str]:
        try:
            return self._files.listdir(self._objects.path(folder))
        except FileNotFoundError:
            return []


def _length(name: str) -> int:
    digits = name.rpartition(".")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _begun_ms(name: str) -> int:
    """The time in a UUIDv7; names that are none count as fresh, so no foreign file is removed."""
    try:
        return int(name.split(".")[0].replace("-", "")[:12], 16)
    except ValueError:
        return 1 << 62


CHUNK_BYTES = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


def names_object(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


def object_key(sha256: str) -> str:
    """Where an object stands below its store's root; two levels keep folders small."""
    if not names_object(sha256):
        raise ValueError(f"not a SHA-256 in hex: {sha256[:80]!r}")
    return f"sha256/{sha256[:2]}/{sha256[2:]}"


class CheckedReader:
    """Hashes what it reads; a read to the end verifies that the bytes are still the right ones."""

    def __init__(self, inner: Reader, sha256: str) -> None:
        self._inner = inner
        self._expected = sha256
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._inner.read(size)
        if data:
            self._hash.update(data)
        elif size > 0 and self._hash.hexdigest() != self._expected:
            raise StoreCorrupt(f"Object sha256:{self._expected} holds other bytes.")
        return data

    def close(self) -> None:
        self._inner.close()


def verify_object(objects: Objects, sha256: str) -> int:
    """Read an object to its end; returns its size, StoreCorrupt if it is missing or its bytes changed."""
    return _read_through(objects.open(sha256))


def _read_through(reader: Reader) -> int:
    size = 0
    try:
        while data := reader.read(CHUNK_BYTES):
            size += len(data)
    finally:
        reader.close()
    return size


def missing(sha256: str) -> StoreCorrupt:
    return StoreCorrupt(f"Object sha256:{sha256} is not in the object store.")


MATCHES_MAX = 1_000_000
_MAGIC = "*?["
_NO_FILE = (errno.EINVAL, "it is no regular file")


class DiskProject:
    """Implements `ports.ProjectFiles` on a folder."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/") + "/"

    def match(self, pattern: str) -> list[str]:
        if not any(sign in pattern for sign in _MAGIC):
            return [pattern] if self.stat(pattern) is not None else []
        import glob

        found = []
        for path in glob.iglob(pattern, root_dir=self._root, recursive=True):
            if os.path.isfile(self._at(path)):
                found.append(path)
            if len(found) > MATCHES_MAX:
                raise UsageError(f"{pattern} matches more than {MATCHES_MAX} files.")
        return sorted(found)

    def stat(self, path: str) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):  # a name that leads to no file
                return None
            raise
        return found.st_size, found.st_mtime_ns, found.st_ino

    def checksum(self, path: str) -> str:
        # Something else in its place, such as a pipe, must not block for ever.
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind != stat.S_IFREG:
                problem = (errno.EISDIR, "it is a folder") if kind == stat.S_IFDIR else _NO_FILE
                raise OSError(*problem, path)
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(descriptor)

    def _at(self, path: str) -> str:
        return path if path[:1] == "/" else self._root + path
