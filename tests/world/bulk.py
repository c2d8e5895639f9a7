"""Years behind a world: runs and units by the ten thousand, for measurements."""

from __future__ import annotations

from pathlib import Path

import apsw

from tests.history import multiply


def add_bulk(folder: Path, *, runs: int, units: int) -> None:
    """Written past the product's writers, which would need hours."""
    path = str(folder / ".kfm" / "kfm.db")
    if runs:
        multiply(path, runs)
    if units:
        from bench.unit_rows import fill_sqlite

        connection = apsw.Connection(path)
        fill_sqlite(connection.execute, units)
        connection.close()
