"""Addresses of the published tree in a bucket, and what is told with each object. ADR 0038.

    <dataset>/current.json                          the pointer: moved by a conditional put only
    <dataset>/versions/00000012-0123456789ab/…      the documents of one version
    <dataset>/catalogue/<sha256>.json               pages of the catalogue, by the hash of their bytes
    <dataset>/items/<sha256>/<item id>.json         STAC items, likewise
    <dataset>/files/<sha256>/<name>                 files: their bytes' hash, their own name
    <dataset>/pages/<page>.json                     pages of the trees of files
    <dataset>/latest/…                              by name; behind the pointer for a moment

Before there were `blobs/sha256/ab/cdef…` for files, and items in each version. Keys here are relative to the
dataset's root, as are addresses in the pointer.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote

import msgspec

from kfm.model.records import Asset, Record
from kfm.ports import ObjectAttributes

POINTER = "current.json"
VERSIONS, CATALOGUE, ITEMS, FILES, PAGES = "versions/", "catalogue/", "items/", "files/", "pages/"
LATEST, LATEST_FILES = "latest/", "latest/data/"
BLOBS = "blobs/sha256/"  # files, as they were addressed before
LAYOUT: Literal[2] = 2

JSON, GEOJSON, JSONLD, TEXT = (
    "application/json",
    "application/geo+json",
    "application/ld+json",
    "text/plain; charset=utf-8",
)
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATED = "no-cache"
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?: *;[ -~]{0,200})?", re.ASCII)
_PLAIN_NAME = re.compile(r"[\w.+=@~ -]+", re.ASCII)
_SHA256 = re.compile("[0-9a-f]{64}")


class Pointer(Record, frozen=True):
    """The contents of `current.json`."""

    pointer: Literal[1]
    dataset_id: str
    sequence: int
    version_id: str
    manifest: str  # relative to the pointer
    collection: str
    withdrawn: str | msgspec.UnsetType = msgspec.UNSET  # the tombstone, where something is withdrawn
    layout: Literal[2] | msgspec.UnsetType = msgspec.UNSET  # unset: files are in `blobs/`


# --- addresses ---------------------------------------------------------------------------


def page_key(page_id: str) -> str:
    return f"{PAGES}{page_id}.json"


def blob_key(sha256: str) -> str:
    """Where a file was before."""
    return f"{BLOBS}{sha256[:2]}/{sha256[2:]}"


def latest_key(path: str) -> str:
    return LATEST_FILES + path


def hash_in(key: str) -> str | None:
    """The SHA-256 that a key is named by; None if it is none of ours."""
    folder, _, rest = key.partition("/")
    if key.startswith(BLOBS):
        found = key[len(BLOBS) :].replace("/", "", 1)
    elif f"{folder}/" in (CATALOGUE, PAGES):
        found = rest.removesuffix(".json")
    elif f"{folder}/" in (ITEMS, FILES):
        found = rest.partition("/")[0]
    else:
        return None
    return found if _SHA256.fullmatch(found) else None


# --- what is told with an object ---------------------------------------------------------


def document_attributes(key: str) -> ObjectAttributes:
    """Of the documents, by what they are."""
    lasts = IMMUTABLE if not key.startswith(LATEST) and key != POINTER else REVALIDATED
    if key.startswith(ITEMS):
        return ObjectAttributes(content_type=GEOJSON, cache_control=lasts)
    if key.endswith(".jsonld"):
        return ObjectAttributes(content_type=JSONLD, cache_control=lasts)
    return ObjectAttributes(content_type=TEXT if key.endswith(".txt") else JSON, cache_control=lasts)


def file_attributes(asset: Asset, *, latest: bool = False) -> ObjectAttributes:
    """A type that no header can hold is not told."""
    return ObjectAttributes(
        content_type=asset.media_type if _MEDIA_TYPE.fullmatch(asset.media_type) else None,
        cache_control=REVALIDATED if latest else IMMUTABLE,
        content_disposition=_disposition(asset.path.rpartition("/")[2]),
    )


def _disposition(name: str) -> str:
    """RFC 6266: shown where it can be, and saved under its own name."""
    if _PLAIN_NAME.fullmatch(name):
        return f'inline; filename="{name}"'
    return f"inline; filename*=UTF-8''{quote(name, safe='')}"
