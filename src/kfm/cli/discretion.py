"""What this command knows of secrets. They are known once the configuration is read; before, none are.

One command runs at a time in a process, and its errors are told where the configuration is out of reach:
hence one place for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfm.config import Loaded

_loaded: Loaded | None = None


def begin(loaded: Loaded | None = None) -> None:
    """A command begins, or has read its configuration."""
    global _loaded  # noqa: PLW0603
    _loaded = loaded


def clean(text: str) -> str:
    return _loaded.discretion.hide(text) if _loaded is not None and _loaded.known_secrets() else text


def cleaned(document: Any) -> Any:
    """A document for a program: plain values, every text in them clean."""
    if _loaded is None or not _loaded.known_secrets():
        return document
    import msgspec

    return _loaded.discretion.within(msgspec.to_builtins(document))


def clean_line(text: str) -> str:
    """What somebody writes to standard error. Lines that are documents were made of clean values."""
    return text if text.startswith("{") and text.endswith("}\n") else clean(text)
