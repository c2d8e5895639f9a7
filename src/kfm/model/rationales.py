"""The reason that a person gives for a change: words of their own, not what help prints in their place."""

from __future__ import annotations

import re

from kfm.model.errors import RationaleRequired

# What commands, pages and documents print where the words of a person go.
_PLACEHOLDERS = frozenset({"", "text", "why", "reason", "rationale", "your reason"})


def is_placeholder(text: str) -> bool:
    """Also of text without a word, and in any brackets or quotes."""
    return re.sub(r"[\W_]+", " ", text).strip().casefold() in _PLACEHOLDERS


def require_rationale(text: str | None, needed: str) -> str:
    """The reason; `needed` says what it is needed for, where there is none."""
    if not (text or "").strip():
        raise RationaleRequired(needed)
    return refuse_placeholder(str(text))


def refuse_placeholder(text: str) -> str:
    if is_placeholder(text):
        raise RationaleRequired(
            f"`{text.strip()[:40]}` stands for a reason, and is none.",
            remedy="Say why, in words of your own: it is kept in the audit log.",
        )
    return text
