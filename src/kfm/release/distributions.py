"""Installed distributions that kfm needs, by their own metadata."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from kfm.model.records import Record

ROOT = "kfm-kernel"  # the distribution; `kfm` on the public index is another project
# An extra for people who work on kfm itself says nothing about what a release was made with.
EXTRAS_LEFT_OUT = frozenset({"dev"})
DISTRIBUTIONS_MAX = 5_000
# What installers write beside the package's own files, different from one machine to the next.
_INSTALLERS_OWN = ("/INSTALLER", "/REQUESTED", "/RECORD", "/direct_url.json")
_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*"
    r"(?:;\s*(?P<marker>.*))?\Z",
    re.DOTALL,
)
_TOKEN = re.compile(r"\s*(\(|\)|<=|>=|===|==|!=|~=|<|>|'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*)")
_VERSIONS = ("python_version", "python_full_version", "implementation_version")


class Installed(Record, frozen=True):
    """One installed distribution."""

    name: str  # normalised
    version: str
    license: str | None  # as declared, in whatever words
    expression: str | None  # an SPDX expression, where it was declared as one
    summary: str | None
    files: int  # how many files its RECORD lists with a hash
    files_sha256: str | None  # over their names and hashes; None: it is installed in place, or lists nothing
    needs: tuple[str, ...]  # names, sorted
    may_use: tuple[str, ...] = ()  # what extras brought


def installed(root: str = ROOT) -> list[Installed]:
    """The root and all that it needs, sorted by name. Extras count where all their parts are there."""
    environment = here()
    found: dict[str, tuple[Distribution, set[str], set[str]]] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(normal_name(root), frozenset())]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting and len(done) < DISTRIBUTIONS_MAX:
        asked = waiting.pop()
        name, extras = asked
        dist = None if asked in done else _distribution(name)
        done.add(asked)
        if dist is None:
            continue
        _, needs, may_use = found.setdefault(name, (dist, set(), set()))
        optional = _whole_extras(dist, environment) if name == normal_name(root) else frozenset[str]()
        for text in dist.requires or ():
            needed, wanted, marker = parse_requirement(text)
            plain = applies(marker, environment, extras)
            if not needed or not (plain or (optional and applies(marker, environment, optional))):
                continue
            if _distribution(needed) is not None:
                (needs if plain else may_use).add(needed)
                waiting.append((needed, wanted))
    return [_described(name, *found[name]) for name in sorted(found)]


def _whole_extras(dist: Distribution, environment: dict[str, str]) -> frozenset[str]:
    """The extras of which every part is installed."""
    offered = {normal_name(extra) for extra in dist.metadata.get_all("Provides-Extra") or ()}
    whole = set()
    for extra in offered - EXTRAS_LEFT_OUT:
        parts = [
            needed
            for needed, _, marker in map(parse_requirement, dist.requires or ())
            if not applies(marker, environment) and applies(marker, environment, frozenset({extra}))
        ]
        if parts and all(_distribution(part) is not None for part in parts):
            whole.add(extra)
    return frozenset(whole)


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        return None


def _described(name: str, dist: Distribution, needs: set[str], may_use: set[str]) -> Installed:
    metadata = dist.metadata
    expression = _said(dist, "License-Expression")
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License :: ")
    ]
    words = _said(dist, "License") or ""
    # Some packages put the whole text of their licence there.
    declared = (
        expression or (words if words and "\n" not in words else None) or "; ".join(classifiers) or None
    )
    files, digest = _files(dist)
    return Installed(
        name=name,
        version=dist.version,
        license=declared,
        expression=expression,
        summary=_said(dist, "Summary"),
        files=files,
        files_sha256=digest,
        needs=tuple(sorted(needs)),
        may_use=tuple(sorted(may_use - needs)),
    )


def _said(dist: Distribution, field: str) -> str | None:
    """A field of the metadata, or None; some packages write UNKNOWN where they have nothing to say."""
    values = dist.metadata.get_all(field) or [""]
    text = str(values[0]).strip()
    return text if text and text != "UNKNOWN" else None


def _files(dist: Distribution) -> tuple[int, str | None]:
    """Count and digest of the files that RECORD lists: the same wheel gives the same, wherever it went."""
    if json.loads(dist.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return 0, None
    rows = sorted(
        f"{path.hash.mode}={path.hash.value}  {path.as_posix()}\n"
        for path in dist.files or ()
        if path.hash is not None
        and not path.as_posix().startswith("../")
        and not path.as_posix().endswith(_INSTALLERS_OWN)
    )
    return len(rows), hashlib.sha256("".join(rows).encode()).hexdigest() if rows else None


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
