"""The log of an attempt: `event_log.jsonl`, from an offset on, filtered by level and step."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from kfm.model.records import Record, Run

READ_BYTES_MAX = 1 << 20  # of the file, for one page
LEVELS = ("info", "warning", "error")
SHOWN = ("at", "level", "phase", "message", "facts")


class LogPage(Record, frozen=True):
    """Lines of one attempt, the oldest first."""

    attempt: int
    lines: tuple[dict[str, Any], ...]
    next: int  # what is written later follows it
    is_more: bool  # there is more already


def read_log(
    folder: str,
    run: Run,
    *,
    attempt: int | None = None,
    offset: int = 0,
    level: str = LEVELS[0],
    step: str | None = None,
    limit: int,
    tail: bool = False,
) -> LogPage | None:
    """None: it is not on this machine, or was removed. `folder`: of the state; `tail`: its last lines."""
    wanted = attempt or run.attempts
    path = f"{folder}/runs/{run.run_id}/attempt-{wanted}/event_log.jsonl"
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if tail:
                offset = max(size - READ_BYTES_MAX, 0)
            file.seek(min(offset, size))
            data = file.read(READ_BYTES_MAX)
    except OSError:
        return None
    allowed = LEVELS[LEVELS.index(level) :]
    lines: list[dict[str, Any]] = []
    found = data.splitlines(keepends=True)
    if tail and offset > 0:  # the first one is cut
        offset += len(found.pop(0))
    for line in found:
        if not line.endswith(b"\n") or (len(lines) == limit and not tail):
            break  # a line that is being written is read with the next page
        offset += len(line)
        known = msgspec.json.decode(line)
        if known["level"] in allowed and step in (None, known["phase"]):
            lines.append({name: known[name] for name in SHOWN})
    return LogPage(attempt=wanted, lines=tuple(lines[-limit:]), next=offset, is_more=offset < size)
