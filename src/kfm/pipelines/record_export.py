"""Exports node records, runs and invocations as JSON Lines, Parquet or Feather."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import ExtraMissing, UsageError
from kfm.model.records import Invocation, Node, Run
from kfm.model.run_state import outputs_text
from kfm.model.times import rfc3339
from kfm.system import sync

if TYPE_CHECKING:
    from kfm.db.run_state import RunStateTables


SUFFIXES = (".jsonl", ".parquet", ".feather")
BATCH_ROWS = 10_000
Row = dict[str, Any]


def _columns(kind: type[msgspec.Struct]) -> dict[str, type]:
    """The fields of a record; beside a time in milliseconds stands the same as text."""
    found: dict[str, type] = {}
    for field in msgspec.structs.fields(kind):
        found[field.name] = int if "int" in str(field.type) else str  # whether it may be missing is no matter
        if field.name.endswith("_ms"):
            found[_utc(field.name)] = str
    return found


def _utc(name: str) -> str:
    return f"{name.removesuffix('_ms')}_utc"


_RUN = _columns(Run)
_INVOCATION = _columns(Invocation)
# Flat, so that every tool can read it; what has parts of its own is JSON text.
_NODE: dict[str, type] = {
    "run_id": str,
    "dataset_id": str,
    "pipeline_id": str,
    "lakefs_branch": str,
    "outcome": str,
    "reason": str,
    "recorded_at": str,
    "recorded_at_ms": int,
    "duration_ms": int,
    "attempt": int,
    "inputs_hash": str,
    "code_sha": str,
    "skipped_because": str,
    "output_commit": str,
    "outputs": str,
    "output_bytes": int,
    "checks": int,
    "passed": int,
    "failed": int,
    "error_code": str,
    "error_message": str,
}


def export_runs(runs: Sequence[Run], path: str) -> None:
    """Write the runs in the form that the file's name asks for; the file appears whole or not at all."""
    _write(map(_row, runs), _RUN, path)


def export_invocations(invocations: Iterable[Invocation], path: str) -> int:
    """Likewise the calls that asked for runs, also those that became none; returns how many."""
    return _write(map(_row, invocations), _INVOCATION, path)


def _row(record: Run | Invocation) -> Row:
    row: Row = msgspec.to_builtins(record)
    for name in [each for each in row if each.endswith("_ms")]:
        row[_utc(name)] = None if row[name] is None else rfc3339(row[name])
    if "gates" in row:
        row["gates"] = canonical_bytes(row["gates"]).decode()
    return row


def write_run_states(nodes: Iterable[Node], path: str) -> int:
    """Likewise the records of nodes, one row for each; returns how many."""
    return _write(map(_node_row, nodes), _NODE, path)


def _node_row(node: Node) -> Row:
    summary = node.validation_summary
    ran = node.outcome != "skipped"  # of a skipped one, another row has what was made
    return {
        **{name: getattr(node, name) for name in _NODE if hasattr(node, name)},
        "recorded_at": rfc3339(node.recorded_at_ms),
        "outputs": outputs_text(node.outputs) if ran else "[]",
        "output_bytes": sum(each.size for each in node.outputs) if ran else None,
        **{name: summary.get(name) if ran else None for name in ("checks", "passed", "failed")},
    }


def _write(rows: Iterator[Row], columns: Mapping[str, type], path: str) -> int:
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"The ledger can't be written as `{suffix or path}`.", remedy=f"Name it {', '.join(SUFFIXES)}."
        )
    counted = _Counted(rows)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "xb") as file:
            if suffix == ".jsonl":
                file.writelines(canonical_bytes(row) + b"\n" for row in counted)
            else:
                _write_table(counted, columns, file, feather=suffix == ".feather")
            file.flush()
            sync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}.") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return counted.count


class _Counted:
    """Iterator over rows that counts them."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.count += 1
            yield row


def _write_table(rows: Iterable[Row], columns: Mapping[str, type], file: Any, *, feather: bool) -> None:
    try:
        from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, Schema
        from arro3.io import write_ipc, write_parquet
    except ImportError:
        raise ExtraMissing(
            "Parquet and Feather need the extra `parquet`: install kfm-kernel[parquet].",
            remedy="pip install 'kfm-kernel[parquet]', or export as .jsonl.",
        ) from None
    kinds = {name: DataType.int64() if kind is int else DataType.utf8() for name, kind in columns.items()}
    schema = Schema([Field(name, kind, nullable=True) for name, kind in kinds.items()])
    left = iter(rows)

    def batches() -> Iterator[Any]:
        while page := list(islice(left, BATCH_ROWS)):
            arrays = [Array([row[name] for row in page], kind) for name, kind in kinds.items()]
            yield RecordBatch.from_arrays(arrays, schema=schema)

    reader = RecordBatchReader.from_batches(schema, list(batches()))
    (write_ipc if feather else write_parquet)(reader, file)


PASSES_MAX = 1_000_000


def export_run_states(
    tables: RunStateTables, path: str, *, pipeline_id: str | None, branch: str | None
) -> int:
    """Oldest pipeline run first; returns how many records were written."""

    def nodes() -> Iterator[Node]:
        for each in reversed(tables.passes(pipeline_id=pipeline_id, branch=branch, limit=PASSES_MAX)):
            yield from tables.of_run(each.run_id)

    return write_run_states(nodes(), path)
