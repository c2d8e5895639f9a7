"""Forms of changes, made from the bodies of the API's operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import inspect

from kfm.model.records import Record
from kfm.web.api.operations import TIME, Operation
from kfm.web.console.actions import REASON

DIGEST = "digest"  # of the preview; no person types it
LABELS = {"to_version": "Version", "start": "From", "end": "Before", "missed_only": "Only missed ones"}
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")
UNASKED = (*REASON, DIGEST, "dry_run")


class FormField(Record, frozen=True):
    """One question of a form."""

    name: str
    label: str
    kind: Literal["text", "time", "number", "decimal", "check", "choice"]
    about: str
    value: str
    is_required: bool
    options: tuple[str, ...] = ()


def fields_of(operation: Operation, values: Mapping[str, str]) -> list[FormField]:
    """What the operation asks for, beside its reason; `values` is what has been answered."""
    assert operation.body is not None
    return [_field(each, values) for each in _asked(operation) if each.name not in UNASKED]


def names_of(operation: Operation) -> list[str]:
    """Everything that a form of it may have."""
    return [*operation.fields, *(each.name for each in _asked(operation))]


def body_from(operation: Operation, form: Mapping[str, str]) -> dict[str, Any]:
    """What a form says, as the API takes it. A field that was left empty is not given."""
    found: dict[str, Any] = {}
    for each in _asked(operation):
        value, kind = form.get(each.name, "").strip(), _kind(each)[0]
        if kind == "check":
            found[each.name] = value == "true"
        elif value and kind == "number" and value.isascii() and value.isdigit():
            found[each.name] = int(value)
        elif value and kind == "decimal" and _DECIMAL.fullmatch(value):
            found[each.name] = float(value)
        elif value:
            found[each.name] = as_utc(value) if kind == "time" else value
    return found


def as_utc(text: str) -> str:
    """A time without a zone, as browsers send it, is in UTC: the label says so."""
    if _LOCAL.fullmatch(text) is None:
        return text
    return f"{text}{':00' if text.count(':') == 1 else ''}Z"


def _asked(operation: Operation) -> Sequence[inspect.Field]:
    info = inspect.type_info(operation.body)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _field(field: inspect.Field, values: Mapping[str, str]) -> FormField:
    kind, options, about = _kind(field)
    value = values.get(field.name, "")
    if kind == "check" and field.name not in values and field.default is True:
        value = "true"
    if kind == "time":
        value = as_utc(value).removesuffix("Z")
    return FormField(
        name=field.name,
        label=LABELS.get(field.name) or field.name.replace("_", " ").capitalize(),
        kind=kind,
        about=about,
        value=value,
        is_required=field.required,
        options=options,
    )


def _kind(field: inspect.Field) -> tuple[Any, tuple[str, ...], str]:
    """How a value is asked for, the words that it may be, and what it is."""
    found, about = field.type, ""
    while isinstance(found, inspect.Metadata | inspect.UnionType):
        if isinstance(found, inspect.Metadata):
            about = about or str((found.extra_json_schema or {}).get("description", ""))
            found = found.type
        else:
            found = next(each for each in found.types if not isinstance(each, inspect.NoneType))
    if isinstance(found, inspect.LiteralType):
        return "choice", tuple(map(str, found.values)), about
    if isinstance(found, inspect.BoolType):
        return "check", (), about
    if isinstance(found, inspect.IntType):
        return "number", (), about
    if isinstance(found, inspect.FloatType):
        return "decimal", (), about
    is_time = isinstance(found, inspect.StrType) and found.pattern == f"^{TIME}$"
    return ("time" if is_time else "text"), (), about


def decoded(value: Any) -> str:
    """A value of a document, for a line of a receipt."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
