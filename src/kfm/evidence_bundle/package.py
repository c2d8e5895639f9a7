"""A bundle on its way to disk: the same parts are always the same bytes, and half of it is never seen."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Protocol, cast

from kfm.evidence_bundle.contents import FORMAT, Contents
from kfm.evidence_bundle.crate import (
    CHECKSUMS,
    METADATA,
    BundleFile,
    CrateSubject,
    checksums,
    metadata,
    readme,
)
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import ChecksumMismatch, UsageError
from kfm.ports import Files, Writer

CHUNK_BYTES = 1 << 20
ARTIFACTS_MAX = 1000
ARTIFACT_BYTES_MAX = 1024**3  # of all of them together
DEPTH_MAX = 4
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip files know nothing earlier


class Artifact(NamedTuple):
    """A file that a run left, where it stands now."""

    name: str  # in the bundle
    path: str
    size: int
    sha256: str


class WrittenBundle(NamedTuple):
    """What was written."""

    path: str
    digest: str
    files: int
    size: int
    missing: tuple[str, ...]


# --- what a run left behind ----------------------------------------------------------------


def find_artifacts(files: Files, folder: str, missing: list[str]) -> list[Artifact]:
    """The files of a run's folder, hashed one by one. What is too much is left out, and said."""
    found: list[Artifact] = []
    total = 0
    for relative in _walk(files, folder, "", DEPTH_MAX):
        size = files.size(f"{folder}/{relative}")
        if len(found) >= ARTIFACTS_MAX or total + size > ARTIFACT_BYTES_MAX:
            missing.append(f"artifacts/{relative} is left out: the bundle would be too large.")
            continue
        digest, size = hashlib.sha256(), 0
        for chunk in _chunks(files, f"{folder}/{relative}"):
            digest.update(chunk)
            size += len(chunk)
        total += size
        found.append(Artifact(f"artifacts/{relative}", f"{folder}/{relative}", size, digest.hexdigest()))
    if not found:
        missing.append("No files of this run are on this machine.")
    return found


def _walk(files: Files, folder: str, below: str, depth: int) -> Iterator[str]:
    try:
        names = files.listdir(f"{folder}/{below}" if below else folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        relative = f"{below}/{name}" if below else name
        if name.endswith(".tmp") or _is_link(files, f"{folder}/{relative}"):
            continue
        try:
            files.listdir(f"{folder}/{relative}")
        except NotADirectoryError:
            yield relative
        else:
            if depth > 1:
                yield from _walk(files, folder, relative, depth - 1)


def _is_link(files: Files, path: str) -> bool:
    try:
        files.readlink(path)
    except OSError:
        return False
    return True


def _chunks(files: Files, path: str) -> Iterator[bytes]:
    reader = files.open(path)
    try:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk
    finally:
        reader.close()


# --- writing -------------------------------------------------------------------------------


class Sink(Protocol):
    def put(self, name: str, chunks: Iterable[bytes]) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None:
        """Remove what was written so far."""


class FolderSink:
    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._made: set[str] = set()
        self._written: list[str] = []

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        parts = name.split("/")[:-1]
        folders = [self._folder, *("/".join((self._folder, *parts[:n])) for n in range(1, len(parts) + 1))]
        for folder in folders:
            if folder not in self._made:
                self._files.make_dirs(folder)
                self._made.add(folder)
        writer = self._files.create(f"{self._folder}/{name}")
        self._written.append(f"{self._folder}/{name}")
        try:
            for chunk in chunks:
                writer.write(chunk)
            writer.fsync()
        finally:
            writer.close()

    def close(self) -> None:
        for folder in sorted(self._made, reverse=True):
            self._files.fsync_dir(folder)

    def discard(self) -> None:
        for path in self._written:
            self._files.unlink(path)
        for folder in sorted(self._made, reverse=True):
            self._files.rmdir(folder)


class _Stream:
    """As much of a file as an archive asks for."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write(self, data: Any) -> int:
        self._writer.write(bytes(data))
        return len(data)

    def flush(self) -> None: ...


class ZipSink:
    """Not compressed: two releases of a compressor may differ in their bytes."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._writer = files.create(path)
        self._zip = zipfile.ZipFile(cast(IO[bytes], _Stream(self._writer)), "w", zipfile.ZIP_STORED)

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        info = zipfile.ZipInfo(name, _EPOCH)
        info.create_system = 3  # whichever it is
        info.external_attr = 0o100644 << 16
        with self._zip.open(info, "w", force_zip64=True) as file:
            for chunk in chunks:
                file.write(chunk)

    def close(self) -> None:
        self._zip.close()
        self._writer.fsync()
        self._writer.close()

    def discard(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # its writer may have failed already
            self._zip.close()
        with contextlib.suppress(OSError):
            self._writer.close()
        self._files.unlink(self._path)


def write_bundle(
    files: Files,
    path: str,
    subject: CrateSubject,
    found: Contents,
    artifacts: Sequence[Artifact],
    verifier: bytes,
) -> WrittenBundle:
    """Into a folder, or into one file if the name ends in `.zip`. What is there already is never touched."""
    _require_free(files, path)
    documents = _documents(subject, found, artifacts, verifier)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in documents.items()}
    digests |= {one.name: one.sha256 for one in artifacts}
    last = checksums(digests)
    partial, parent = f"{path}.partial", path.rpartition("/")[0]
    files.make_dirs(parent or ".")
    sink: Sink = ZipSink(files, partial) if path.endswith(".zip") else FolderSink(files, partial)
    by_name = {one.name: one for one in artifacts}
    try:
        for name in sorted(digests):
            sink.put(name, _same(files, by_name[name]) if name in by_name else [documents[name]])
        sink.put(CHECKSUMS, [last])
        sink.close()
        files.rename(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            sink.discard()
        raise
    files.fsync_dir(parent or ".")
    size = sum(map(len, documents.values())) + sum(one.size for one in artifacts) + len(last)
    digest = "sha256:" + hashlib.sha256(last).hexdigest()
    return WrittenBundle(path, digest, len(digests) + 1, size, tuple(found.missing))


def write_document(files: Files, path: str, data: bytes, missing: Sequence[str]) -> WrittenBundle:
    """One document where there is not enough for a bundle."""
    _require_free(files, path)
    parent, name = path.rpartition("/")[::2]
    files.make_dirs(parent or ".")
    FolderSink(files, parent or ".").put(f"{name}.partial", [data])
    files.rename(f"{path}.partial", path)
    files.fsync_dir(parent or ".")
    return WrittenBundle(path, "sha256:" + hashlib.sha256(data).hexdigest(), 1, len(data), tuple(missing))


def _require_free(files: Files, path: str) -> None:
    if files.exists(path):
        raise UsageError(f"{path} is already there.", remedy="Name another place with --to.")
    if files.exists(f"{path}.partial"):
        raise UsageError(
            f"{path}.partial is there: an export was interrupted, or is under way.",
            remedy="Remove it if no process is writing it.",
        )


def _documents(
    subject: CrateSubject, found: Contents, artifacts: Sequence[Artifact], verifier: bytes
) -> Mapping[str, bytes]:
    documents = dict(found.documents)
    documents["verify.py"] = verifier
    documents["evidence.json"] = (
        canonical_bytes(
            {
                "format": FORMAT,
                "run_id": subject.run.run_id,
                "internal": subject.internal,
                "missing": list(found.missing),
                "unproven_events": found.unproven_events,
            }
        )
        + b"\n"
    )
    names = [*documents, *(one.name for one in artifacts), "README.md", METADATA, CHECKSUMS]
    documents["README.md"] = readme(subject, names, found.missing)
    parts = [
        BundleFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in documents.items()
    ]
    parts += [BundleFile(one.name, one.size, one.sha256) for one in artifacts]
    documents[METADATA] = metadata(subject, parts)
    return documents


def _same(files: Files, artifact: Artifact) -> Iterator[bytes]:
    """The bytes that were hashed, or an error: a run that is under way still writes its files."""
    digest = hashlib.sha256()
    left = artifact.size
    for chunk in _chunks(files, artifact.path):
        chunk = chunk[:left]
        left -= len(chunk)
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != artifact.sha256:
        raise ChecksumMismatch(f"{artifact.path} changed while it was being exported.")
