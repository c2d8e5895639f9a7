"""Verification of a release, from its folder alone."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import msgspec

from kfm.model.canonical import strict_loads
from kfm.model.errors import MalformedJson, UsageError
from kfm.model.records import Record
from kfm.release import release_folder
from kfm.release.attestation import Statement
from kfm.release.release_folder import ATTESTATION, CHECKSUMS, LEDGER, MANIFEST, SBOM, SCHEMAS, SIGNATURE

DOCUMENT_BYTES_MAX = 1 << 30
CHECKSUM_BYTES_MAX = 1 << 20

Validate = Callable[[str, Any], str | None]  # schema, document → what is wrong


class ReleaseFinding(Record, frozen=True):
    file: str
    problem: str


class Verified(Record, frozen=True):
    path: str
    files: int
    signed: bool  # there is a signature; whose it is, and whether it is right, only its maker's tool can tell
    digest: str | None
    findings: tuple[ReleaseFinding, ...]


def verify(path: str, validate: Validate) -> Verified:
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a folder.", remedy="Name the folder of a release, releases/VERSION.")
    there = release_folder.digests_of(path)
    findings = [
        *_missing(there),
        *_manifest(path, there),
        *_attestation(path, there),
        *_documents(path, there, validate),
    ]
    return Verified(
        path=path,
        files=len(there),
        signed=os.path.isfile(os.path.join(path, SIGNATURE)),
        digest=f"sha256:{there[ATTESTATION]}" if ATTESTATION in there else None,
        findings=tuple(findings),
    )


def _missing(there: dict[str, str]) -> Iterator[ReleaseFinding]:
    expected = {*SCHEMAS, SBOM, MANIFEST}
    for name in sorted(expected - set(there)):
        yield ReleaseFinding(file=name, problem="is missing")
    for name in sorted(set(there) - expected):
        yield ReleaseFinding(file=name, problem="does not belong here")


def _manifest(path: str, there: dict[str, str]) -> Iterator[ReleaseFinding]:
    """The archive holds its own list, and the same files as the folder."""
    if MANIFEST not in there:
        return
    try:
        with zipfile.ZipFile(os.path.join(path, MANIFEST)) as archive:
            inside = archive.namelist()
            listed = _checksums(archive)
            for name in sorted({name for name in inside if inside.count(name) > 1}):
                yield ReleaseFinding(file=MANIFEST, problem=f"holds {name} twice")
            for name in sorted(set(inside) - set(listed) - {CHECKSUMS}):
                yield ReleaseFinding(file=MANIFEST, problem=f"holds {name}, which {CHECKSUMS} does not list")
            for name in sorted(listed):
                if name not in inside:
                    yield ReleaseFinding(file=MANIFEST, problem=f"lists {name}, but does not hold it")
                    continue
                with archive.open(name) as member:
                    digest = release_folder.stream_sha256(cast(BinaryIO, member))
                if digest != listed[name]:
                    yield ReleaseFinding(
                        file=MANIFEST, problem=f"holds a {name} that differs from {CHECKSUMS}"
                    )
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, NotImplementedError) as error:
        yield ReleaseFinding(file=MANIFEST, problem=f"can't be read: {error}")
        return
    for name, digest in sorted(listed.items()):
        if not name.startswith(LEDGER) and there.get(name, digest) != digest:
            yield ReleaseFinding(file=name, problem=f"differs from the checksum in {MANIFEST}")
    for name in sorted(set(there) - set(listed) - {MANIFEST, ATTESTATION}):
        yield ReleaseFinding(file=name, problem=f"is not listed in {MANIFEST}")


def _checksums(archive: zipfile.ZipFile) -> dict[str, str]:
    with archive.open(CHECKSUMS) as file:
        text = file.read(CHECKSUM_BYTES_MAX).decode("utf-8")
    pairs = [line.partition("  ") for line in text.splitlines()]
    return {name: digest for digest, _, name in pairs}


def _attestation(path: str, there: dict[str, str]) -> Iterator[ReleaseFinding]:
    if ATTESTATION not in there:
        return
    try:
        statement = msgspec.json.decode(_read(path, ATTESTATION), type=Statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        yield ReleaseFinding(file=ATTESTATION, problem=f"is no statement about a release: {error}")
        return
    subjects = {subject.name: subject.digest.get("sha256") for subject in statement.subject}
    for name in sorted({*subjects, *there} - {ATTESTATION}):
        if name not in there:
            yield ReleaseFinding(file=name, problem="is attested, but missing")
        elif name not in subjects:
            yield ReleaseFinding(file=name, problem="is not attested")
        elif subjects[name] != there[name]:
            yield ReleaseFinding(file=name, problem="differs from what is attested")


def _documents(path: str, there: dict[str, str], validate: Validate) -> Iterator[ReleaseFinding]:
    versions = set()
    for name in sorted({*SCHEMAS, SBOM} & set(there)):
        try:
            document = strict_loads(_read(path, name), bytes_max=DOCUMENT_BYTES_MAX)
        except MalformedJson as error:
            yield ReleaseFinding(file=name, problem=f"is not JSON: {error.detail}")
            continue
        if name == SBOM:
            if not isinstance(document, dict) or document.get("spdxVersion") != "SPDX-2.3":
                yield ReleaseFinding(file=name, problem="is no SPDX 2.3 document")
            continue
        problem = validate(SCHEMAS[name], document)
        if problem is not None:
            yield ReleaseFinding(file=name, problem=f"does not fit its schema: {problem}")
        elif name != ATTESTATION:
            versions.add(document["release"])
    if len(versions) > 1:
        yield ReleaseFinding(
            file=ATTESTATION, problem=f"goes with documents of {', '.join(sorted(versions))}"
        )


def _read(path: str, name: str) -> bytes:
    with open(os.path.join(path, name), "rb") as file:
        return file.read(DOCUMENT_BYTES_MAX + 1)
