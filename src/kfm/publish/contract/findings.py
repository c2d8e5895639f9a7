"""Findings about the files of one schema object: bounded counts and places."""

from __future__ import annotations

from typing import Any

from kfm.publish.contract.model import ContractLimits

GEO_CHECKS = ("structure", "positions", "rings", "bbox", "crs", "null", "winding")
_NAMES_MAX = 1000


class ContractFindings:
    """Bounded notes; `validation` turns them into checks."""

    def __init__(self, limits: ContractLimits) -> None:
        self._limits = limits
        self.unreadable = PlaceTally(limits.samples_max)
        self.problems: list[str] = []
        self.ragged = PlaceTally(limits.samples_max)
        self.lacking: dict[str, PlaceTally] = {}
        self.extra: dict[str, None] = {}
        self.geometry: dict[str, PlaceTally] = {name: PlaceTally(limits.samples_max) for name in GEO_CHECKS}
        self.geometry_problems: dict[str, dict[str, None]] = {name: {} for name in GEO_CHECKS}
        self.rows = 0

    def cannot_read(self, path: str, problem: str) -> None:
        self.unreadable.add(path)
        if len(self.problems) < self._limits.samples_max:
            self.problems.append(f"{path} {problem}")

    def lacks_column(self, name: str, path: str) -> None:
        self.lacking.setdefault(name, PlaceTally(self._limits.samples_max)).add(path)

    def extra_column(self, name: str) -> None:
        if len(self.extra) < _NAMES_MAX:
            self.extra[name] = None

    def geo(self, check: str, place: str, problem: str) -> None:
        self.geometry[check].add(place)
        self.geometry_problems[check][problem] = None

    def extra_names(self) -> str:
        shown = [printable(name) for name in list(self.extra)[: self._limits.samples_max]]
        more = len(self.extra) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


_VALUE_CHARS_MAX = 60


class PlaceTally:
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
