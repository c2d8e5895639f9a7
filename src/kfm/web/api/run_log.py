"""The log of an attempt over the API."""

from __future__ import annotations

from typing import Any

from kfm.reports.run_logs import LEVELS as LEVELS
from kfm.reports.run_logs import read_log
from kfm.web.api.operations import ApiCall
from kfm.web.problems import Problem, missing


def log(call: ApiCall) -> Any:
    """Lines of one attempt, the oldest first. `next` is always there: what is written later follows it."""
    query, run = call.query, call.app.ledger.run(call.path["run_id"])
    if run is None:
        raise missing("run")
    found = read_log(
        call.context.folder,
        run,
        attempt=query["attempt"],
        offset=int(query["cursor"] or 0),
        level=query["level"],
        step=query["node"],
        limit=query["limit"],
    )
    if found is None:
        raise Problem(404, "The log of this attempt is not on this machine, or was removed.")
    return {
        "run_id": run.run_id,
        "attempt": found.attempt,
        "lines": list(found.lines),
        "more": found.is_more,
        "next": str(found.next),
        "ended": run.status != "running" or found.attempt < run.attempts,
    }
