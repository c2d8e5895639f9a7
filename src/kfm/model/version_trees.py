"""Version trees: the items and the files of a version as ordered maps, which versions share pages of.

A leaf of items has rows `[item id, SHA-256 of the item's document, its size, facts]`, a leaf of files
`[path, SHA-256, size]`. A document is the item's canonical bytes; it is kept once under its hash, whichever
versions have the item. Facts are what a catalogue says of many items at once; they are folded from page to
page, so that the facts of a whole version, or of a span of ids, are found on a few pages.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import StoreCorrupt
from kfm.model.records import Item, Manifest
from kfm.model.trees import Forest, Load, Row, TreeNode

SPREAD = 15  # one entry in 16 closes a page: a promotion writes one page on each level, so they are small
PAGES_KEPT_MAX = 16_384  # decoded pages that are remembered: of 250,000 items

_SORTED = msgspec.json.Encoder(order="sorted")
_ITEM = msgspec.json.Decoder(Item)
_WEST, _EAST = "-180", "180"

Box = tuple[str, str, str, str]  # decimal text: hashed documents hold no floats


class ItemFacts(NamedTuple):
    """What is known of one item, or of many, without reading them. In a row it is a list."""

    files: int
    bytes: int
    start_ms: int  # the first and the last instant that they tell of
    end_ms: int
    shortest_ms: int  # the lengths of their windows
    longest_ms: int
    modified_ms: int | None  # upstream's newest word
    bbox: Box | None


NO_ITEMS = ItemFacts(0, 0, 0, 0, 0, 0, None, None)


def items_forest(load: Load, known: dict[str, TreeNode] | None = None) -> Forest:
    """The pages of items."""
    return Forest(load, known, kept_max=PAGES_KEPT_MAX, spread=SPREAD, fold=folded)


def files_forest(load: Load, known: dict[str, TreeNode] | None = None) -> Forest:
    """The pages of files."""
    return Forest(load, known, kept_max=PAGES_KEPT_MAX, spread=SPREAD)


# --- items -------------------------------------------------------------------------------


def item_document(item: Item) -> bytes:
    """The canonical bytes of an item."""
    encoded = _SORTED.encode(item)
    if encoded.isascii() and b"\\" not in encoded:  # only escapes and order could be another's
        return encoded
    return canonical_bytes(msgspec.to_builtins(item))


def item_from(digest: str, document: bytes) -> Item:
    """The item, if it is the one that has this hash."""
    if sha256(document).hexdigest() != digest:
        raise StoreCorrupt(f"The item {digest[:12]} is not what was stored under this hash.")
    try:
        return _ITEM.decode(document)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"The item {digest[:12]} can't be read: {error}.") from error


def item_row(item: Item) -> tuple[Row, bytes]:
    """The row that stands for an item in its leaf, and its document."""
    document = item_document(item)
    return (item.id, sha256(document).hexdigest(), len(document), list(facts_of(item))), document


def facts_of(item: Item) -> ItemFacts:
    """The facts of one item."""
    start_ms, end_ms = item.interval_ms
    length_ms = item.window_end_ms - item.window_start_ms
    modified = [asset.modified_ms for asset in item.assets if asset.modified_ms is not None]
    return ItemFacts(
        files=len(item.assets),
        bytes=sum(asset.size for asset in item.assets),
        start_ms=start_ms,
        end_ms=end_ms,
        shortest_ms=length_ms,
        longest_ms=length_ms,
        modified_ms=max(modified, default=None),
        bbox=item.bbox,
    )


def facts_from(column: Sequence[Any]) -> ItemFacts:
    """The facts in a row."""
    facts = ItemFacts(*column)
    return facts if facts.bbox is None else facts._replace(bbox=_box(facts.bbox))


def folded(some: Iterable[Sequence[Any]]) -> list[Any]:
    """What facts come to together, in whatever order and portions they are folded."""
    every = list(some)
    if len(every) < 2:
        return list(every[0] if every else NO_ITEMS)
    files, sizes, starts, ends, shortest, longest, modified, boxes = zip(*every, strict=True)
    return [
        sum(files),
        sum(sizes),
        min(starts),
        max(ends),
        min(shortest),
        max(longest),
        max((one for one in modified if one is not None), default=None),
        _union([tuple(box) for box in boxes if box is not None]),
    ]


def _box(edges: Iterable[str]) -> Box:
    west, south, east, north = edges
    return west, south, east, north


def _union(boxes: list[tuple[str, ...]]) -> Box | None:
    """The box around all. One that crosses the antimeridian makes it a band around the globe, unless all are
    the same."""
    different = set(boxes)
    if len(different) < 2:
        return _box(boxes[0]) if boxes else None
    south = min((box[1] for box in different), key=_degrees)
    north = max((box[3] for box in different), key=_degrees)
    if any(float(box[0]) > float(box[2]) for box in different):
        return _WEST, south, _EAST, north
    west = min((box[0] for box in different), key=_degrees)
    east = max((box[2] for box in different), key=_degrees)
    return west, south, east, north


def _degrees(text: str) -> tuple[float, str]:
    return float(text), text  # one of two texts for one number, whatever the order


# --- whole manifests -----------------------------------------------------------------------


def header_of(manifest: Manifest) -> Manifest:
    """What a version says beside its items."""
    return replace(manifest, items=())


def manifest_pieces(manifest: Manifest) -> Iterator[bytes]:
    """The canonical bytes of a whole manifest, item by item: no copy of the whole is made to hash it."""
    assert all(one.id < other.id for one, other in pairwise(manifest.items)), "items are sorted by id"
    header = msgspec.to_builtins(header_of(manifest))
    before: bytes = b"{"
    for name in sorted(header):
        yield before + canonical_bytes(name) + b":"
        before = b","
        if name != "items":
            yield canonical_bytes(header[name])
            continue
        separator = b"["
        for item in manifest.items:
            yield separator + item_document(item)
            separator = b","
        yield b"]" if manifest.items else b"[]"
    yield b"}"
