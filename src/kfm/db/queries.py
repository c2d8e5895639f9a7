"""Named SQL, read from `contracts/sql`. The only place that turns a name into a statement."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Literal

Dialect = Literal["sqlite", "postgresql"]

# Not importlib.resources: importing it costs more than reading every query.
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "contracts", "sql")
_NAME = re.compile(r"^-- name: (\S+)[ \t]*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_ONLY = re.compile(r"^@(sqlite|postgresql) (.*)$", re.MULTILINE)
_SERIAL_KEY = {
    "sqlite": "INTEGER PRIMARY KEY",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}
# Rows that lie in the order of their key: without it SQLite keeps each key twice.
_CLUSTERED = {"sqlite": ") WITHOUT ROWID;", "postgresql": ");"}


def _parse(text: str) -> dict[str, str]:
    pieces = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def _read(*path: str) -> str:
    with open(os.path.join(_FOLDER, *path), encoding="utf-8") as file:
        return file.read()


def _sql_files(*path: str) -> list[str]:
    folder = os.path.join(_FOLDER, *path)
    return (
        sorted(name for name in os.listdir(folder) if name.endswith(".sql")) if os.path.isdir(folder) else []
    )


@cache
def portable() -> dict[str, str]:
    """Every statement by name, as written for both databases."""
    found: dict[str, str] = {}
    for name in _sql_files():
        found.update(_parse(_read(name)))
    return found


@cache
def overrides(dialect: Dialect) -> dict[str, str]:
    """The statements that this database needs in words of its own."""
    found: dict[str, str] = {}
    for name in _sql_files(dialect):
        found.update(_parse(_read(dialect, name)))
    return found


@cache
def queries(dialect: Dialect) -> dict[str, str]:
    """Every statement by name, in the parameter style of the dialect's driver."""
    found = portable() | overrides(dialect)
    if dialect == "postgresql":
        return {name: _PARAMETER.sub(r"%(\1)s", sql) for name, sql in found.items()}
    return found


@cache
def parameters_of(name: str) -> tuple[str, ...]:
    """What a statement asks for, in the order in which it first names each."""
    return tuple(dict.fromkeys(_PARAMETER.findall(portable()[name])))


def in_dialect(migration: str, dialect: Dialect) -> str:
    """A migration's text in the words of one database. A line that begins with `@dialect` is for it alone."""
    migration = _ONLY.sub(lambda line: line[2] if line[1] == dialect else "", migration)
    return migration.replace("SERIAL_KEY", _SERIAL_KEY[dialect]).replace(") CLUSTERED;", _CLUSTERED[dialect])


@cache
def migration_files() -> tuple[tuple[int, str, str], ...]:
    """(version, name, text) of every migration, in order."""
    return tuple((int(name[:4]), name[5:-4], _read("migrations", name)) for name in _sql_files("migrations"))
