"""Settings as flat dotted fields, for showing where each value came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kfm.config.secrets import is_address_name, is_reference, names_secret
from kfm.model.redaction import MASK, redact_url
from kfm.model.settings import Settings

_ADDRESSES = ("bucket", "store")
_NO_SECRET = ".webhook.signature"  # how it is made, not one


def fields(settings: Settings) -> Iterator[str]:
    for field, _ in leaves(settings):
        yield field


def leaves(settings: Settings) -> list[tuple[str, Any]]:
    """Every field that is not a group, with its value; secrets masked."""
    found: list[tuple[str, Any]] = []
    _walk(settings, "", found)
    return found


def _walk(value: Any, path: str, found: list[tuple[str, Any]]) -> None:
    if isinstance(value, msgspec.Struct):
        for name, item in _named(value):
            _walk(item, f"{path}.{name}" if path else name, found)
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            _walk(item, f"{path}.{name}", found)
    elif isinstance(value, tuple) and value and not _plain(value):
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", found)
    else:
        found.append((path, public(path, value)))


def _named(value: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Every field that is set, under the name that it has in a file."""
    for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        if (found := getattr(value, field)) is not msgspec.UNSET:
            yield name, found


def _plain(value: tuple[Any, ...]) -> bool:
    return not any(isinstance(item, msgspec.Struct | dict) for item in value)


def public(path: str, value: Any) -> Any:
    """A value as it may be printed. References are shown, what they refer to never is."""
    if isinstance(value, tuple):
        return [public(f"{path}[{index}]", item) for index, item in enumerate(value)]
    if not isinstance(value, str) or is_reference(value) or path.endswith(_NO_SECRET):
        return value
    name = path.rpartition(".")[2]
    if name.startswith("secrets["):
        return MASK
    if name in _ADDRESSES or is_address_name(name):
        return redact_url(value)
    return MASK if names_secret(name) and value else value


def public_document(settings: Settings) -> dict[str, Any]:
    """The whole configuration as a plain document that may be printed."""

    def plain(value: Any, path: str) -> Any:
        if isinstance(value, msgspec.Struct):
            return {n: plain(item, f"{path}.{n}") for n, item in _named(value)}
        if isinstance(value, dict):
            return {n: plain(item, f"{path}.{n}") for n, item in value.items()}
        if isinstance(value, tuple):
            return [plain(item, f"{path}[{i}]") for i, item in enumerate(value)]
        return public(path, value)

    document: dict[str, Any] = plain(settings, "")
    return document
