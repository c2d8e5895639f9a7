"""Reads an ODCS document into a contract; every finding names file, line and nearest word."""

from __future__ import annotations

from typing import Any, Literal

from kfm.model.patterns import late
from kfm.publish.contract import vocabulary
from kfm.publish.contract.model import (
    Contract,
    ContractLimits,
    Freshness,
    Operator,
    Property,
    QualityRule,
    SchemaObject,
    ValueBounds,
)
from kfm.publish.contract.values import ParseError, parser_for
from kfm.publish.contract.vocabulary import date_pattern, require_expression
from kfm.publish.contract.yaml_document import DocumentPart, custom_properties, nearest, read_document

_API_VERSION = late(r"v3\.\d+\.\d+\Z")
_FRESHNESS_WORDS = {"freshness", "latency", "ly"}


def load_contract(text: bytes, name: str, limits: ContractLimits | None = None) -> Contract:
    """The contract in these bytes; `name` is the file, for the messages."""
    bounds = limits or ContractLimits()
    root = read_document(text, name, bytes_max=bounds.contract_bytes_max, nodes_max=bounds.contract_nodes_max)
    root.fields(vocabulary.CONTRACT)
    root.need("kind").choice(["DataContract"])
    api_version = root.need("apiVersion")
    if not _API_VERSION.match(api_version.text()):
        api_version.fail(f"{api_version.text()!r} is not supported; write v3.1.0 (any v3 is read)")
    custom = custom_properties(root, vocabulary.KFM_CONTRACT)
    schema = root.get("schema")
    objects = tuple(_read_object(part) for part in schema.parts()) if schema else ()
    _refuse_twins(schema, [item.name for item in objects])
    title = root.get("name")
    return Contract(
        id=root.need("id").text(),
        version=root.need("version").text(),
        status=root.need("status").text(),
        api_version=api_version.text(),
        name=title.text() if title else None,
        objects=objects,
        freshness=_read_freshness(root, objects),
        uncovered_allowed=_allows(custom, "kfmUncovered"),
    )


def _read_object(part: DocumentPart) -> SchemaObject:
    part.fields(vocabulary.OBJECT)
    logical_type = part.get("logicalType")
    if logical_type:
        logical_type.choice(["object"])
    name = part.need("name").text()
    physical = part.get("physicalName")
    block = part.get("properties")
    properties = read_properties(block) if block else ()
    names = {prop.name for prop in properties}
    custom = custom_properties(part, vocabulary.KFM_OBJECT)
    file_format: Any = custom["kfmFormat"].choice(vocabulary.FORMATS) if "kfmFormat" in custom else None
    winding: Any = (
        custom["kfmWinding"].choice(["ignore", "warn", "refuse"]) if "kfmWinding" in custom else "ignore"
    )
    return SchemaObject(
        name=name,
        path_pattern=physical.text() if physical else None,
        properties=properties,
        quality=read_rules(part, names, level="object"),
        format=file_format,
        pointer=_pointer(custom),
        delimiter=_delimiter(custom),
        extra_columns_allowed=_allows(custom, "kfmExtraColumns"),
        null_geometry_allowed=_allows(custom, "kfmNullGeometry"),
        winding=winding,
        optional=custom["kfmOptional"].flag() if "kfmOptional" in custom else False,
    )


def _allows(custom: dict[str, DocumentPart], word: str) -> bool:
    return word in custom and custom[word].choice(["allow", "refuse"]) == "allow"


def _pointer(custom: dict[str, DocumentPart]) -> str:
    part = custom.get("kfmPointer")
    if part is None:
        return ""
    if not part.text().startswith("/"):
        part.fail("a JSON pointer begins with '/'")
    return part.text()


def _delimiter(custom: dict[str, DocumentPart]) -> str:
    part = custom.get("kfmDelimiter")
    if part is None:
        return ","
    # A tab is a blank, so `text` would refuse it.
    value = part.value
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0':
        part.fail("must be one character, such as ';' or a tab written as \"\\t\"")
    return str(value)


def _refuse_twins(owner: DocumentPart | None, names: list[str]) -> None:
    for index, name in enumerate(names):
        if owner is not None and name in names[:index]:
            owner.parts()[index].fail(f"there is already an object called {name!r}")


def _read_freshness(root: DocumentPart, objects: tuple[SchemaObject, ...]) -> tuple[Freshness, ...]:
    block = root.get("slaProperties")
    default = root.get("slaDefaultElement")
    found: list[Freshness] = []
    for part in block.parts() if block else []:
        part.fields(vocabulary.SLA)
        word = part.need("property").text()
        if word.lower() not in _FRESHNESS_WORDS:
            continue
        part.need("value")
        elements = part.get("element") or default
        if elements is None:
            part.fail(f"{word} needs an element: the column whose newest value is looked at")
        for element in elements.text().split(","):
            found.append(_freshness(part, elements, element.strip(), objects))
    return tuple(found)


def _freshness(
    part: DocumentPart, where: DocumentPart, element: str, objects: tuple[SchemaObject, ...]
) -> Freshness:
    object_name, dot, column = element.rpartition(".")
    candidates = [item for item in objects if not dot or item.name == object_name]
    if not dot and len(objects) > 1:
        where.fail(f"the contract has several objects: write OBJECT.{element}")
    prop = _property(candidates[0].properties, column) if candidates else None
    if prop is None:
        known = ", ".join(f"{item.name}.{p.name}" for item in objects for p in item.properties)
        where.fail(f"there is no element {element!r}; there are: {known or 'none'}")
    if prop.logical_type not in ("date", "timestamp"):
        where.fail(f"{element!r} is not a date or a timestamp")
    unit = part.get("unit")
    unit_text = unit.text() if unit else "d"
    unit_ms = vocabulary.UNIT_MS.get(unit_text.lower())
    if unit is not None and unit_ms is None:
        unit.choice(vocabulary.UNIT_MS)
    value = part.need("value").number()
    if not 0 <= value < 1e9:
        part.need("value").fail("must be a number of units, not negative")
    return Freshness(
        object_name=candidates[0].name,
        property_name=prop.name,
        age_ms_max=int(value * (unit_ms or 0)),
        label=f"{value} {unit_text}",
    )


def _property(properties: tuple[Property, ...], name: str) -> Property | None:
    return next((prop for prop in properties if prop.name == name), None)


_ORDERED = ("date", "timestamp", "time", "integer", "number")
_TIMES = ("date", "timestamp", "time")
_NUMBER_FORMATS = {
    "integer": ("i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "u128"),
    "number": ("f32", "f64"),
}
_DEPTH_MAX = 16


def read_properties(block: DocumentPart, depth: int = 0) -> tuple[Property, ...]:
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


def read_property(part: DocumentPart, name: str, depth: int) -> Property:
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


def _flag(part: DocumentPart, key: str) -> bool:
    found = part.get(key)
    return found.flag() if found else False


def _key_position(part: DocumentPart) -> int:
    position = part.get("primaryKeyPosition")
    return position.whole(1) if position and position.value != -1 else 1


def _enum(part: DocumentPart) -> tuple[Any, ...] | None:
    block = part.get("enum")
    if block is None:
        return None
    values = [item.need("value") if isinstance(item.value, dict) else item for item in block.parts()]
    if not values:
        block.fail("an enumeration needs at least one value")
    return tuple(item.scalar() for item in values)


def _inner(part: DocumentPart, kind: str | None, depth: int) -> dict[str, Any]:
    block, items = part.get("properties"), part.get("items")
    if block is not None and kind not in ("object", None):
        block.fail(f"a {kind} has no properties")
    if items is not None and kind != "array":
        items.fail("items need logicalType: array")
    return {
        "properties": read_properties(block, depth + 1) if block else (),
        "items": read_property(items, "item", depth + 1) if items else None,
    }


def _options(options: DocumentPart, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pattern = options.get("pattern")
    if pattern is not None:
        found["pattern"] = require_expression(pattern)
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


def _format(options: DocumentPart, kind: str) -> str | None:
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


def _zone(part: DocumentPart) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(part.text())
    except (OSError, ValueError, KeyError):
        part.fail(f"{part.text()!r} is not a time zone; write one such as America/Chicago")
    return part.text()


def _length(options: DocumentPart) -> ValueBounds | None:
    found = {}
    for word, side in (("min", "minimum"), ("max", "maximum")):
        for noun in ("Length", "Items", "Properties"):
            part = options.get(word + noun)
            if part is not None:
                found[side] = part.whole()
    return ValueBounds(**found) if found else None


def _bounds(options: DocumentPart, template: Property) -> ValueBounds | None:
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
    return ValueBounds(**found) if found else None


_WARNINGS = {"info", "information", "warn", "warning"}


def read_rules(
    owner: DocumentPart, names: set[str], level: Literal["object", "property"]
) -> tuple[QualityRule, ...]:
    """The rules that can be checked on bytes. A rule that would be skipped in silence is refused."""
    block = owner.get("quality")
    rules = [_read_rule(part, names, level) for part in block.parts()] if block else []
    return tuple(rule for rule in rules if rule is not None)


def _read_rule(part: DocumentPart, names: set[str], level: str) -> QualityRule | None:
    part.fields(vocabulary.QUALITY)
    kind = part.get("type")
    kind_text = kind.choice(["library", "text", "sql", "custom"]) if kind else "library"
    if kind_text == "text" or _ignored(part):
        return None
    if kind_text != "library":
        part.fail(
            f"{kind_text} rules are not run here; use a library metric, or say that it is checked elsewhere "
            "with the custom property kfmIgnore: true"
        )
    metric, is_old = _metric(part)
    if level == "property" and metric == "rowCount":
        part.fail("rowCount belongs to the object, not to a property")
    if level == "object" and metric not in ("rowCount", "duplicateValues"):
        part.fail(f"{metric} belongs to a property, not to the object")
    unit = part.get("unit")
    severity = part.get("severity")
    name = part.get("name")
    return QualityRule(
        metric=metric,
        operator=_operator(part, is_old),
        name=name.text() if name else None,
        percent=unit is not None and unit.choice(["rows", "percent"]) == "percent",
        warns_only=severity is not None and severity.text().lower() in _WARNINGS,
        **_arguments(part, metric, names, level),
    )


def _ignored(part: DocumentPart) -> bool:
    custom = custom_properties(part, vocabulary.KFM_QUALITY)
    return "kfmIgnore" in custom and custom["kfmIgnore"].flag()


def _metric(part: DocumentPart) -> tuple[Any, bool]:
    metric, rule = part.get("metric"), part.get("rule")
    if metric is not None:
        return metric.choice(vocabulary.METRICS), False
    if rule is None:
        part.fail(f"metric is missing: one of {', '.join(vocabulary.METRICS)}")
    word = vocabulary.OLD_RULES.get(rule.text())
    return word or rule.choice((*vocabulary.METRICS, *vocabulary.OLD_RULES)), True


def _operator(part: DocumentPart, is_old: bool) -> Operator:
    given = [word for word in vocabulary.OPERATORS if part.get(word) is not None]
    if not given and is_old:
        return Operator(name="mustBe", operand=(0,))
    if len(given) != 1:
        part.fail(f"needs exactly one of {', '.join(vocabulary.OPERATORS)}; it has {len(given)}")
    value = part.need(given[0])
    if not given[0].endswith("Between"):
        return Operator(name=given[0], operand=(value.number(),))
    pair = [item.number() for item in value.parts()]
    if len(pair) != 2 or pair[0] > pair[1]:
        value.fail("must be two numbers, the smaller one first")
    return Operator(name=given[0], operand=tuple(pair))


def _arguments(part: DocumentPart, metric: str, names: set[str], level: str) -> dict[str, Any]:
    block = part.get("arguments")
    allowed = {
        "missingValues": {"missingValues"},
        "invalidValues": {"validValues", "pattern"},
        "duplicateValues": {"properties"} if level == "object" else set(),
    }.get(metric, set())
    if block is not None:
        block.fields(allowed)
    found: dict[str, Any] = {}
    missing = block.get("missingValues") if block else None
    if missing is not None:
        found["missing_values"] = tuple(item.scalar() for item in missing.parts())
    valid = (block.get("validValues") if block else None) or part.get("validValues")
    if valid is not None:
        found["valid_values"] = tuple(item.scalar() for item in valid.parts())
    pattern = block.get("pattern") if block else None
    if pattern is not None:
        found["pattern"] = require_expression(pattern)
    if metric == "invalidValues" and "valid_values" not in found and pattern is None:
        part.fail("invalidValues needs arguments: validValues, pattern, or both")
    if metric == "duplicateValues" and level == "object":
        found["properties"] = _columns(part, block, names)
    return found


def _columns(part: DocumentPart, block: DocumentPart | None, names: set[str]) -> tuple[str, ...]:
    listed = block.get("properties") if block else None
    if listed is None or not listed.parts():
        part.fail("duplicateValues of an object needs arguments.properties: the names of its columns")
    for item in listed.parts():
        if item.text() not in names:
            item.fail(f"there is no property {item.text()!r}{nearest(item.text(), names)}")
    return tuple(item.text() for item in listed.parts())
