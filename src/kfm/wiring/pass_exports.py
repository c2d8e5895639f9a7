"""The records of nodes, pass by pass, as a file for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm.core.records import Node

if TYPE_CHECKING:
    from kfm.store.run_state_tables import RunStateTables

PASSES_MAX = 1_000_000


def export_run_states(
    tables: RunStateTables, path: str, *, pipeline_id: str | None, branch: str | None
) -> int:
    """Oldest pass first; returns how many records were written."""
    from kfm.store.export import export_run_states as export

    def nodes() -> Iterator[Node]:
        for each in reversed(tables.passes(pipeline_id=pipeline_id, branch=branch, limit=PASSES_MAX)):
            yield from tables.of_run(each.run_id)

    return export(nodes(), path)
