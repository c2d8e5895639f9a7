"""What a dataset is: where its objects lie, who announces them, and rules that read their keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256

import msgspec

from kfm.model.feeds import Cadence
from kfm.model.records import Record
from kfm.model.units import is_plain, plain_wal_id, wal_id
from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import object_uri, quoted_uri
from kfm.nodd.patterns import Fields, Pattern, Template
from kfm.nodd.spans import Span

ITEM_ID_CHARS_MAX = 200
_KEPT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_KEPT_OR_SLASH = re.compile(r"[A-Za-z0-9._/-]*\Z")


class Place(Record, frozen=True):
    """One bucket. At home ids of items are shortest; a copy elsewhere is an object of its own."""

    bucket: str  # Azure: account/container
    provider: str = "aws"
    platform: str | None = None  # where a bucket holds one platform only
    home: bool = True


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One family of keys. The first rule that fits a key decides, also to refuse it."""

    pattern: Pattern
    product: Template | Callable[[Fields], str]
    times: Callable[[Fields], Span]
    platform: Template | None = None
    platforms: Mapping[str, str] | None = None  # what the platform's text means; others are refused
    # The folders that follow from the file name. Others in their place make an object suspect.
    folders: Callable[[Fields, Span], Fields] | None = None
    # An id that is shorter than the key: all its fields except the folders that follow.
    item: Template | None = None
    footprint: Callable[[Fields, str | None, Span], Footprint | None] | None = None
    # The start time within a unit's id. It never changes again: a repair of `times` leaves the old
    # function here, or else the repair would make a second unit of every object.
    frozen: Callable[[Fields], int | None] | None = None


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A known dataset: what one module of `kfm.nodd.datasets`, or of a plugin, declares."""

    name: str
    title: str
    places: tuple[Place, ...]
    topics: tuple[str, ...]
    rules: tuple[Rule, ...]
    media_type: str = "application/octet-stream"
    licence: str = "CC0-1.0"
    # Suffix → role of files that describe another file: one asset of its item each.
    sidecars: Mapping[str, str] = {}
    # How often objects are made, where that is known well; a product without a cadence is shown by its lag.
    cadences: tuple[Cadence, ...] = ()

    @property
    def collection(self) -> str:
        return self.name

    @property
    def has_short_ids(self) -> bool:
        return any(rule.item is not None for rule in self.rules)


class Reading(Record, frozen=True, gc=False):
    """The reading of a key: the fields of its object, and the ids of its unit and item."""

    dataset: str
    object_uri: str
    provider: str
    bucket: str
    key: str
    product: str | None
    platform: str | None
    time_range_start_ms: int | None
    time_range_end_ms: int | None
    reference_time_ms: int | None
    forecast_hour: int | None
    wal_id: str
    stac_collection_id: str
    stac_item_id: str
    asset: str = "data"  # or the role of a sidecar
    data_uri: str | None = None  # of the object that a sidecar describes
    issued_ms: int | None = None
    created_ms: int | None = None
    footprint: Footprint | None = None
    suspect: tuple[str, ...] = ()


def read(dataset: Dataset, place: Place, key: str) -> Reading | None:
    """The reading of a key of the dataset; None if it is not one of its keys. Raises RecordRefusal."""
    data_key, asset = key, "data"
    if dataset.sidecars:
        for suffix, role in dataset.sidecars.items():
            if key.endswith(suffix):
                data_key, asset = key.removesuffix(suffix), role
                break
    for rule in dataset.rules:
        fields = rule.pattern.match(data_key)
        if fields is not None:
            return _reading(dataset, place, rule, fields, key, data_key, asset)
    return None


def _reading(
    dataset: Dataset, place: Place, rule: Rule, fields: Fields, key: str, data_key: str, asset: str
) -> Reading:
    platform = _platform(rule, fields, place)
    span = rule.times(fields)
    if span.start_ms is not None and span.end_ms is not None and span.end_ms < span.start_ms:
        raise RecordRefusal("TIME_ORDER")
    placed, astray = _whereabouts(fields, rule.folders(fields, span)) if rule.folders else (True, False)
    short = rule.item.render(fields) if rule.item is not None else None
    start_ms = span.start_ms if rule.frozen is None else rule.frozen(fields)
    provider, bucket = where = (place.provider, place.bucket)
    uri = object_uri(provider, bucket, key)
    # A short id leaves the folders out, so it stands alone only where they follow from the file name.
    marked = not place.home or not (placed if short else not dataset.has_short_ids)
    # By position, in the order of the record's fields: with twenty names this would take four times as long.
    return Reading(
        dataset.name,
        uri,
        provider,
        bucket,
        key,
        rule.product.render(fields) if isinstance(rule.product, Template) else rule.product(fields),
        platform,
        span.start_ms,
        span.end_ms,
        span.reference_ms,
        span.forecast_hour,
        unit_id(dataset.name, where, key, uri, start_ms),
        dataset.collection,
        item_id(data_key, where, short=short, marked=marked),
        asset,
        object_uri(provider, bucket, data_key) if asset != "data" else None,
        span.issued_ms,
        span.created_ms,
        rule.footprint(fields, platform, span) if rule.footprint else None,
        ("FOLDER_DISAGREES",) if astray else (),
    )


def unit_id(dataset: str, where: tuple[str, str], key: str, uri: str, start_ms: int | None) -> str:
    """The unit of an object whose decoded key and address are known."""
    if is_plain(uri):
        return plain_wal_id(dataset, uri, start_ms)
    return wal_id(dataset, quoted_uri(*where, key), start_ms)


def _whereabouts(fields: Fields, folders: Fields) -> tuple[bool, bool]:
    """(Does the object lie in the folders that follow from its name? Does it lie in others?)"""
    if folders.items() <= fields.items():
        return True, False
    placed = all(fields.get(name) == value for name, value in folders.items())
    return placed, not placed and any(
        fields.get(name) not in (None, value) for name, value in folders.items()
    )


def _platform(rule: Rule, fields: Fields, place: Place) -> str | None:
    if rule.platform is None:
        return None
    for name in rule.platform.names:
        if fields.get(name) is None:
            return None
    platform = rule.platform.render(fields)
    if rule.platforms is not None:
        if platform not in rule.platforms:
            raise RecordRefusal("PLATFORM_UNKNOWN")
        platform = rule.platforms[platform]
    if place.platform is not None and platform != place.platform:
        raise RecordRefusal("PLATFORM_MISMATCH", f"The bucket holds {place.platform} only.")
    return platform


# --- ids of items --------------------------------------------------------------------


def item_id(data_key: str, where: tuple[str, str], *, short: str | None = None, marked: bool = False) -> str:
    """The id of a data object's item: two objects, two ids.

    Either it follows from the key so that the key follows from it, or it ends with `~--` and a hash of
    the whole address, which no id of the first kind does. Every catalogue takes the characters of both.
    """
    text = escaped(data_key) if short is None else short
    if marked or len(text) > ITEM_ID_CHARS_MAX:
        digest = sha256(object_uri(*where, data_key).encode("utf-8")).hexdigest()
        return f"{text[: ITEM_ID_CHARS_MAX - 40]}~--{digest[:16]}"
    return text


def escaped(key: str) -> str:
    """A key as one segment of a path: `/` becomes `~`, other unusual characters `~-XX` for each byte.

    A `-` that begins a folder's name counts as unusual: so `~-` stands for nothing else.
    """
    if _KEPT_OR_SLASH.match(key) is not None and "/-" not in key:
        return key.replace("/", "~")
    pieces, before = [], ""
    for char in key:
        if char == "/":
            pieces.append("~")
        elif char in _KEPT and not (char == "-" and before == "/"):
            pieces.append(char)
        else:
            pieces += [f"~-{byte:02X}" for byte in char.encode()]
        before = char
    return "".join(pieces)
