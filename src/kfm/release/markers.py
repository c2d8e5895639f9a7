"""Does a requirement apply here? The environment markers of PEP 508, evaluated without another package."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*"
    r"(?:;\s*(?P<marker>.*))?\Z",
    re.DOTALL,
)
_TOKEN = re.compile(r"\s*(\(|\)|<=|>=|===|==|!=|~=|<|>|'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*)")
_VERSIONS = ("python_version", "python_full_version", "implementation_version")


def normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement(text: str) -> tuple[str, frozenset[str], str]:
    """Name (normalised), wanted extras, marker."""
    match = _REQUIREMENT.match(text)
    if match is None:
        return "", frozenset(), ""
    extras = (normal_name(extra.strip()) for extra in (match["extras"] or "").split(",") if extra.strip())
    return normal_name(match["name"]), frozenset(extras), (match["marker"] or "").strip()


def here() -> dict[str, str]:
    """The values that markers compare with."""
    version = sys.implementation.version
    return {
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_system": platform.system(),
        "platform_release": platform.release(),
        "platform_version": platform.version(),
        "platform_python_implementation": platform.python_implementation(),
        "implementation_name": sys.implementation.name,
        "implementation_version": f"{version.major}.{version.minor}.{version.micro}",
    }


def applies(marker: str, environment: Mapping[str, str], extras: frozenset[str] = frozenset()) -> bool:
    """Is the marker true here, for a distribution that was asked for with these extras?"""
    if not marker:
        return True
    return any(_Marker(marker, {**environment, "extra": extra}).true() for extra in (extras or {""}))


class _Marker:
    """A recursive descent over `or`, `and`, parentheses and comparisons. What can't be read is not true."""

    def __init__(self, text: str, values: Mapping[str, str]) -> None:
        self._tokens = _TOKEN.findall(text)
        self._values = values

    def true(self) -> bool:
        try:
            return self._either() and not self._tokens
        except (IndexError, KeyError):
            return False

    def _either(self) -> bool:
        found = self._both()
        while self._tokens[:1] == ["or"]:
            self._tokens.pop(0)
            found = self._both() or found
        return found

    def _both(self) -> bool:
        found = self._one()
        while self._tokens[:1] == ["and"]:
            self._tokens.pop(0)
            found = self._one() and found
        return found

    def _one(self) -> bool:
        if self._tokens[0] == "(":
            self._tokens.pop(0)
            found = self._either()
            self._tokens.pop(0)
            return found
        left, operator = self._tokens.pop(0), self._tokens.pop(0)
        if operator == "not":
            operator += " " + self._tokens.pop(0)
        right = self._tokens.pop(0)
        return _compare(left, operator, right, self._values)


def _compare(left: str, operator: str, right: str, values: Mapping[str, str]) -> bool:
    a, b = (side[1:-1] if side[0] in "'\"" else values[side] for side in (left, right))
    if "extra" in (left, right):
        a, b = normal_name(a), normal_name(b)
    if operator in ("in", "not in"):
        return (a in b) == (operator == "in")
    if left in _VERSIONS or right in _VERSIONS:
        first, second = _numbers(a), _numbers(b)
        if operator == "~=":
            return first >= second and first[: len(second) - 1] == second[:-1]
        if b.endswith(".*") and operator in ("==", "!="):
            return (first[: len(second)] == second) == (operator == "==")
        width = max(len(first), len(second))
        first, second = (side + (0,) * (width - len(side)) for side in (first, second))
        return _ordered(first, operator, second)
    return _ordered((a,), operator, (b,))


def _ordered(first: tuple[object, ...], operator: str, second: tuple[object, ...]) -> bool:
    return {
        "==": first == second,
        "===": first == second,
        "!=": first != second,
        "<": first < second,
        "<=": first <= second,
        ">": first > second,
        ">=": first >= second,
    }.get(operator, False)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version.split("+")[0].removesuffix(".*")))
