"""What commands print: data on stdout, in the form that was asked for; everything else on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from kfm.core import wording

duration = wording.duration
FORMATS = ("text", "json", "jsonl")
SHORT_ID_CHARS = 13


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


def utc(text: str) -> str:
    """An instant of a document, for people: `2026-01-31 06:00:00 UTC`."""
    return f"{text[:19].replace('T', ' ')} UTC"


def between(start: str, end: str) -> str:
    """Two instants of a document as a span; the seconds only where they matter."""
    cut = 16 if start[16:19] == end[16:19] == ":00" else 19
    return f"{utc(start)[:cut]} … {utc(end)[:cut]} UTC"


def short_id(run_id: str) -> str:
    """Enough of a run's id to tell it from all others; every command takes it."""
    return run_id[:SHORT_ID_CHARS]


def retry_command(run: Any) -> str:
    """The command that asks for exactly this run's work again."""
    start, end = (
        (instant(at_ms) or "").replace(".000Z", "Z") for at_ms in (run.window_start_ms, run.window_end_ms)
    )
    return f"kfm run --source {run.source_id} --window {start}/{end}"


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


def clipped(text: str, chars_max: int = 80) -> str:
    """One cell of a table; JSON has the whole of it."""
    line = one_line(text)
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"
