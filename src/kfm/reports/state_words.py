"""The word that people read for a stored state: the same at the console and on the command line.

What is stored, JSON output and the API keep their values.
Nothing heavy is imported here: `kfm status` needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

RUNS = {"running": "running", "success": "published", "failed": "failed"}
INVOCATIONS = {"success": "published", "noop": "unchanged", "absent": "missing", "empty": "empty"}
NODES = {"success": "ran", "skipped": "unchanged", "failed": "failed", "partial": "partial"}
PIPELINE_RUNS = {"success": "succeeded"}
REQUESTS = {
    "open": "waiting",
    "running": "running",
    "awaiting-approval": "waiting for approval",
    "done": "done",
    "cancelled": "cancelled",
}
RETRY, PROVIDER = "waiting for a retry", "waiting for a provider"
SWITCH, FREEZE = "waiting for a switch", "waiting for a freeze"
DATA = "waiting for data"
# By what an open request is blocked by, without the name of the provider or switch; all else is just waiting.
WAITING = {
    "retry": RETRY,
    "retry-after": RETRY,
    "next-run": RETRY,
    "granted": RETRY,
    "circuit": PROVIDER,
    "circuit-open": PROVIDER,
    "switch": SWITCH,
    "freeze": FREEZE,
    "not-yet": DATA,
}
UNITS = {
    "pending": "waiting",
    "in_progress": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "quarantined": "quarantined",
}
QUARANTINE_KINDS = {"dead-letter": "dead letter", "quarantine": "quarantined"}
SCHEDULED_TIMES = {"coming": "upcoming", "pending": "waiting", "held": "paused"}
APPROVALS = {
    "requested": "waiting for approval",
    "approved": "approved",
    "rejected": "rejected",
    "superseded": "superseded",
    "revoked": "revoked",
}
NOT_SEEN_YET = "not seen yet"


def of_run(status: str, *, version_id: str | None, error_code: str | None) -> str:
    """A run that a gate refused has not failed, although it is stored as failed."""
    if status == "success":
        return "published" if version_id is not None else "unchanged"
    return "refused" if error_code is not None and is_refusal(error_code) else status


def is_refusal(error_code: str | None) -> bool:
    return error_code in _refusals()


@cache
def _refusals() -> frozenset[str]:
    from kfm.model.errors import Refused, all_errors

    return frozenset(error.code for error in all_errors() if issubclass(error, Refused))


def of_invocation(outcome: str | None) -> str:
    return "running" if outcome is None else INVOCATIONS.get(outcome, outcome)


def of_report(word: str) -> str:
    """The word of a run's report, where `blocked` stands for a refusal."""
    return "refused" if word == "blocked" else word


def of_node(outcome: str | None) -> str:
    return "running" if outcome is None else NODES.get(outcome, outcome)


def of_pipeline_run(state: str) -> str:
    return PIPELINE_RUNS.get(state, state)


def of_request(state: str, outcome: str | None, blocked_by: str | None) -> str:
    """Of one that is done, how it ended; of one that waits, what for."""
    if state == "open":
        return of_waiting(blocked_by)
    return of_invocation(outcome) if state == "done" and outcome else REQUESTS.get(state, state)


def of_waiting(blocked_by: str | None) -> str:
    """What an open request waits for."""
    return WAITING.get((blocked_by or "").partition(":")[0], REQUESTS["open"])


def of_unit(status: str) -> str:
    return UNITS.get(status, status)


def of_quarantined(kind: str, state: str) -> str:
    return QUARANTINE_KINDS.get(kind, kind) if state == "held" else state


def of_scheduled_time(
    fate: str,
    *,
    before_first_seen: bool = False,
    state: str | None = None,
    outcome: str | None = None,
    blocked_by: str | None = None,
) -> str:
    """By `state`, `outcome` and `blocked_by` of its request, where it had one."""
    if state is not None:
        return of_request(state, outcome, blocked_by)
    return NOT_SEEN_YET if before_first_seen else SCHEDULED_TIMES.get(fate, fate)


def of_approval(status: str) -> str:
    return APPROVALS.get(status, status)


def by_word(counts: Mapping[str, int], words: Mapping[str, str]) -> dict[str, int]:
    """Counts of stored values, by the words for them."""
    found: dict[str, int] = {}
    for name, count in counts.items():
        word = words.get(name, name)
        found[word] = found.get(word, 0) + count
    return found
