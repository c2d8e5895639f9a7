"""The ledger's runs as a file for other tools: JSON Lines, Parquet or Feather."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from kfm.core.canonical import canonical_bytes
from kfm.core.errors import ExtraMissing, UsageError
from kfm.core.records import Run

SUFFIXES = (".jsonl", ".parquet", ".feather")


def export_runs(runs: Sequence[Run], path: str) -> None:
    """Write the runs in the form that the file's name asks for; the file appears whole or not at all."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"The ledger can't be written as `{suffix or path}`.", remedy=f"Name it {', '.join(SUFFIXES)}."
        )
    rows = [msgspec.to_builtins(run) for run in runs]
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "xb") as file:
            if suffix == ".jsonl":
                file.writelines(canonical_bytes(row) + b"\n" for row in rows)
            else:
                _write_table(rows, file, feather=suffix == ".feather")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}.") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _write_table(rows: Sequence[dict[str, Any]], file: Any, *, feather: bool) -> None:
    try:
        from arro3.core import Array, DataType, Table
        from arro3.io import write_ipc, write_parquet
    except ImportError:
        raise ExtraMissing(
            "Parquet and Feather need the extra `parquet`: install kfm[parquet].",
            remedy="pip install 'kfm[parquet]', or export as .jsonl.",
        ) from None
    columns: dict[str, Any] = {}
    for field in msgspec.structs.fields(Run):
        kind = DataType.int64() if "int" in str(field.type) else DataType.utf8()
        columns[field.name] = Array([row[field.name] for row in rows], kind)
    (write_ipc if feather else write_parquet)(Table.from_pydict(columns), file)
