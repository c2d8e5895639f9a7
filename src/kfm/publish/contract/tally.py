"""Counts what is wrong and remembers the first few places, never more."""

from __future__ import annotations

from typing import Any

_VALUE_CHARS_MAX = 60


class Tally:
    """A count with a bounded memory of where."""

    def __init__(self, samples_max: int) -> None:
        self.count = 0
        self.places: list[str] = []
        self.values: list[Any] = []
        self.samples_max = samples_max

    def add(self, place: str | int, value: Any = None) -> None:
        self.count += 1
        if len(self.places) < self.samples_max:
            self.places.append(str(place))
            self.values.append(value)

    def where(self) -> str:
        """«: line 7, line 9, and 12 more», or nothing."""
        if not self.places:
            return ""
        more = self.count - len(self.places)
        return ": " + ", ".join(self.places) + (f" and {more} more" if more else "")

    def sample(self, show_values: bool) -> tuple[str, ...]:
        if not show_values:
            return tuple(self.places)
        pairs = zip(self.places, self.values, strict=True)
        return tuple(f"{place}: {printable(value)}" for place, value in pairs)


def printable(value: Any) -> str:
    """Short, on one line, without control characters or lone surrogates."""
    if isinstance(value, str):
        text = value[: _VALUE_CHARS_MAX + 1]
        shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
        shown = f"'{shown}'"
    else:
        try:
            shown = ascii(value)
        except (ValueError, RecursionError):  # an integer too long to print
            shown = f"a {type(value).__name__}"
    return shown if len(shown) <= _VALUE_CHARS_MAX else shown[: _VALUE_CHARS_MAX - 1] + "…"
