"""What commands print: data on stdout, in the form that was asked for; everything else on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

FORMATS = ("text", "json", "jsonl")


def wanted_format(arguments: Sequence[str]) -> str:
    """The output format, read before the arguments are parsed: an error in them has a form too."""
    found = "text"
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--json":
            found = "json"
        elif argument in ("-o", "--output") and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith("--output="):
            found = argument.partition("=")[2]
        elif argument.startswith("-o") and len(argument) > 2 and not argument.startswith("--"):
            found = argument[2:].removeprefix("=")
    return found if found in FORMATS else "text"


def encode(document: Any, output: str) -> str:
    """JSON text: indented for `json`, one line for `jsonl`."""
    data = msgspec.json.encode(document)
    return (msgspec.json.format(data, indent=2) if output == "json" else data).decode() + "\n"


def instant(at_ms: int | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond: what documents hold."""
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms after 1970-01-01T00:00:00Z"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def moment(at_ms: int | None) -> str:
    """For people: `2026-01-31 06:00:00 UTC`, labelled."""
    text = instant(at_ms)
    return "-" if text is None else f"{text[:19].replace('T', ' ')} UTC" if text.endswith("Z") else text


def span(start_ms: int, end_ms: int) -> str:
    """A window for people; the seconds only where they matter."""
    start, end = moment(start_ms), moment(end_ms)
    short = all(text.endswith(":00 UTC") for text in (start, end))
    cut = 16 if short else 19
    return f"{start[:cut]} … {end[:cut]} UTC"


def duration(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as they need to be; no lines, so that `cut` and `awk` are happy."""
    every = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]


def one_line(text: str) -> str:
    """Text from outside may hold anything; a terminal must not obey it."""
    return "".join(char if char.isprintable() else " " for char in text)


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def readable_size(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
