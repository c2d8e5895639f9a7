"""A release's folder: file names, written whole, shown at once, compared by their bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import BinaryIO

from kfm.model.errors import BackendUnavailable, UsageError
from kfm.system import sync, sync_folder

CHUNK = 1024 * 1024
_EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)
_FILE_MODE = 0o644 << 16
_UNIX = 3
LEFTOVER_MS = 24 * 3_600_000
_WORKPLACE = re.compile(r"\..+\.([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})")
SBOM = "sbom.spdx.json"
MANIFEST = "manifest.zip"
CHECKSUMS = "SHA256SUMS"
ATTESTATION = "attestation.intoto.json"
SIGNATURE = f"{ATTESTATION}.sig"
LEDGER = "ledger/"  # where the manifest keeps what was exported from the ledger
# The schema of each document that has one.
SCHEMAS = {
    "updater-telemetry.json": "telemetry-updater",
    "patterns-telemetry.json": "telemetry-patterns",
    "focus-telemetry.json": "telemetry-focus",
    "nodd-sns-telemetry.json": "telemetry-nodd-sns",
    "energy.json": "energy",
    "carbon.json": "carbon",
    ATTESTATION: "release-attestation",
}
VERSION_CHARS_MAX = 64
_PART = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"v?\d+(?:\.\d+){{0,3}}(?:-{_PART})?(?:\+{_PART})?", re.ASCII)


def write_file(path: str, data: bytes) -> None:
    with durable(path) as file:
        file.write(data)


@contextlib.contextmanager
def durable(path: str) -> Iterator[BinaryIO]:
    """A new file whose bytes are on the disk once it is closed."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        sync(file.fileno())


def file_sha256(path: str) -> str:
    with open(path, "rb") as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO) -> str:
    digest = sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def checksum_lines(digests: Mapping[str, str]) -> bytes:
    """As `sha256sum --check` reads it."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()


def write_zip(path: str, members: Mapping[str, str]) -> None:
    """Name in the archive → file, sorted, stored, with the same time everywhere: equal files, equal bytes.

    Stored, because compressors differ in what they make of the same bytes.
    """
    digests = {name: file_sha256(source) for name, source in members.items()}
    with durable(path) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(CHECKSUMS), checksum_lines(digests))
        for name in sorted(members):
            info = _member(name)
            info.file_size = os.path.getsize(members[name])
            with open(members[name], "rb") as file, archive.open(info, "w") as target:
                shutil.copyfileobj(file, target, CHUNK)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH_OF_ZIP)
    info.create_system = _UNIX
    info.external_attr = _FILE_MODE
    return info


def digests_of(folder: str) -> dict[str, str]:
    """File name → sha256 of everything in a folder but a signature, which differs each time it is made."""
    found = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path):
            found[name] = "not a file"
        elif name != SIGNATURE:
            found[name] = file_sha256(path)
    return found


@contextlib.contextmanager
def workplace(parent: str, version: str, unique: str) -> Iterator[str]:
    """A hidden folder beside the place where the release will be; gone again, whatever happens.

    `unique` is a UUIDv7: it has the time when the folder was begun, so that what a killed process left a day
    ago can be removed without asking a clock.
    """
    folder = os.path.join(parent, f".{version}.{unique}")
    try:
        os.makedirs(parent, exist_ok=True)
        _sweep(parent, _begun_ms(unique) - LEFTOVER_MS)
        os.mkdir(folder)
    except OSError as error:
        raise BackendUnavailable(
            f"The folder {parent} can't be written: {(error.strerror or str(error)).lower()}.",
            remedy="Name another one with --to.",
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: str, before_ms: int) -> None:
    for name in os.listdir(parent):
        match = _WORKPLACE.fullmatch(name)
        if match and _begun_ms(match[1]) < before_ms:
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


def _begun_ms(unique: str) -> int:
    return int(unique.replace("-", "")[:12], 16)


def show(made: str, target: str) -> bool:
    """Give a finished folder its name, at once. False: another folder has it."""
    sync_folder(made)
    try:
        os.rename(made, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    sync_folder(os.path.dirname(target))
    return True


def exchange(made: str, target: str, aside: str) -> None:
    """Put a finished folder where another one is, which is put back if that fails."""
    os.rename(target, aside)
    try:
        if not show(made, target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def checked_version(text: str) -> str:
    """The version, which is also the name of a folder."""
    if len(text) > VERSION_CHARS_MAX or not _VERSION.fullmatch(text):
        raise UsageError(
            f"`{text[:VERSION_CHARS_MAX]}` is not a version.",
            remedy="Write it as v1.2.3, 1.2.3-rc.1 or 1.2.3+build.5.",
        )
    return text
