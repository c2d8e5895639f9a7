"""Patterns that are compiled when they are first used: at the start of a command most of them never are."""

import re
from typing import Any, cast


class _LatePattern:
    """Stands for a pattern until something of it is asked for; from then on its methods are here."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)  # `re` keeps what it has compiled
        setattr(self, name, found)
        return found


def late(text: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, later."""
    return cast("re.Pattern[str]", _LatePattern(text, flags))
