"""What commands print: data on stdout, in the form that was asked for; everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from kfm.model import quantities

duration = quantities.duration
FORMATS = ("text", "json", "jsonl")
PAGE = 1000
COLUMNS_MIN = 20
Level = Literal["info", "warning", "error"]
instant = quantities.instant
one_line = quantities.one_line
short_id = quantities.short_id
utc = quantities.utc
between = quantities.between


def message(text: str, level: Level = "info") -> None:
    """A command's message to the person who called it, on stderr; its level is shown in JSON only."""
    from kfm.cli.process import data, with_config

    data().flush()
    text = with_config(text)
    write = getattr(sys.stderr, "write_message", None)
    if write is None:
        sys.stderr.write(f"{text}\n")
    else:
        write(text, level)


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
    text = (msgspec.json.format(data, indent=2) if output == "json" else data).decode()
    return quantities.visible_json(text) + "\n"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, spare: Sequence[str] = (), indent: int = 0
) -> list[str]:
    """Columns as wide as they need to be; no lines, so that `cut` and `awk` are happy.

    On a terminal no wider than that, less `indent`: columns of `spare` go first, in this order. The words of
    states have their colours there.
    """
    every = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    columns = terminal_columns()
    if columns is not None:
        from kfm.cli.tables import fitted

        every = fitted(every, columns - indent, spare)
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in every]
    if shows_colour():
        from kfm.cli.tables import painted

        padded[1:] = [
            [painted(cell, name) for cell, name in zip(row, every[0], strict=True)] for row in padded[1:]
        ]
    return ["  ".join(row).rstrip() for row in padded]


def terminal_columns() -> int | None:
    """How wide the terminal is that the result is for; None: it goes to a file or a program."""
    from kfm.cli.process import data

    if not data().isatty():
        return None
    import shutil

    return max(shutil.get_terminal_size().columns, COLUMNS_MIN)


def shows_colour() -> bool:
    from kfm.cli import process
    from kfm.config.loader import wants_colour

    return wants_colour(process.colour_choice(), process.data().isatty())


def matching(
    read: Callable[[tuple[int, str] | None], list[Any]],
    keep: Callable[[Any], bool],
    position: Callable[[Any], tuple[int, str]],
    limit: int,
) -> list[Any]:
    """The first rows that are wanted, where only their words tell them apart; read page by page of PAGE."""
    found: list[Any] = []
    before = None
    while len(found) < limit:
        page = read(before)
        found += filter(keep, page)
        if len(page) < PAGE:
            break
        before = position(page[-1])
    return found[:limit]


def clipped(text: str, chars_max: int = 80) -> str:
    """One cell of a table; JSON has the whole of it."""
    line = one_line(text)
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"
