"""How schedules and what became of their instants are told to people."""

from __future__ import annotations

from typing import Any

from kfm.core.wording import duration


def when(document: dict[str, Any]) -> str:
    """The pattern."""
    if document["cron"] is not None:
        return str(document["cron"])
    return f"every {duration(document['every_seconds'] * 1000)}"


def fate_word(document: dict[str, Any]) -> str:
    """What became of an instant, in one word: how its request ended, where it had one."""
    return str(document["outcome"] or document["state"] or document["fate"])
