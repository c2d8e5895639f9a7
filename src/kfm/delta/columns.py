"""A node's record as a row of a columnar table, and back. One row per (dataset_id, run_id)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kfm.core.errors import ExtraMissing, StoreCorrupt
from kfm.core.records import Node
from kfm.core.run_states import outputs_of, outputs_text

# In the order of the record; what follows the first seven may be empty.
TEXTS = ("dataset_id", "run_id", "lakefs_branch", "inputs_hash", "validation_summary", "outcome")
EXTRAS = (
    "output_commit",
    "outputs",
    "skipped_because",
    "code_sha",
    "pipeline_id",
    "error_code",
    "error_message",
    "reason",
)
COUNTS = ("attempt", "duration_ms")
NAMES = (*TEXTS, "recorded_at", *COUNTS, *EXTRAS, "reverted")


def extra_missing() -> ExtraMissing:
    return ExtraMissing(
        "Run-state in a Delta table needs the extra `delta`.", remedy="pip install 'kfm[delta]'"
    )


def arrow() -> Any:
    try:
        from arro3 import core
    except ImportError:
        raise extra_missing() from None
    return core


def schema() -> Any:
    core = arrow()
    text, number = core.DataType.utf8(), core.DataType.int64()
    return core.Schema(
        [
            *(core.Field(name, text, nullable=False) for name in TEXTS),
            core.Field("recorded_at", core.DataType.timestamp("us", tz="UTC"), nullable=False),
            core.Field("attempt", number, nullable=False),
            core.Field("duration_ms", number, nullable=True),
            *(core.Field(name, text, nullable=True) for name in EXTRAS),
            core.Field("reverted", core.DataType.bool(), nullable=False),
        ]
    )


def table_of(nodes: Sequence[Node]) -> Any:
    """Arrow, of the schema above."""
    core = arrow()
    text, number = core.DataType.utf8(), core.DataType.int64()
    plain = [_plain(node) for node in nodes]
    columns = {name: core.Array([row[name] for row in plain], text) for name in (*TEXTS, *EXTRAS)}
    columns |= {name: core.Array([row[name] for row in plain], number) for name in COUNTS}
    stamps = core.Array([node.recorded_at_ms * 1000 for node in nodes], number)
    columns["recorded_at"] = stamps.cast(core.DataType.timestamp("us", tz="UTC"))
    columns["reverted"] = core.Array([False] * len(nodes), core.DataType.bool())
    return core.Table.from_pydict({name: columns[name] for name in NAMES}, schema=schema())


def _plain(node: Node) -> dict[str, Any]:
    row = msgspec.structs.asdict(node)
    row["validation_summary"] = msgspec.json.encode(node.validation_summary).decode()
    row["outputs"] = outputs_text(node.outputs) if node.outputs else None
    return row


# What a query selects so that `nodes_of` can read it: times as whole microseconds.
SELECTED = ", ".join(
    "arrow_cast(recorded_at, 'Int64') AS recorded_us" if name == "recorded_at" else name
    for name in NAMES
    if name != "reverted"
)


def nodes_of(table: Any) -> Iterator[Node]:
    for batch in table.to_batches():
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        for values in zip(*columns.values(), strict=True):
            yield _node(dict(zip(columns, values, strict=True)))


def _node(row: dict[str, Any]) -> Node:
    row["recorded_at_ms"] = row.pop("recorded_us") // 1000
    try:
        row["validation_summary"] = msgspec.json.decode(row["validation_summary"])
        row["outputs"] = outputs_of(row["outputs"] or "[]")
        return msgspec.convert(row, Node)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"A record of run-state can't be read: {error}.") from error
