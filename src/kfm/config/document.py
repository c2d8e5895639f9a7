"""Configuration documents, and what their checks share."""

from __future__ import annotations

import re

from kfm.model.documents import Document, decoded, gathered, parse_json, parse_yaml, shaped
from kfm.model.errors import ConfigError
from kfm.model.settings import Settings

__all__ = ["Document", "gathered", "shaped"]

ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}", re.ASCII)  # of what is part of paths
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
NAME_RULE = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 100"
SOME_TIME_MS = 1_735_732_800_000  # any will do where only the form of a window is checked

Problem = tuple[str, str]  # path, sentence


def read_document(name: str, data: bytes) -> Document:
    """Parse a file's bytes; `name` decides the format (.json is JSON, anything else YAML 1.2)."""
    text = decoded(name, data)
    if not text.strip():
        raise ConfigError.of_file(name, "the file is empty")
    document = parse_json(name, text) if name.endswith(".json") else parse_yaml(name, text)
    if not document.lines:
        raise document.error("", "the file holds no settings, only comments")
    if not isinstance(document.values, dict):
        raise document.error("", "the file must hold settings, written as `name: value`")
    return document


def to_settings(document: Document) -> Settings:
    return shaped(document, Settings)


def is_web_address(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def clause(sentence: str) -> str:
    """A sentence as a part of another one: without capital and full stop."""
    lowered = sentence[:1].lower() + sentence[1:] if sentence[:1].isalpha() else sentence
    return lowered.rstrip(".")


def has_plugin(group: str, name: str) -> bool:
    """Is a plugin of that name installed?"""
    from importlib.metadata import entry_points

    return any(point.name == name for point in entry_points(group=group))
