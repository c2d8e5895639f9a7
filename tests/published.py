"""A published version as a stranger reads it: from its collection, along the links, to every file."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

Read = Callable[[str], bytes]  # a document by its address, relative to the collection's folder


class PublishedFile(NamedTuple):
    path: str
    sha256: str
    size: int


class PublishedItem(NamedTuple):
    id: str
    source_id: str
    start_ms: int
    end_ms: int
    files: tuple[PublishedFile, ...]


def items_in(folder: Path) -> list[PublishedItem]:
    """The items of a version in a folder, in the order of their ids."""
    return items_of(lambda name: (folder / name).read_bytes())


def items_of(read: Read, collection: str = "collection.json") -> list[PublishedItem]:
    return sorted(map(_item, _documents(read, collection)))


def files_in(folder: Path) -> dict[str, str]:
    """SHA-256 by path, as the items say."""
    return {one.path: one.sha256 for item in items_in(folder) for one in item.files}


def _documents(read: Read, place: str) -> Iterator[dict[str, Any]]:
    document = json.loads(read(place))
    for link in document["links"]:
        if link["rel"] in ("child", "item"):
            there = posixpath.normpath(posixpath.join(posixpath.dirname(place), link["href"]))
            if link["rel"] == "child":
                yield from _documents(read, there)
            else:
                yield json.loads(read(there))


def _item(document: dict[str, Any]) -> PublishedItem:
    told = document["properties"]
    files = sorted(
        PublishedFile(path, asset["file:checksum"].removeprefix("1220"), asset["file:size"])
        for path, asset in document["assets"].items()
    )
    start_ms, last_ms = _ms(told["start_datetime"]), _ms(told["end_datetime"])
    return PublishedItem(document["id"], told["kfm:source_id"], start_ms, last_ms + 1, tuple(files))


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
