"""What `kfm status` tells of announced objects: figures by dataset, from counters alone."""

from __future__ import annotations

from typing import Any

from kfm.cli.output import utc
from kfm.core.records import UNIT_STATUSES


def unit_status_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    for one in document["datasets"]:
        parts = [f"{one[name]} {name.replace('_', ' ')}" for name in UNIT_STATUSES if one[name]]
        newest = f"; newest {utc(one['newest'])}" if one["newest"] else ""
        rows.append(f"  {one['dataset']}  {', '.join(parts) or 'nothing'}{newest}")
    given_up = [one for one in document["datasets"] if one["failed"] or one["quarantined"]]
    if given_up:
        rows.append("  given up: `kfm nodd units --status failed`, `kfm quarantine list`")
    if document["dead_messages"]:
        rows.append(f"  dead messages came {document['dead_messages']} times: `kfm nodd dead list`")
    return rows
