"""A manifest is one whole version of a dataset; here it is merged, named and compared. No side effects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec

from kfm.model import settings
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import PathConflict, RightsMissing
from kfm.model.records import Asset, Item, Manifest, Record, Window
from kfm.model.times import is_all_time, rfc3339

Mode = Literal["merge", "replace"]

_PART_CHARS_MAX = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class VersionChange(Record, frozen=True):
    """One difference between two versions. An extent is never quoted: a plan holds no coordinates."""

    kind: Literal["added", "changed", "removed"]
    what: Literal["asset", "item", "rights", "title", "description", "domain", "keywords"]
    name: str  # the asset's path, the item's id, or the field's name
    item_id: str | None = None
    size_before: int | None = None
    size_after: int | None = None
    sha256_before: str | None = None
    sha256_after: str | None = None
    before: str | None = None
    after: str | None = None


class ChangeTally(Record, frozen=True):
    """How many files a change touches, and how many bytes a reader would have to fetch anew."""

    added: int
    changed: int
    removed: int
    unchanged: int
    bytes_new: int
    bytes_total: int


# --- names ---------------------------------------------------------------------------


def item_id(source_id: str, window: Window, partition: str | None) -> str:
    """The id of a slot: readable, safe in a URL and as a file name, one for each slot."""
    name = _part(source_id)
    if not is_all_time(window.start_ms, window.end_ms):
        name += f"_{_instant(window.start_ms)}_{_instant(window.end_ms)}"
    return name if partition is None else f"{name}~{_part(partition)}"


def _part(text: str) -> str:
    """Text as it may stand in an id; where something had to go, a hash keeps it unique."""
    plain = _UNSAFE.sub("-", text)[:_PART_CHARS_MAX]
    if plain == text and text:
        return text
    return f"{plain}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _instant(at_ms: int) -> str:
    """The basic form of ISO 8601: colons are not safe in file names everywhere."""
    return rfc3339(at_ms).replace("-", "").replace(":", "")


def document(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain JSON values."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(manifest))
    return plain


def manifest_bytes(manifest: Manifest) -> bytes:
    """What is hashed is what is published: the SHA-256 of `manifest.json` is the version's id."""
    return canonical_bytes(document(manifest))


def version_id(manifest: Manifest) -> str:
    return "sha256:" + hashlib.sha256(manifest_bytes(manifest)).hexdigest()


# --- merging -------------------------------------------------------------------------


def merge(
    head: Manifest | None,
    dataset: settings.DatasetSettings,
    item: Item,
    mode: Mode,
    names: Collection[str] = (),
) -> Manifest:
    """The head with this item in its slot; `replace` drops everything else of that source. `names`: all that
    its source goes or went by; items of any of them are its own."""
    return merge_items(head, dataset, (item,), mode, dict.fromkeys(names, item.source_id))


def merge_items(
    head: Manifest | None,
    dataset: settings.DatasetSettings,
    items: Iterable[Item],
    mode: Mode,
    same: Mapping[str, str] = {},
) -> Manifest:
    """Several items at once: a path may move from one source to another within one promotion. `same`: names
    of sources, and the ids that they stand for."""
    rights = require_rights(dataset.id, dataset.rights)
    old = {item.id: item for item in (head.items if head else ())}
    new = [_as_it_stands(old, _normal(item, dataset), mode) for item in items]
    slots = {_slot(item) for item in new}
    sources = {item.source_id for item in new} if mode == "replace" else set()
    kept = [
        item
        for item in (head.items if head else ())
        if _slot(item, same) not in slots and same.get(item.source_id, item.source_id) not in sources
    ]
    merged = tuple(sorted([*kept, *new], key=lambda item: item.id))
    _require_unique(merged)
    return Manifest(
        dataset_id=dataset.id,
        title=dataset.title or dataset.id,
        description=dataset.description or dataset.title or dataset.id,
        domain=dataset.domain,
        keywords=dataset.keywords,
        rights=rights,
        items=merged,
    )


def require_rights(dataset_id: str, rights: settings.Rights | None) -> settings.Rights:
    """Rights travel with the data, or the data does not travel."""
    if rights is None:
        raise RightsMissing(f"Dataset {dataset_id} declares none.")
    if not rights.license.strip():
        raise RightsMissing(f"Dataset {dataset_id} names no licence.")
    if not rights.care.label.strip():
        raise RightsMissing(f"Dataset {dataset_id} has no CARE label.")
    return rights


def _as_it_stands(old: dict[str, Item], item: Item, mode: Mode) -> Item:
    """Work done again with the same outcome changes nothing: the item keeps naming the run that made it.

    Where one window takes the place of another, the same files are the same outcome: the label alone makes
    no version.
    """
    known = old.get(item.id)
    if known is not None and _unsigned(known) == _unsigned(item):
        return known
    if mode == "replace":
        of_source = [one for one in old.values() if one.source_id == item.source_id]
        if len(of_source) == 1 and same_content(of_source[0], item):
            return of_source[0]
    return item


def _unsigned(item: Item) -> Item:
    """Without what differs from run to run."""
    plain = msgspec.structs.replace(item, run_state=msgspec.UNSET)
    return _undated(plain) if item.is_snapshot else plain


def _undated(item: Item) -> Item:
    assets = tuple(msgspec.structs.replace(asset, modified_ms=None) for asset in item.assets)
    return msgspec.structs.replace(item, assets=assets, as_of=msgspec.UNSET)


def same_content(one: Item, other: Item) -> bool:
    """Do two items hold the same files, whatever window they are labelled with?"""

    def files(item: Item) -> tuple[Any, ...]:
        return (
            item.partition,
            item.bbox,
            [(asset.path, asset.sha256, asset.media_type, asset.roles) for asset in item.assets],
        )

    return files(one) == files(other)


def shows(head: Manifest, other: Manifest, source_id: str) -> bool:
    """Do two versions show the same files of a source?"""
    mine, its = ([one for one in each.items if one.source_id == source_id] for each in (head, other))
    return len(mine) == len(its) and all(map(same_content, mine, its))


def _slot(item: Item, same: Mapping[str, str] = {}) -> tuple[str, int, int, str | None]:
    return (
        same.get(item.source_id, item.source_id),
        item.window_start_ms,
        item.window_end_ms,
        item.partition,
    )


def _normal(item: Item, dataset: settings.DatasetSettings) -> Item:
    """One form for one meaning: the slot's id, assets by path, and an extent where one is known."""
    window = Window(start_ms=item.window_start_ms, end_ms=item.window_end_ms, spec="")
    bbox = item.bbox
    if bbox is None and dataset.bbox is not None:
        west, south, east, north = (decimal_text(edge) for edge in dataset.bbox)
        bbox = (west, south, east, north)
    return msgspec.structs.replace(
        item,
        id=item_id(item.source_id, window, item.partition),
        assets=tuple(sorted(item.assets, key=lambda asset: asset.path)),
        bbox=bbox,
    )


def decimal_text(value: float) -> str:
    """The shortest decimal that reads back as the same float, without exponent: the same everywhere."""
    text = format(Decimal(repr(value)), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _require_unique(items: tuple[Item, ...]) -> None:
    slots: dict[str, tuple[str, int, int, str | None]] = {}
    for item in items:
        if item.id in slots:
            raise PathConflict(f"{slots[item.id]} and {_slot(item)} are both called {item.id}.")
        slots[item.id] = _slot(item)
    paths: dict[str, str] = {}
    for item in items:
        for asset in item.assets:
            if asset.path in paths:
                raise PathConflict(f"{asset.path} belongs to {paths[asset.path]} and to {item.id}.")
            paths[asset.path] = item.id
    for path, owner in paths.items():
        folder = path
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in paths:
                raise PathConflict(f"{folder} of {paths[folder]} is a folder of {owner} ({path}).")


# --- comparing -----------------------------------------------------------------------


def diff(old: Manifest | None, new: Manifest) -> list[VersionChange]:
    """Every difference, fields first, then items, then files by path. Which run made an item is none."""
    return [*_field_changes(old, new), *_item_changes(old, new), *_asset_changes(old, new)]


def _field_changes(old: Manifest | None, new: Manifest) -> list[VersionChange]:
    if old is None:
        return []
    pairs = {
        "title": (old.title, new.title),
        "description": (old.description, new.description),
        "domain": (old.domain, new.domain),
        "keywords": (", ".join(old.keywords), ", ".join(new.keywords)),
    }
    changes = [
        VersionChange(kind="changed", what=name, name=name, before=before, after=after)  # type: ignore[arg-type]
        for name, (before, after) in pairs.items()
        if getattr(old, name) != getattr(new, name)
    ]
    before, after = _flat_rights(old.rights), _flat_rights(new.rights)
    changes += [
        VersionChange(
            kind="changed",
            what="rights",
            name=f"rights.{name}",
            before=before.get(name),
            after=after.get(name),
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    return changes


def _flat_rights(rights: settings.Rights) -> dict[str, str]:
    flat: dict[str, str] = {}

    def walk(prefix: str, node: dict[str, Any]) -> None:
        for key, value in node.items():
            if isinstance(value, dict):
                walk(f"{prefix}{key}.", value)
            elif value is not None:
                flat[prefix + key] = str(value)

    walk("", msgspec.to_builtins(rights))
    return flat


def _item_changes(old: Manifest | None, new: Manifest) -> list[VersionChange]:
    """Items as such: a file's change is reported with the file, so only what files do not show."""
    before = {item.id: item for item in (old.items if old else ())}
    after = {item.id: item for item in new.items}
    changes = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was is None and now is not None and not now.assets:
            changes.append(VersionChange(kind="added", what="item", name=name, item_id=name))
        elif now is None and was is not None and not was.assets:
            changes.append(VersionChange(kind="removed", what="item", name=name, item_id=name))
        elif was and now and _bare(was) != _bare(now):
            changes.append(VersionChange(kind="changed", what="item", name=name, item_id=name))
    return changes


def _bare(item: Item) -> Item:
    return msgspec.structs.replace(item, assets=(), run_state=msgspec.UNSET)


def _asset_changes(old: Manifest | None, new: Manifest) -> list[VersionChange]:
    before, after = _by_path(old), _by_path(new)
    changes = []
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        owner, kind = (
            (now or was or ("", None))[0],
            "changed" if was and now else "added" if now else "removed",
        )
        changes.append(
            VersionChange(
                kind=kind,  # type: ignore[arg-type]
                what="asset",
                name=path,
                item_id=owner,
                size_before=was[1].size if was else None,
                size_after=now[1].size if now else None,
                sha256_before=was[1].sha256 if was else None,
                sha256_after=now[1].sha256 if now else None,
                before=_detail(was, now),
                after=_detail(now, was),
            )
        )
    return changes


def _detail(one: tuple[str, Asset] | None, other: tuple[str, Asset] | None) -> str | None:
    """What differs beside the bytes, of one side."""
    if one is None or other is None:
        return None
    parts = [f"item {one[0]}"] if one[0] != other[0] else []
    for name in ("media_type", "modified_ms", "source_uri", "roles"):
        mine = getattr(one[1], name)
        if mine != getattr(other[1], name):
            parts.append(f"{name} {mine}")
    return "; ".join(parts) or None


def _by_path(manifest: Manifest | None) -> dict[str, tuple[str, Asset]]:
    items = manifest.items if manifest else ()
    return {asset.path: (item.id, asset) for item in items for asset in item.assets}


def tally(old: Manifest | None, new: Manifest) -> ChangeTally:
    """The counts of files behind `diff`."""
    before, after = _by_path(old), _by_path(new)
    known = blobs(old) if old else frozenset[str]()
    fresh = {asset.sha256: asset.size for _, asset in after.values() if asset.sha256 not in known}
    both = before.keys() & after.keys()
    changed = sum(before[path] != after[path] for path in both)
    return ChangeTally(
        added=len(after.keys() - before.keys()),
        changed=changed,
        removed=len(before.keys() - after.keys()),
        unchanged=len(both) - changed,
        bytes_new=sum(fresh.values()),
        bytes_total=sum(asset.size for _, asset in after.values()),
    )


def blobs(manifest: Manifest) -> frozenset[str]:
    """Every object that this version needs."""
    return frozenset(asset.sha256 for item in manifest.items for asset in item.assets)
