"""Checks of one column, fed value by value, with exact duplicate counting in bounded memory."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import tempfile
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from kfm.model.patterns import late
from kfm.publish.contract.expressions import Expression
from kfm.publish.contract.findings import PlaceTally
from kfm.publish.contract.model import ContractLimits, Property, QualityRule
from kfm.publish.contract.values import ParseError, instant_us, key_of, parser_for

MISSING = object()  # the row has no such column

_UUID = late(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_EMAIL = late(r"[^@\s]{1,64}@[^@\s.]+(\.[^@\s.]+)+")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = late(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_URI = late(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+", re.ASCII)


class Test(NamedTuple):
    """One thing that a parsed value has to satisfy."""

    name: str
    admits: Callable[[Any], bool]
    complaint: str


def value_tests(prop: Property, limits: ContractLimits | None = None) -> list[Test]:
    """The tests that a property's options ask for."""
    tests: list[Test] = []
    if prop.bounds is not None:
        tests.append(Test("range", prop.bounds.admit, "is out of range"))
    if prop.length is not None:
        length = prop.length
        tests.append(Test("length", lambda value: length.admit(len(value)), "has the wrong length"))
    if prop.pattern is not None:
        tests.append(Test("pattern", _matcher(prop.pattern, limits), "does not match the pattern"))
    if prop.logical_type == "string" and prop.format is not None:
        admits = _string_format(prop.format)
        if admits is not None:
            tests.append(Test("format", admits, f"is not a {prop.format}"))
    if prop.enum is not None:
        tests.append(Test("values", _one_of(prop.enum, prop), "is not one of the listed values"))
    return tests


def _matcher(pattern: str, limits: ContractLimits | None) -> Callable[[Any], bool]:
    expression = Expression(pattern)
    chars_max = (limits or ContractLimits()).pattern_chars_max

    def matches(value: Any) -> bool:
        text = value if isinstance(value, str) else str(value)
        return len(text) <= chars_max and expression.matches(text)

    return matches


def _one_of(values: tuple[Any, ...], prop: Property | None = None) -> Callable[[Any], bool]:
    # In a CSV file `1` is text, in a contract it is a number: both spellings count.
    keys = {key_of(value) for value in values}
    texts = {str(value) for value in values if not isinstance(value, bool) and value is not None}
    if prop is not None and prop.logical_type is not None:
        parser = parser_for(prop)
        for value in values:
            try:
                parse = parser.from_text if isinstance(value, str) else parser.from_typed
                keys.add(key_of(parse(value)))
            except ParseError:
                continue

    def admits(value: Any) -> bool:
        return key_of(value) in keys or (isinstance(value, str) and value in texts)

    return admits


def _string_format(name: str) -> Callable[[Any], bool] | None:
    def address(kind: Callable[[str], object]) -> Callable[[Any], bool]:
        def admits(text: Any) -> bool:
            try:
                kind(text)
            except ValueError:
                return False
            return True

        return admits

    def whole(expression: re.Pattern[str]) -> Callable[[Any], bool]:
        return lambda text: len(text) <= 2048 and expression.fullmatch(text) is not None

    known: dict[str, Callable[[Any], bool]] = {
        "uuid": whole(_UUID),
        "email": whole(_EMAIL),
        "hostname": whole(_HOST),
        "uri": whole(_URI),
        "ipv4": address(ipaddress.IPv4Address),
        "ipv6": address(ipaddress.IPv6Address),
    }
    return known.get(name)  # the others are hints for people


class RuleCount:
    """How many values break one quality rule."""

    def __init__(self, rule: QualityRule, limits: ContractLimits) -> None:
        self.rule = rule
        self.tally = PlaceTally(limits.samples_max)
        self._missing = {key_of(value) for value in rule.missing_values}
        self._valid = _one_of(rule.valid_values) if rule.valid_values is not None else None
        self._matches = _matcher(rule.pattern, limits) if rule.pattern is not None else None

    def feed(self, place: str | int, value: Any, is_null: bool) -> None:
        if self._breaks(value, is_null):
            self.tally.add(place, value)

    def _breaks(self, value: Any, is_null: bool) -> bool:
        if self.rule.metric == "nullValues":
            return is_null
        if self.rule.metric == "missingValues":
            # CSV can't tell an empty text from none, so a null counts under either name.
            names = (key_of(None), key_of("")) if is_null else (key_of(value),)
            return any(name in self._missing for name in names)
        if is_null or self.rule.metric != "invalidValues":
            return False
        if self._valid is not None and not self._valid(value):
            return True
        return self._matches is not None and not self._matches(value)


class ColumnChecks:
    """Everything that is counted about one column while the rows go by."""

    def __init__(self, prop: Property, limits: ContractLimits, *, tracks_newest: bool = False) -> None:
        self.prop = prop
        self.required = prop.required or prop.primary_key_position is not None
        self.parser = parser_for(prop)
        self.tests = [(test, PlaceTally(limits.samples_max)) for test in value_tests(prop, limits)]
        self.rules = [RuleCount(rule, limits) for rule in prop.quality if rule.metric != "duplicateValues"]
        self.nulls = PlaceTally(limits.samples_max)
        self.wrong_type = PlaceTally(limits.samples_max)
        self.complaints: set[str] = set()
        wants_distinct = prop.unique or any(rule.metric == "duplicateValues" for rule in prop.quality)
        self.distinct = Distinct(limits) if wants_distinct else None
        self.tracks_newest = tracks_newest
        self._newest: Any = None

    def feed(self, place: str, value: Any, is_text: bool) -> Any:
        """Count one value; returns what it means, None if it is null."""
        is_null = value is None or value is MISSING or (is_text and value == "")
        for rule in self.rules:
            rule.feed(place, value, is_null)
        if is_null:
            self.nulls.add(place, None)
            return None
        try:
            parsed = self.parser.from_text(value) if is_text else self.parser.from_typed(value)
        except ParseError as error:
            self.complaints.add(str(error))
            self.wrong_type.add(place, value)
            return value
        for test, tally in self.tests:
            if not test.admits(parsed):
                tally.add(place, value)
        if self.distinct is not None:
            self.distinct.add(key_of(parsed), place)
        if self.tracks_newest and (self._newest is None or parsed > self._newest):
            self._newest = parsed
        return parsed

    def newest_ms(self) -> int | None:
        """The newest instant; a date counts from its midnight in UTC."""
        return None if self._newest is None else instant_us(self._newest) // 1000


_DIGEST_BYTES = 16
_PLACE_BYTES = 8
_RECORD_BYTES = _DIGEST_BYTES + _PLACE_BYTES
_BUCKETS = 64


class Distinct:
    """Which values came before. `duplicates()` ends the counting."""

    def __init__(self, limits: ContractLimits) -> None:
        self._in_memory_max = limits.unique_in_memory_max
        self._seen: set[bytes] = set()
        self._buckets: list[IO[bytes]] = []
        self._row = 0
        self.tally = PlaceTally(limits.samples_max)

    def add(self, key: bytes, place: str) -> None:
        digest = hashlib.sha256(key).digest()[:_DIGEST_BYTES]
        self._row += 1
        if self._buckets:
            self._spill(digest, self._row)
        elif digest in self._seen:
            self.tally.add(place)
        else:
            self._seen.add(digest)
            if len(self._seen) > self._in_memory_max:
                self._open_buckets()

    def _open_buckets(self) -> None:
        self._buckets = [tempfile.TemporaryFile() for _ in range(_BUCKETS)]  # noqa: SIM115
        for digest in self._seen:
            self._spill(digest, 0)
        self._seen = set()

    def _spill(self, digest: bytes, row: int) -> None:
        self._buckets[digest[0] % _BUCKETS].write(digest + row.to_bytes(_PLACE_BYTES, "big"))

    def duplicates(self) -> PlaceTally:
        """The rows that repeat an earlier value."""
        found: list[int] = []
        count = 0
        for bucket in self._buckets:
            with bucket:
                bucket.seek(0)
                seen: set[bytes] = set()
                while record := bucket.read(_RECORD_BYTES):
                    digest = record[:_DIGEST_BYTES]
                    if digest in seen:
                        count += 1
                        found.append(int.from_bytes(record[_DIGEST_BYTES:], "big"))
                        found = sorted(found)[: self.tally.samples_max]
                    seen.add(digest)
        self._buckets = []
        for row in sorted(found):
            self.tally.add(f"row {row}")
        self.tally.count += count - len(found)
        return self.tally

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()
        self._buckets = []
