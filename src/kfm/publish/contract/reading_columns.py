"""Properties of a schema object."""

from __future__ import annotations

from typing import Any

from kfm.publish.contract import vocabulary
from kfm.publish.contract.document import Part
from kfm.publish.contract.model import Bounds, Property
from kfm.publish.contract.patterns import compiled, date_pattern
from kfm.publish.contract.reading_quality import read_rules
from kfm.publish.contract.values import ParseError, parser_for

_ORDERED = ("date", "timestamp", "time", "integer", "number")
_TIMES = ("date", "timestamp", "time")
_NUMBER_FORMATS = {
    "integer": ("i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "u128"),
    "number": ("f32", "f64"),
}
_DEPTH_MAX = 16


def read_properties(block: Part, depth: int = 0) -> tuple[Property, ...]:
    """The columns in their order; names and file names are unique."""
    if depth > _DEPTH_MAX:
        block.fail(f"properties are nested deeper than {_DEPTH_MAX}")
    properties: list[Property] = []
    for part in block.parts():
        prop = read_property(part, part.need("name").text(), depth)
        if any(prop.name == other.name or prop.column == other.column for other in properties):
            part.fail(f"there is already a property called {prop.name!r}")
        properties.append(prop)
    return tuple(properties)


def read_property(part: Part, name: str, depth: int) -> Property:
    part.fields(vocabulary.PROPERTY)
    kind_part = part.get("logicalType")
    kind: Any = kind_part.choice(vocabulary.OPTIONS) if kind_part else None
    options = part.get("logicalTypeOptions")
    if options is not None:
        if kind is None:
            options.fail("logicalTypeOptions need a logicalType")
        options.fields(vocabulary.OPTIONS[kind])
    physical = part.get("physicalName")
    primary = part.get("primaryKey")
    prop = Property(
        name=name,
        column=physical.text() if physical else name,
        logical_type=kind,
        required=_flag(part, "required"),
        unique=_flag(part, "unique"),
        primary_key_position=_key_position(part) if primary and primary.flag() else None,
        enum=_enum(part),
        quality=read_rules(part, {name}, level="property"),
        **(_options(options, kind) if options else {}),
        **_inner(part, kind, depth),
    )
    if depth and (prop.unique or prop.quality or prop.primary_key_position is not None):
        part.fail("unique, primaryKey and quality are for columns, not for members of an object")
    return prop


def _flag(part: Part, key: str) -> bool:
    found = part.get(key)
    return found.flag() if found else False


def _key_position(part: Part) -> int:
    position = part.get("primaryKeyPosition")
    return position.whole(1) if position and position.value != -1 else 1


def _enum(part: Part) -> tuple[Any, ...] | None:
    block = part.get("enum")
    if block is None:
        return None
    values = [item.need("value") if isinstance(item.value, dict) else item for item in block.parts()]
    if not values:
        block.fail("an enumeration needs at least one value")
    return tuple(item.scalar() for item in values)


def _inner(part: Part, kind: str | None, depth: int) -> dict[str, Any]:
    block, items = part.get("properties"), part.get("items")
    if block is not None and kind not in ("object", None):
        block.fail(f"a {kind} has no properties")
    if items is not None and kind != "array":
        items.fail("items need logicalType: array")
    return {
        "properties": read_properties(block, depth + 1) if block else (),
        "items": read_property(items, "item", depth + 1) if items else None,
    }


def _options(options: Part, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pattern = options.get("pattern")
    if pattern is not None:
        compiled(pattern)
        found["pattern"] = pattern.text()
    found["format"] = _format(options, kind)
    zone = options.get("defaultTimezone")
    if zone is not None:
        found["default_timezone"] = _zone(zone)
    timezone = options.get("timezone")
    if timezone is not None:
        found["timezone"] = timezone.flag()
    unique = options.get("uniqueItems")
    if unique is not None:
        found["unique_items"] = unique.flag()
    members = options.get("required")
    if members is not None:
        found["required_members"] = tuple(item.text() for item in members.parts())
    found["length"] = _length(options)
    if kind in _ORDERED:
        template = Property(
            name="bound",
            column="bound",
            logical_type=kind,  # type: ignore[arg-type]
            format=found["format"],
            default_timezone=found.get("default_timezone", "UTC"),
        )
        found["bounds"] = _bounds(options, template)
    return found


def _format(options: Part, kind: str) -> str | None:
    part = options.get("format")
    if part is None:
        return None
    if kind in _NUMBER_FORMATS:
        return part.choice(_NUMBER_FORMATS[kind])
    if kind in _TIMES:
        try:
            date_pattern(part.text())
        except ValueError as error:
            part.fail(str(error))
    return part.text()


def _zone(part: Part) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(part.text())
    except (OSError, ValueError, KeyError):
        part.fail(f"{part.text()!r} is not a time zone; write one such as America/Chicago")
    return part.text()


def _length(options: Part) -> Bounds | None:
    found = {}
    for word, side in (("min", "minimum"), ("max", "maximum")):
        for noun in ("Length", "Items", "Properties"):
            part = options.get(word + noun)
            if part is not None:
                found[side] = part.whole()
    return Bounds(**found) if found else None


def _bounds(options: Part, template: Property) -> Bounds | None:
    words = {
        "minimum": "minimum",
        "maximum": "maximum",
        "exclusiveMinimum": "exclusive_minimum",
        "exclusiveMaximum": "exclusive_maximum",
    }
    parse = parser_for(template).from_text
    found: dict[str, Any] = {}
    for word, side in words.items():
        part = options.get(word)
        if part is None:
            continue
        if template.logical_type in _TIMES:
            try:
                found[side] = parse(part.text())
            except ParseError as error:
                part.fail(f"{part.text()!r} is {error}")
        else:
            found[side] = part.number()
    step = options.get("multipleOf")
    if step is not None:
        if step.number() <= 0:
            step.fail("must be greater than 0")
        found["multiple_of"] = step.number()
    return Bounds(**found) if found else None
