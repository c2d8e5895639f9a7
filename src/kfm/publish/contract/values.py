"""How text and typed values become values that can be compared.

Strict on purpose: what one reader would take for a number and another would
not is no number. Spaces around a value belong to it, "1.0" is not an integer,
"1e400" and NaN are not numbers, dates are ISO 8601 unless a format says otherwise.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple

from kfm.model.patterns import late
from kfm.publish.contract.model import Property
from kfm.publish.contract.vocabulary import date_pattern

_INTEGER = late(r"[+-]?\d{1,1000}", re.ASCII)
_NUMBER = late(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_DATE = late(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?P<offset>Z|[+-]\d{2}:?\d{2})?"
_TIMESTAMP = late(r"\d{4}-\d{2}-\d{2}[T ]" + _TIME, re.ASCII)
_CLOCK = late(_TIME, re.ASCII)
_FRACTION = late(r"(\.\d{6})\d+")
_NUMBER_CHARS_MAX = 1000
_FLOAT32_MAX = 3.4028234663852886e38
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ParseError(ValueError):
    """The value is not of its type; the text completes «… is»."""


class Parser(NamedTuple):
    """`from_text` for CSV, `from_typed` for JSON and Parquet."""

    from_text: Callable[[str], Any]
    from_typed: Callable[[Any], Any]


def parser_for(prop: Property) -> Parser:
    """The parser of a property's logical type; without one every value is as it is."""
    makers: dict[str, Callable[[Property], Parser]] = {
        "string": _string,
        "boolean": _boolean,
        "integer": _integer,
        "number": _number,
        "date": _date,
        "timestamp": _timestamp,
        "time": _time,
        "object": _object,
        "array": _array,
    }
    if prop.logical_type is None:
        return Parser(_as_is, _as_is)
    return makers[prop.logical_type](prop)


def _as_is(value: Any) -> Any:
    return value


def _string(_prop: Property) -> Parser:
    def from_typed(value: Any) -> str:
        if not isinstance(value, str):
            raise ParseError("not text")
        return value

    return Parser(_as_is, from_typed)


def _boolean(_prop: Property) -> Parser:
    def from_text(text: str) -> bool:
        word = text.lower()
        if word not in ("true", "false"):
            raise ParseError("not true or false")
        return word == "true"

    def from_typed(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ParseError("not true or false")
        return value

    return Parser(from_text, from_typed)


def _integer(prop: Property) -> Parser:
    low, high = _integer_span(prop.format)

    def checked(value: int) -> int:
        if (low is not None and value < low) or (high is not None and value > high):
            raise ParseError(f"not within {prop.format}")
        return value

    def from_text(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ParseError("not an integer")
        return checked(int(text))

    def from_typed(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ParseError("not an integer")
        return checked(value)

    return Parser(from_text, from_typed)


def _integer_span(name: str | None) -> tuple[int | None, int | None]:
    if name is None:
        return None, None
    bits = int(name[1:])
    return (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _number(prop: Property) -> Parser:
    highest = _FLOAT32_MAX if prop.format == "f32" else math.inf

    def checked(value: float | int) -> float | int:
        if not -highest <= value <= highest or not -math.inf < value < math.inf:
            raise ParseError("not a finite number")
        return value

    def from_text(text: str) -> float | int:
        if len(text) > _NUMBER_CHARS_MAX or not _NUMBER.fullmatch(text):
            raise ParseError("not a number")
        return checked(int(text) if _INTEGER.fullmatch(text) else float(text))

    def from_typed(value: Any) -> float | int:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise ParseError("not a number")
        return checked(float(value) if isinstance(value, Decimal) else value)

    return Parser(from_text, from_typed)


def _zone(prop: Property) -> tzinfo:
    if prop.default_timezone in ("UTC", "Etc/UTC"):
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(prop.default_timezone)


def _date(prop: Property) -> Parser:
    zone = _zone(prop)
    pattern = date_pattern(prop.format) if prop.format else None

    def from_text(text: str) -> date:
        if pattern is not None:
            found = _from_pattern(pattern, text, zone, f"not a date like {prop.format}")
            return found.date() if isinstance(found, datetime) else found
        if not _DATE.fullmatch(text):
            raise ParseError("not a date like 2026-01-31")
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise ParseError("not a date of the calendar") from None

    def from_typed(value: Any) -> date:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if not isinstance(value, str):
            raise ParseError("not a date")
        return from_text(value)

    return Parser(from_text, from_typed)


def _timestamp(prop: Property) -> Parser:
    zone = _zone(prop)
    pattern = date_pattern(prop.format) if prop.format else None

    def from_text(text: str) -> datetime:
        if pattern is not None:
            found = _from_pattern(pattern, text, zone, f"not a timestamp like {prop.format}")
            return found if isinstance(found, datetime) else datetime.combine(found, time(), zone)
        match = _TIMESTAMP.fullmatch(text)
        if not match:
            raise ParseError("not a timestamp like 2026-01-31T06:00:00Z")
        _check_offset(prop, match["offset"])
        try:
            moment = datetime.fromisoformat(_FRACTION.sub(r"\1", text))
        except ValueError:
            raise ParseError("not a time of the calendar") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)

    def from_typed(value: Any) -> datetime:
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=zone)
        if not isinstance(value, str):
            raise ParseError("not a timestamp")
        return from_text(value)

    return Parser(from_text, from_typed)


def _time(prop: Property) -> Parser:
    zone = _zone(prop)
    pattern = date_pattern("yyyy-MM-dd'T'" + prop.format) if prop.format else None

    def from_text(text: str) -> int:
        if pattern is not None:
            # A day is put before it, so that one function reads all patterns.
            moment = _from_pattern(pattern, "1970-01-02T" + text, zone, f"not a time like {prop.format}")
            return _day_us(moment.timetz()) if isinstance(moment, datetime) else 0
        match = _CLOCK.fullmatch(text)
        if not match:
            raise ParseError("not a time like 06:00:00")
        _check_offset(prop, match["offset"])
        try:
            return _day_us(time.fromisoformat(_FRACTION.sub(r"\1", text)))
        except ValueError:
            raise ParseError("not a time of the day") from None

    def from_typed(value: Any) -> int:
        if isinstance(value, time):
            return _day_us(value)
        if not isinstance(value, str):
            raise ParseError("not a time")
        return from_text(value)

    return Parser(from_text, from_typed)


def _check_offset(prop: Property, offset: str | None) -> None:
    if prop.timezone is True and offset is None:
        raise ParseError("without a time zone offset")
    if prop.timezone is False and offset is not None:
        raise ParseError("with a time zone offset, which is not allowed")


def _day_us(clock: time) -> int:
    # Microseconds since midnight UTC: times with and without offset stay comparable.
    seconds = (clock.hour * 60 + clock.minute) * 60 + clock.second
    shift = clock.utcoffset() or timedelta()
    return seconds * 1_000_000 + clock.microsecond - round(shift.total_seconds() * 1_000_000)


def _from_pattern(pattern: re.Pattern[str], text: str, zone: tzinfo, complaint: str) -> date | datetime:
    match = pattern.fullmatch(text)
    if not match:
        raise ParseError(complaint)
    found = match.groupdict()
    day = [int(found.get(name) or default) for name, default in (("year", 1970), ("month", 1), ("day", 1))]
    try:
        if "hour" not in found:
            return date(*day)
        hour, minute, second = (int(found.get(name) or 0) for name in ("hour", "minute", "second"))
        micros = int((found.get("fraction") or "0")[:6].ljust(6, "0"))
        offset = found.get("offset")
        clock = time(hour, minute, second, micros, tzinfo=_offset(offset) if offset else zone)
        return datetime.combine(date(*day), clock)
    except ValueError:
        raise ParseError("not a time of the calendar") from None


def _offset(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    shift = timedelta(hours=hours, minutes=minutes)
    return timezone(-shift if text[0] == "-" else shift)


def _object(prop: Property) -> Parser:
    members = [(member, _inner(member)) for member in prop.properties]
    needed = {member.column for member in prop.properties if member.required} | set(prop.required_members)

    def from_typed(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ParseError("not an object")
        for name in needed:
            if value.get(name) is None:
                raise ParseError(f"without its member {name!r}")
        for member, check in members:
            inner = value.get(member.column)
            if inner is not None:
                check(inner)
        return value

    return Parser(_refuse_text("an object"), from_typed)


def _array(prop: Property) -> Parser:
    item = prop.items
    check = _inner(item) if item else None

    def from_typed(value: Any) -> Any:
        if not isinstance(value, list):
            raise ParseError("not an array")
        if item is not None and check is not None:
            for inner in value:
                if inner is not None or item.required:
                    check(inner)
        if prop.unique_items and len({key_of(inner) for inner in value}) != len(value):
            raise ParseError("an array with equal items")
        return value

    return Parser(_refuse_text("an array"), from_typed)


def _inner(member: Property) -> Callable[[Any], None]:
    """The check of one member of an object, or of one item of an array."""
    from kfm.publish.contract.columns import value_tests

    parser = parser_for(member)
    tests = value_tests(member)

    def check(value: Any) -> None:
        try:
            parsed = parser.from_typed(value)
        except ParseError as error:
            raise ParseError(f"of the wrong kind: its {member.name} is {error}") from None
        for test in tests:
            if not test.admits(parsed):
                raise ParseError(f"of the wrong kind: its {member.name} {test.complaint}")

    return check


def _refuse_text(noun: str) -> Callable[[str], Any]:
    def from_text(_text: str) -> Any:
        raise ParseError(f"text, not {noun}")

    return from_text


def key_of(value: Any) -> bytes:
    """Bytes that are equal exactly if the values are: what uniqueness compares."""
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e300:
        value = int(value)
    if isinstance(value, (int, float)):
        return b"n" + repr(value).encode()
    if isinstance(value, datetime):
        return b"i" + repr(instant_us(value)).encode()
    if isinstance(value, date):
        return b"d" + value.isoformat().encode()
    return b"j" + json.dumps(value, sort_keys=True, default=str).encode("utf-8", "surrogatepass")


def instant_us(value: date, zone: tzinfo = UTC) -> int:
    """Microseconds since 1970; a date counts from its midnight in `zone`."""
    moment = value if isinstance(value, datetime) else datetime.combine(value, time(), zone)
    return (moment - _EPOCH) // timedelta(microseconds=1)
