"""Windows and durations."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.times import parse_rfc3339, rfc3339
from kfm.model.windows import next_window, parse_duration, previous_window, resolve_window
from tools.vector_cases.shape import Case, Family, error

CALENDAR = "by hand, from the zone's published changes"


def _window(given: dict[str, Any]) -> Any:
    window = resolve_window(given["spec"], given["zone"], parse_rfc3339(given["now"]))
    for step in given.get("steps", []):
        window = {"next": next_window, "previous": previous_window}[step](window, given["zone"])
    return {"start": rfc3339(window.start_ms), "end": rfc3339(window.end_ms)}


def _win(spec: str, zone: str, now: str, start: str, end: str, *steps: str, note: str = "") -> Case:
    given: dict[str, Any] = {"spec": spec, "zone": zone, "now": now}
    if steps:
        given["steps"] = list(steps)
    name = " ".join((spec, zone, "at", now, *steps, note)).strip()
    return Case(name, given, {"start": start, "end": end}, CALENDAR)


def _no(name: str, spec: str, zone: str = "UTC", now: str = "2026-03-09T15:00:00Z") -> Case:
    return Case(name, {"spec": spec, "zone": zone, "now": now}, error("KFM204"), "by the rules of windows")


_C = "America/Chicago"
_B = "Europe/Berlin"
_NOW = "2026-03-09T15:00:00Z"

WINDOWS = Family(
    "windows",
    "What a window's words mean in a zone at a moment; `steps` walk to neighbours. Half open, in UTC.",
    _window,
    [
        _win("P1D", "UTC", _NOW, "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z"),
        _win(
            "P1D",
            "UTC",
            "2026-03-09T00:00:00Z",
            "2026-03-08T00:00:00Z",
            "2026-03-09T00:00:00Z",
            note="just complete",
        ),
        _win("P1D", "UTC", "2026-03-08T23:59:59.999Z", "2026-03-07T00:00:00Z", "2026-03-08T00:00:00Z"),
        _win("P1D", _C, _NOW, "2026-03-08T06:00:00Z", "2026-03-09T05:00:00Z", note="23 hours"),
        _win("P1D", _C, "2026-03-09T04:59:59Z", "2026-03-07T06:00:00Z", "2026-03-08T06:00:00Z"),
        _win(
            "P1D", _C, "2026-11-02T12:00:00Z", "2026-11-01T05:00:00Z", "2026-11-02T06:00:00Z", note="25 hours"
        ),
        _win(
            "P1D", _B, "2026-03-30T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", note="23 hours"
        ),
        _win(
            "P1D", _B, "2026-10-26T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", note="25 hours"
        ),
        _win(
            "P1D", "America/Phoenix", _NOW, "2026-03-08T07:00:00Z", "2026-03-09T07:00:00Z", note="no change"
        ),
        _win("P1D", "Asia/Kolkata", _NOW, "2026-03-07T18:30:00Z", "2026-03-08T18:30:00Z"),
        _win(
            "P1D",
            "Australia/Lord_Howe",
            "2026-04-06T00:00:00Z",
            "2026-04-04T13:00:00Z",
            "2026-04-05T13:30:00Z",
            note="24.5 hours",
        ),
        _win(
            "P1D",
            "America/Sao_Paulo",
            "2018-11-05T12:00:00Z",
            "2018-11-04T03:00:00Z",
            "2018-11-05T02:00:00Z",
            note="begins at one",
        ),
        _win(
            "P1D",
            "Atlantic/Azores",
            "2025-10-27T12:00:00Z",
            "2025-10-26T00:00:00Z",
            "2025-10-27T01:00:00Z",
            note="midnight twice",
        ),
        _win(
            "P1D",
            "America/St_Johns",
            "2010-11-07T03:00:00Z",
            "2010-11-06T02:30:00Z",
            "2010-11-07T02:30:00Z",
            note="yesterday's date again",
        ),
        _win(
            "PT15M",
            "America/St_Johns",
            "2010-11-07T03:10:00Z",
            "2010-11-07T02:45:00Z",
            "2010-11-07T03:00:00Z",
        ),
        _win(
            "P1D",
            "America/St_Johns",
            "2010-11-08T03:30:00Z",
            "2010-11-07T02:30:00Z",
            "2010-11-08T03:30:00Z",
            note="25 hours",
        ),
        _win(
            "P1D",
            "Pacific/Apia",
            "2011-12-30T12:00:00Z",
            "2011-12-29T10:00:00Z",
            "2011-12-30T10:00:00Z",
            note="the 30th never was",
        ),
        _win("P1D", "Pacific/Apia", "2011-12-31T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        _win(
            "P1D",
            "Pacific/Apia",
            "2011-12-31T12:00:00Z",
            "2011-12-29T10:00:00Z",
            "2011-12-30T10:00:00Z",
            "previous",
        ),
        _win(
            "P1D", _C, "2026-01-01T12:00:00Z", "2025-12-31T06:00:00Z", "2026-01-01T06:00:00Z", note="year end"
        ),
        _win(
            "P1D",
            "UTC",
            "2024-03-01T12:00:00Z",
            "2024-02-29T00:00:00Z",
            "2024-03-01T00:00:00Z",
            note="leap day",
        ),
        _win(
            "P1D",
            "UTC",
            "2100-03-01T12:00:00Z",
            "2100-02-28T00:00:00Z",
            "2100-03-01T00:00:00Z",
            note="no leap day",
        ),
        _win("P1D", "UTC", "1969-12-31T23:00:00Z", "1969-12-30T00:00:00Z", "1969-12-31T00:00:00Z"),
        _win(
            "P1W",
            "UTC",
            "2026-03-11T00:00:00Z",
            "2026-03-02T00:00:00Z",
            "2026-03-09T00:00:00Z",
            note="from Monday",
        ),
        _win(
            "P1W",
            _C,
            "2026-03-09T05:00:00Z",
            "2026-03-02T06:00:00Z",
            "2026-03-09T05:00:00Z",
            note="an hour short",
        ),
        _win(
            "P1W",
            "UTC",
            "2026-01-03T00:00:00Z",
            "2025-12-22T00:00:00Z",
            "2025-12-29T00:00:00Z",
            note="over the year",
        ),
        _win("P1M", "UTC", _NOW, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        _win("P1M", _C, "2026-04-01T05:00:00Z", "2026-03-01T06:00:00Z", "2026-04-01T05:00:00Z"),
        _win(
            "P1M",
            "UTC",
            "2024-03-31T00:00:00Z",
            "2024-02-01T00:00:00Z",
            "2024-03-01T00:00:00Z",
            note="29 days",
        ),
        _win(
            "P1M",
            "UTC",
            "2026-01-15T00:00:00Z",
            "2025-12-01T00:00:00Z",
            "2026-01-01T00:00:00Z",
            note="over the year",
        ),
        _win("P1M", "UTC", _NOW, "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", "next"),
        _win("P3M", "UTC", _NOW, "2025-10-01T00:00:00Z", "2026-01-01T00:00:00Z", note="quarters"),
        _win("P1Y", "UTC", _NOW, "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        _win(
            "P1Y", "UTC", _NOW, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "previous", note="leap year"
        ),
        _win("P10Y", "UTC", _NOW, "2010-01-01T00:00:00Z", "2020-01-01T00:00:00Z", note="decades"),
        _win("PT6H", "UTC", _NOW, "2026-03-09T06:00:00Z", "2026-03-09T12:00:00Z"),
        _win(
            "PT6H",
            _C,
            "2026-03-09T05:00:00Z",
            "2026-03-09T00:00:00Z",
            "2026-03-09T05:00:00Z",
            note="last of 23 hours",
        ),
        _win(
            "PT6H",
            _C,
            "2026-11-02T06:00:00Z",
            "2026-11-02T05:00:00Z",
            "2026-11-02T06:00:00Z",
            note="last of 25 hours",
        ),
        _win("PT6H", _C, "2026-11-02T06:00:00Z", "2026-11-01T23:00:00Z", "2026-11-02T05:00:00Z", "previous"),
        _win(
            "PT1H",
            _C,
            "2026-11-01T07:00:00Z",
            "2026-11-01T06:00:00Z",
            "2026-11-01T07:00:00Z",
            note="one o'clock, first",
        ),
        _win(
            "PT1H",
            _C,
            "2026-11-01T08:00:00Z",
            "2026-11-01T07:00:00Z",
            "2026-11-01T08:00:00Z",
            note="one o'clock, again",
        ),
        _win(
            "PT1H",
            "Asia/Kolkata",
            _NOW,
            "2026-03-09T13:30:00Z",
            "2026-03-09T14:30:00Z",
            note="half an hour off",
        ),
        _win("PT15M", "UTC", "2026-03-09T15:14:59Z", "2026-03-09T14:45:00Z", "2026-03-09T15:00:00Z"),
        _win(
            "PT24H",
            _C,
            "2026-11-02T06:00:00Z",
            "2026-11-02T05:00:00Z",
            "2026-11-02T06:00:00Z",
            note="is not P1D",
        ),
        _win("2026-03-08/P1D", _C, _NOW, "2026-03-08T06:00:00Z", "2026-03-09T05:00:00Z"),
        _win("2026-03-08/PT24H", _C, _NOW, "2026-03-08T06:00:00Z", "2026-03-09T06:00:00Z"),
        _win(
            "2026-03-08T00:00:00Z/P1D",
            _C,
            _NOW,
            "2026-03-08T00:00:00Z",
            "2026-03-08T23:00:00Z",
            note="a day there",
        ),
        _win("2026-03-08T00:00:00+09:00/PT1H", "UTC", _NOW, "2026-03-07T15:00:00Z", "2026-03-07T16:00:00Z"),
        _win("2026-03-08T12:30/PT1H", _C, _NOW, "2026-03-08T17:30:00Z", "2026-03-08T18:30:00Z"),
        _win("2026-11-01T01:30-06:00/PT1H", _C, _NOW, "2026-11-01T07:30:00Z", "2026-11-01T08:30:00Z"),
        _win("2026-01-31/P1M", "UTC", _NOW, "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", note="clamped"),
        _win("2024-02-29/P1Y", "UTC", _NOW, "2024-02-29T00:00:00Z", "2025-02-28T00:00:00Z", note="clamped"),
        _win("2026-01-01/P1DT12H", "UTC", _NOW, "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z"),
        _win("2026-01-01/2026-01-08", _C, _NOW, "2026-01-01T06:00:00Z", "2026-01-08T06:00:00Z"),
        _win("2026-01-01/P1D", "UTC", _NOW, "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "next"),
        _win("2026-01-01/2026-01-08", "UTC", _NOW, "2026-01-08T00:00:00Z", "2026-01-15T00:00:00Z", "next"),
        _no("mixed units have no place", "P1DT12H"),
        _no("does not divide a day", "PT5H"),
        _no("longer than a day", "PT36H"),
        _no("time that never was", "2026-03-08T02:30/P1D", _C),
        _no("time that was twice", "2026-11-01T01:30/P1D", _C),
        _no("ends before it begins", "2026-01-08/2026-01-01"),
        _no("empty", "2026-01-01/2026-01-01"),
        _no("no such date", "2026-02-29/P1D"),
        _no("no such zone", "P1D", "Mars/Olympus"),
        _no("zone that climbs", "P1D", "../../etc/localtime"),
        _no("duration and end", "P1D/2026-01-01"),
        _no("three parts", "2026-01-01/2026-01-02/P1D"),
        _no("no words", ""),
        _no("beyond the calendar", "9999-12-31/P1Y"),
    ],
)


def _duration(given: dict[str, Any]) -> Any:
    return msgspec.to_builtins(parse_duration(given["text"]))


def _dur(text: str, years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, time_ms: int = 0) -> Case:
    pin = {"years": years, "months": months, "weeks": weeks, "days": days, "time_ms": time_ms}
    return Case(text, {"text": text}, pin, "by hand, ISO 8601")


def _bad(text: str) -> Case:
    return Case(f"{text!r} is refused", {"text": text}, error("KFM204"), "by the format")


DURATIONS = Family(
    "durations",
    "ISO 8601 durations: calendar parts and an exact part.",
    _duration,
    [
        _dur("P1D", days=1),
        _dur("P1W", weeks=1),
        _dur("P1M", months=1),
        _dur("P1Y", years=1),
        _dur("PT6H", time_ms=21_600_000),
        _dur("PT15M", time_ms=900_000),
        _dur("PT1M", time_ms=60_000),
        _dur("PT30S", time_ms=30_000),
        _dur("PT24H", time_ms=86_400_000),
        _dur("P3M", months=3),
        _dur("P10D", days=10),
        _dur("P1DT12H", days=1, time_ms=43_200_000),
        _dur("P1Y2M3W4DT5H6M7S", 1, 2, 3, 4, 18_367_000),
        _dur("P01D", days=1),
        _dur("P0Y1D", days=1),
        _dur("P9999999D", days=9_999_999),
        *(
            _bad(text)
            for text in ("", "P", "PT", "P1DT", "P0D", "PT0S", "1D", "p1d", "P1", "P-1D", "-P1D", "+P1D")
        ),
        *(
            _bad(text)
            for text in (
                "P1.5D",
                "P0,5D",
                "PT1.5H",
                "P1D ",
                " P1D",
                "P1H",
                "PT1D",
                "P1M1Y",
                "P1D1D",
                "P10000000D",
            )
        ),
        *(_bad(text) for text in ("P١D", "P1D\n", "P1D/P1D", "PT1H1H", "P1TH")),
    ],
)

FAMILIES = [WINDOWS, DURATIONS]
