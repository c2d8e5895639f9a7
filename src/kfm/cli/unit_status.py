"""What `kfm status` tells of announced objects: figures by dataset, from counters alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kfm.cli.output import instant, utc
from kfm.core.records import UNIT_STATUSES


def unit_documents(figures: Iterable[tuple[str, str, int, int | None]]) -> dict[str, Any]:
    """(dataset, name, amount, newest time) → by dataset, and how many messages are dead."""
    datasets: dict[str, dict[str, Any]] = {}
    dead = 0
    for dataset, name, amount, high_ms in figures:
        if name.startswith("dead:"):
            dead += int(amount)
            continue
        if not dataset:
            continue
        one = datasets.setdefault(
            dataset, {"dataset": dataset, **dict.fromkeys(UNIT_STATUSES, 0), "newest": None}
        )
        if name in UNIT_STATUSES:
            one[name] = int(amount)
        elif name == "watermark":
            one["newest"] = instant(high_ms)
    return {"datasets": [datasets[name] for name in sorted(datasets)], "dead_messages": dead}


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
