"""Reads an ODCS document into a Contract; every complaint names file, line and nearest word."""

from __future__ import annotations

import re
from typing import Any

from kfm.publish.contract import vocabulary
from kfm.publish.contract.document import Part, custom_properties, read_document
from kfm.publish.contract.model import Contract, ContractLimits, Freshness, Property, SchemaObject
from kfm.publish.contract.reading_columns import read_properties
from kfm.publish.contract.reading_quality import read_rules

_API_VERSION = re.compile(r"v3\.\d+\.\d+\Z")
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


def _read_object(part: Part) -> SchemaObject:
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


def _allows(custom: dict[str, Part], word: str) -> bool:
    return word in custom and custom[word].choice(["allow", "refuse"]) == "allow"


def _pointer(custom: dict[str, Part]) -> str:
    part = custom.get("kfmPointer")
    if part is None:
        return ""
    if not part.text().startswith("/"):
        part.fail("a JSON pointer begins with '/'")
    return part.text()


def _delimiter(custom: dict[str, Part]) -> str:
    part = custom.get("kfmDelimiter")
    if part is None:
        return ","
    # A tab is a blank, so `text` would refuse it.
    value = part.value
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0':
        part.fail("must be one character, such as ';' or a tab written as \"\\t\"")
    return str(value)


def _refuse_twins(owner: Part | None, names: list[str]) -> None:
    for index, name in enumerate(names):
        if owner is not None and name in names[:index]:
            owner.parts()[index].fail(f"there is already an object called {name!r}")


def _read_freshness(root: Part, objects: tuple[SchemaObject, ...]) -> tuple[Freshness, ...]:
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


def _freshness(part: Part, where: Part, element: str, objects: tuple[SchemaObject, ...]) -> Freshness:
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
