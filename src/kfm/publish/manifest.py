"""Versions merged with what runs make, and compared. No side effects; costs what changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec

from kfm.model import settings
from kfm.model.errors import PathConflict, RightsMissing
from kfm.model.item_ids import item_id, source_part
from kfm.model.records import Asset, Item, Manifest, Record, Window
from kfm.model.trees import EMPTY
from kfm.model.versions import Version, VersionPages, edited

Mode = Literal["merge", "replace"]


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


# --- merging -------------------------------------------------------------------------


def merge(
    head: Version | None,
    dataset: settings.DatasetSettings,
    item: Item,
    mode: Mode,
    names: Collection[str] = (),
    *,
    rewindowed: bool = False,
) -> Version:
    """The head with this item in its slot; `replace` drops everything else of that source. `names`: all that
    its source goes or went by; items of any of them are its own. `rewindowed`: it drops items of that source
    whose windows lie in its own."""
    same = dict.fromkeys(names, item.source_id)
    return merge_items(head, dataset, (item,), mode, same, rewindowed=rewindowed)


def merge_items(
    head: Version | None,
    dataset: settings.DatasetSettings,
    items: Iterable[Item],
    mode: Mode,
    same: Mapping[str, str] = {},
    *,
    rewindowed: bool = False,
) -> Version:
    """Several items at once: a path may move from one source to another within one promotion. `same`: names
    of sources, and the ids that they stand for."""
    described = header(dataset, head.dataset_id if head else dataset.id)
    base = head or Version(VersionPages(), described, (EMPTY, EMPTY))
    normal = [_normal(item, dataset) for item in items]
    new = _as_they_stand(base, normal, mode)
    changes: dict[str, Item | None] = dict.fromkeys(_replaced(base, new, mode, same, rewindowed=rewindowed))
    kept = [one for name, one in base.find(item.id for item in new).items() if name not in changes]
    _require_unique([*kept, *new])
    return edited(base, described, changes | {item.id: item for item in new})


def header(dataset: settings.DatasetSettings, name: str) -> Manifest:
    """What a version of this dataset says beside its items. `name`: what readers know it by, which
    `kfm dataset rename` alters."""
    return Manifest(
        dataset_id=name,
        title=dataset.title or name,
        description=dataset.description or dataset.title or name,
        domain=dataset.domain,
        keywords=dataset.keywords,
        rights=require_rights(dataset.id, dataset.rights),
        items=(),
    )


def _replaced(
    base: Version, new: list[Item], mode: Mode, same: Mapping[str, str], *, rewindowed: bool
) -> list[str]:
    """The ids of the items that these take the place of."""
    slots = {_slot(item) for item in new}
    sources = {item.source_id for item in new}
    found = list(base.find(_ids_of(new, same)).values())
    if mode == "replace" or rewindowed:
        found += [one for name in _names(sources, same) for one in of_source(base, name)]
    return [
        one.id
        for one in {one.id: one for one in found}.values()
        if _slot(one, same) in slots
        or (mode == "replace" and same.get(one.source_id, one.source_id) in sources)
        or (rewindowed and any(_takes_over(each, one, same) for each in new))
    ]


def _ids_of(items: Iterable[Item], same: Mapping[str, str]) -> Iterable[str]:
    """The ids that these slots have, or had under earlier names of their sources."""
    for item in items:
        for name in _names({item.source_id}, same):
            yield item_id(name, _window(item), item.partition)


def _names(sources: Collection[str], same: Mapping[str, str]) -> set[str]:
    return {*sources, *(name for name, source_id in same.items() if source_id in sources)}


def _window(item: Item) -> Window:
    return Window(start_ms=item.window_start_ms, end_ms=item.window_end_ms, spec="")


def _takes_over(new: Item, old: Item, same: Mapping[str, str]) -> bool:
    """Does the window of the one lie in that of the other? One that lies across its edge can't be replaced by
    it: readers would lose a part, or see it twice."""
    mine = (same.get(old.source_id, old.source_id), old.partition) == (new.source_id, new.partition)
    start_ms, end_ms = old.window_start_ms, old.window_end_ms
    if not mine or start_ms >= new.window_end_ms or new.window_start_ms >= end_ms:
        return False
    if new.window_start_ms > start_ms or end_ms > new.window_end_ms:
        raise PathConflict(f"The window of {old.id} lies around that of {new.id}, or across its edge.")
    return True


def require_rights(dataset_id: str, rights: settings.Rights | None) -> settings.Rights:
    """Rights travel with the data, or the data does not travel."""
    if rights is None:
        raise RightsMissing(f"Dataset {dataset_id} declares none.")
    if not rights.license.strip():
        raise RightsMissing(f"Dataset {dataset_id} names no licence.")
    if not rights.care.label.strip():
        raise RightsMissing(f"Dataset {dataset_id} has no CARE label.")
    return rights


def _as_they_stand(base: Version, items: list[Item], mode: Mode) -> list[Item]:
    """Work done again with the same outcome changes nothing: an item keeps naming the run that made it.

    Where one window takes the place of another, the same files are the same outcome: the label alone makes
    no version.
    """
    known = base.find(item.id for item in items)
    stands = []
    for item in items:
        was = known.get(item.id)
        if was is not None and _unsigned(was) == _unsigned(item):
            item = was
        elif mode == "replace":
            others = of_source(base, item.source_id)
            item = others[0] if len(others) == 1 and same_content(others[0], item) else item
        stands.append(item)
    return stands


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


def same_contents(some: Iterable[Item], others: Iterable[Item]) -> bool:
    """Do these hold the same files, item by item?"""
    mine, its = list(some), list(others)
    return len(mine) == len(its) and all(map(same_content, mine, its))


def shows(head: Version, other: Version, source_id: str) -> bool:
    """Do two versions show the same files of a source?"""
    return same_contents(of_source(head, source_id), of_source(other, source_id))


def of_source(version: Version, source_id: str) -> list[Item]:
    """What a version has of a source."""
    return [one for one in version.items(source_part(source_id)) if one.source_id == source_id]


def of_window(version: Version, source_id: str, window: Window) -> list[Item]:
    """What a version has of one window of a source."""
    slot, each = (source_id, window.start_ms, window.end_ms), version.items(item_id(source_id, window, None))
    return [one for one in each if (one.source_id, one.window_start_ms, one.window_end_ms) == slot]


def _slot(item: Item, same: Mapping[str, str] = {}) -> tuple[str, int, int, str | None]:
    return (
        same.get(item.source_id, item.source_id),
        item.window_start_ms,
        item.window_end_ms,
        item.partition,
    )


def _normal(item: Item, dataset: settings.DatasetSettings) -> Item:
    """One form for one meaning: the slot's id, assets by path, and an extent where one is known."""
    bbox = item.bbox
    if bbox is None and dataset.bbox is not None:
        west, south, east, north = (decimal_text(edge) for edge in dataset.bbox)
        bbox = (west, south, east, north)
    return msgspec.structs.replace(
        item,
        id=item_id(item.source_id, _window(item), item.partition),
        assets=tuple(sorted(item.assets, key=lambda asset: asset.path)),
        bbox=bbox,
    )


def decimal_text(value: float) -> str:
    """The shortest decimal that reads back as the same float, without exponent: the same everywhere."""
    text = format(Decimal(repr(value)), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _require_unique(items: Iterable[Item]) -> None:
    slots: dict[str, tuple[str, int, int, str | None]] = {}
    for item in items:
        if item.id in slots:
            raise PathConflict(f"{slots[item.id]} and {_slot(item)} are both called {item.id}.")
        slots[item.id] = _slot(item)


# --- comparing -----------------------------------------------------------------------


def diff(old: Version | None, new: Version) -> list[VersionChange]:
    """Every difference, fields first, then items, then files by path. Which run made an item is none."""
    changed = new.changed_items(old)
    fields = _field_changes(old.header if old else None, new.header)
    return [*fields, *_item_changes(changed), *_asset_changes(changed)]


ChangedItems = list[tuple[Item | None, Item | None]]


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


def _item_changes(changed: ChangedItems) -> list[VersionChange]:
    """Items as such: a file's change is reported with the file, so only what files do not show."""
    changes = []
    for was, now in changed:
        if was is None and now is not None and not now.assets:
            changes.append(VersionChange(kind="added", what="item", name=now.id, item_id=now.id))
        elif now is None and was is not None and not was.assets:
            changes.append(VersionChange(kind="removed", what="item", name=was.id, item_id=was.id))
        elif was and now and _bare(was) != _bare(now):
            changes.append(VersionChange(kind="changed", what="item", name=now.id, item_id=now.id))
    return changes


def _bare(item: Item) -> Item:
    return msgspec.structs.replace(item, assets=(), run_state=msgspec.UNSET)


def _asset_changes(changed: ChangedItems) -> list[VersionChange]:
    before, after = _sides(changed)
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


def _sides(changed: ChangedItems) -> tuple[dict[str, tuple[str, Asset]], dict[str, tuple[str, Asset]]]:
    """The files of the items that differ, before and after, by path."""
    return _by_path(was for was, _ in changed), _by_path(now for _, now in changed)


def _by_path(items: Iterable[Item | None]) -> dict[str, tuple[str, Asset]]:
    return {asset.path: (item.id, asset) for item in items if item is not None for asset in item.assets}


def tally(old: Version | None, new: Version) -> ChangeTally:
    """The counts of files behind `diff`. Bytes that a file of another path had already are not new, as far as
    that one changed, too."""
    before, after = _sides(new.changed_items(old))
    known = {asset.sha256 for _, asset in before.values()}
    fresh = {asset.sha256: asset.size for _, asset in after.values() if asset.sha256 not in known}
    both = before.keys() & after.keys()
    changed = sum(before[path] != after[path] for path in both)
    facts = new.facts()
    added = len(after.keys() - before.keys())
    return ChangeTally(
        added=added,
        changed=changed,
        removed=len(before.keys() - after.keys()),
        unchanged=facts.files - added - changed,
        bytes_new=sum(fresh.values()),
        bytes_total=facts.bytes,
    )


def blobs(items: Iterable[Item]) -> frozenset[str]:
    """Every object that these need."""
    return frozenset(asset.sha256 for item in items for asset in item.assets)
