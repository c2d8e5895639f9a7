"""What `kfm status` tells of failed work: what is held, and what is tried again by itself."""

from __future__ import annotations

from typing import Any

from kfm.cli.output import short_id, utc
from kfm.core.wording import counted


def ahead_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    held, upcoming = document["held"], document["next_retry"]
    if held is not None:
        since = utc(held["oldest"])
        rows.append(f"  {counted(held['count'], 'run')} held, the oldest since {since}: `{held['command']}`")
    if upcoming is not None:
        more = f", {upcoming['waiting'] - 1} more after it" if upcoming["waiting"] > 1 else ""
        when = "due since" if upcoming["at"] <= document["at"] else "due at"
        rows.append(
            f"  {short_id(upcoming['run_id'])} of {upcoming['dataset_id']} is tried again, "
            f"{when} {utc(upcoming['at'])}{more}: `{upcoming['command']}`"
        )
    return rows
