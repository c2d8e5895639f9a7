"""Anchors: lines in a file outside the database that say where the chain stood."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from kfm.model.audit import Anchor, ChainVerdict
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import BackendUnavailable, UsageError
from kfm.model.times import rfc3339
from kfm.system import sync, sync_folder

ANCHORS_BYTES_MAX = 64 * 1024 * 1024
_ANCHOR = msgspec.json.Decoder(Anchor)


def line(anchor: Anchor) -> bytes:
    return canonical_bytes(msgspec.to_builtins(anchor)) + b"\n"


def parse(data: bytes, name: str) -> list[Anchor]:
    """The anchors of a file. One that can't be read is an error: leaving it out would weaken the check."""
    found = []
    for at, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        try:
            found.append(_ANCHOR.decode(text))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UsageError(
                f"{name}:{at}: this is no anchor: {error}.",
                remedy="Restore the file from where it is kept, for example from git.",
            ) from None
    return found


def read(path: str) -> list[Anchor] | None:
    """None if there is no such file."""
    try:
        with open(path, "rb") as file:
            data = file.read(ANCHORS_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BackendUnavailable(f"{path} can't be read: {(error.strerror or str(error)).lower()}.") from None
    if len(data) > ANCHORS_BYTES_MAX:
        raise UsageError(f"{path} is larger than any file of anchors: {len(data)} bytes and more.")
    return parse(data, path)


def of_environment(anchors: Iterable[Anchor], environment: str) -> list[Anchor]:
    """One file may serve several environments; each has a chain of its own."""
    return [anchor for anchor in anchors if anchor.environment == environment]


def made(verdict: ChainVerdict, environment: str, now_ms: int) -> Anchor:
    """The end of a chain that was just found to be sound."""
    assert verdict.sound
    assert verdict.head_number > 0
    return Anchor(
        number=verdict.head_number, hash=verdict.head_hash, environment=environment, at=rfc3339(now_ms)
    )


def append(path: str, anchor: Anchor) -> None:
    """Add one line, durably. A last line that was cut short by a crash is not continued."""
    data = line(anchor)
    try:
        with open(path, "ab+") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    data = b"\n" + data
            file.write(data)
            file.flush()
            sync(file.fileno())
    except OSError as error:
        raise BackendUnavailable(
            f"{path} can't be written: {(error.strerror or str(error)).lower()}.",
            remedy="Name a file that can be written, with --to FILE or the setting `audit.anchors`.",
        ) from None


def put(path: str, data: bytes) -> None:
    """A whole file of them where there is none: under another name until all of it is durable."""
    temporary = f"{path}.tmp"
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            sync(file.fileno())
        os.rename(temporary, path)
        sync_folder(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise BackendUnavailable(
            f"{path} can't be written: {(error.strerror or str(error)).lower()}.",
            remedy="Let the setting `audit.anchors` name a file that can be written.",
        ) from None
