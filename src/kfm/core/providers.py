"""Who is called for a source: the name that its circuit breaker goes by. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from kfm.core.settings import Source, Target

PROVIDER_CHARS_MAX = 200
_NAME = re.compile(r"[!-~]+")  # one word of plain characters: it is typed on command lines


def is_provider_name(text: str) -> bool:
    return len(text) <= PROVIDER_CHARS_MAX and _NAME.fullmatch(text) is not None


def provider_of(source: Source) -> str | None:
    """Its own `provider`, else the host of its URL or its bucket; None where nobody outside is called.

    A host that a template decides is no name that can be known beforehand.
    """
    if source.provider is not None:
        return source.provider
    if source.url:
        return _host(source.url)
    if source.bucket:
        return _bucket(source.bucket)
    return None


def provider_of_target(target: Target) -> str | None:
    """As of a source; a bucket that is read and written is one provider."""
    if target.provider is not None:
        return target.provider
    return _bucket(target.url) if target.url else None


def providers_of(source: Source, find: Callable[[str], Source]) -> tuple[str, ...]:
    """Everybody who is called for a source: of a sync, those of its members, each once."""
    members = [find(member) for member in source.members] if source.members else [source]
    named = [provider_of(member) for member in members]
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or "{" in host:
        return None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return host if port is None or port == usual else f"{host}:{port}"


def _bucket(address: str) -> str | None:
    parts = urlsplit(address)
    if parts.scheme == "file" or not parts.netloc or "{" in parts.netloc:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
