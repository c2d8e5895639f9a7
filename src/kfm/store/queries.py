"""Named SQL, read from `contracts/sql`. The only place that turns a name into a statement."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Literal

Dialect = Literal["sqlite", "postgresql"]

_NAME = re.compile(r"^-- name: (\S+)[ \t]*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
SERIAL_KEY = {
    "sqlite": "INTEGER PRIMARY KEY",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}


def _parse(text: str) -> dict[str, str]:
    pieces = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


@cache
def queries(dialect: Dialect) -> dict[str, str]:
    """Every statement by name, in the parameter style of the dialect's driver."""
    folder = resources.files("kfm.contracts") / "sql"
    found: dict[str, str] = {}
    for place in (folder, folder / dialect):
        if not place.is_dir():
            continue
        for file in sorted(place.iterdir(), key=lambda entry: entry.name):
            if file.name.endswith(".sql"):
                found.update(_parse(file.read_text(encoding="utf-8")))
    if dialect == "postgresql":
        return {name: _PARAMETER.sub(r"%(\1)s", sql) for name, sql in found.items()}
    return found


@cache
def migration_files() -> tuple[tuple[int, str, str], ...]:
    """(version, name, text) of every migration, in order."""
    folder = resources.files("kfm.contracts") / "sql" / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple((int(f.name[:4]), f.name[5:-4], f.read_text(encoding="utf-8")) for f in files)
