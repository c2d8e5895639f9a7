"""The log of an attempt over the API: `event_log.jsonl`, from an offset on, filtered by level and node."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from kfm.web.api.operations import ApiCall
from kfm.web.problems import Problem, missing

READ_BYTES_MAX = 1 << 20  # of the file, for one page
LEVELS = ("info", "warning", "error")


def log(call: ApiCall) -> Any:
    """Lines of one attempt, the oldest first. `next` is always there: what is written later follows it."""
    query, run = call.query, call.app.ledger.run(call.path["run_id"])
    if run is None:
        raise missing("run")
    attempt = query["attempt"] or run.attempts
    path = f"{call.context.folder}/runs/{run.run_id}/attempt-{attempt}/event_log.jsonl"
    offset = int(query["cursor"] or 0)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(min(offset, size))
            data = file.read(READ_BYTES_MAX)
    except OSError:
        raise Problem(404, "The log of this attempt is not on this machine, or was removed.") from None
    allowed = LEVELS[LEVELS.index(query["level"]) :]
    lines: list[Any] = []
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n") or len(lines) == query["limit"]:
            break  # a line that is being written is read with the next page
        offset += len(line)
        known = msgspec.json.decode(line)
        if known["level"] in allowed and query["node"] in (None, known["phase"]):
            lines.append({name: known[name] for name in ("at", "level", "phase", "message", "facts")})
    return {
        "run_id": run.run_id,
        "attempt": attempt,
        "lines": lines,
        "more": offset < size,
        "next": str(offset),
        "ended": run.status != "running" or attempt < run.attempts,
    }
