"""Everything that a run leaves behind, as one document that two languages must agree on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw

# What a command after the work may still change: delivery of outbox messages, and when a migration ran.
_LEFT_OUT = {"outbox": ("tries", "not_before_ms", "delivered_at_ms"), "migrations": ("applied_at_ms",)}
_NOT_ARTIFACTS = ("provenance", "prov")  # made from the ledger by a later command


def snapshot(folder: str) -> dict[str, Any]:
    root = Path(folder)
    return {"tables": _tables(root / ".kfm" / "kfm.db"), "files": _files(root)}


def _tables(path: Path) -> dict[str, list[list[Any]]]:
    if not path.exists():
        return {}
    database = apsw.Connection(str(path))
    try:
        names = [
            row[0]
            for row in database.execute(
                "SELECT name FROM sqlite_master "
                "WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
            )
        ]
        return {name: _rows(database, name) for name in names}
    finally:
        database.close()


def _rows(database: apsw.Connection, table: str) -> list[list[Any]]:
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    kept = [name for name in columns if name not in _LEFT_OUT.get(table, ())]
    if not kept:
        return []
    picked = ", ".join(f'"{name}"' for name in kept)
    return [list(row) for row in database.execute(f'SELECT {picked} FROM "{table}" ORDER BY {picked}')]


def _files(root: Path) -> dict[str, str]:
    found = {}
    for folder, names, files in os.walk(root):
        here = Path(folder)
        for name in [*files, *(one for one in names if (here / one).is_symlink())]:
            path = here / name
            told = str(path.relative_to(root))
            if _is_compared(told):
                found[told] = f"-> {os.readlink(path)}" if path.is_symlink() else path.read_bytes().hex()
    return found


def _is_compared(path: str) -> bool:
    if path.startswith(".kfm/"):
        named = Path(path).name.startswith(_NOT_ARTIFACTS)
        return path.startswith((".kfm/runs/", ".kfm/objects/sha256/")) and not named
    return not Path(path).name.startswith(_NOT_ARTIFACTS)


def differences(mine: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Sentences about the first differences; empty if there are none."""
    said = []
    for table in sorted(mine["tables"].keys() | other["tables"].keys()):
        a, b = mine["tables"].get(table), other["tables"].get(table)
        if a != b:
            said.append(f"table {table}: {_first(a or [], b or [])}")
    for path in sorted(mine["files"].keys() | other["files"].keys()):
        a, b = mine["files"].get(path), other["files"].get(path)
        if a != b:
            said.append(f"file {path}: {_text(a)}\n   against {_text(b)}")
    return said


def _first(a: list[Any], b: list[Any]) -> str:
    for one, two in zip(a, b, strict=False):
        if one != two:
            pairs = [(x, y) for x, y in zip(one, two, strict=True) if x != y]
            return f"{pairs[0][0]!r}\n   against {pairs[0][1]!r}"
    return f"{len(a)} rows against {len(b)}: {(a[len(b) :] or b[len(a) :])[:1]}"


def _text(hexed: str | None) -> str:
    if hexed is None:
        return "(nothing)"
    return hexed if hexed.startswith("->") else repr(bytes.fromhex(hexed))[:3000]
