"""The words for what became of something. Each has a sign and a tone: no colour ever speaks alone."""

from __future__ import annotations

from functools import cache
from typing import Literal

from kfm.model.errors import Refused, all_errors
from kfm.model.records import Record

Tone = Literal["good", "quiet", "busy", "warn", "bad", "faint"]


class Word(Record, frozen=True):
    text: str
    tone: Tone
    sign: str


_WORDS: dict[str, Word] = {
    word.text: word
    for word in (
        Word(text="succeeded", tone="good", sign="✓"),
        Word(text="clear", tone="good", sign="✓"),
        Word(text="ran", tone="good", sign="✓"),
        Word(text="published", tone="good", sign="✓"),
        Word(text="passed", tone="good", sign="✓"),
        Word(text="unchanged", tone="quiet", sign="="),
        Word(text="done before", tone="quiet", sign="="),
        Word(text="skipped", tone="quiet", sign="»"),
        Word(text="blocked", tone="warn", sign="–"),
        Word(text="refused", tone="warn", sign="–"),
        Word(text="turned away", tone="quiet", sign="–"),  # by what has gone since
        Word(text="failed", tone="bad", sign="!"),
        Word(text="partial", tone="warn", sign="~"),
        Word(text="running", tone="busy", sign="▸"),
        Word(text="in progress", tone="busy", sign="▸"),
        Word(text="waiting", tone="busy", sign="…"),
        Word(text="pending", tone="busy", sign="…"),
        Word(text="approval needed", tone="warn", sign="?"),
        Word(text="cancelled", tone="quiet", sign="×"),
        Word(text="busy", tone="quiet", sign="…"),
        Word(text="forced", tone="warn", sign="›"),
        Word(text="dead letter", tone="bad", sign="■"),
        Word(text="quarantined", tone="bad", sign="■"),
        Word(text="released", tone="quiet", sign="×"),
        Word(text="resolved", tone="good", sign="✓"),
        Word(text="missed", tone="warn", sign="○"),
        Word(text="dropped", tone="quiet", sign="▽"),
        Word(text="redefined", tone="quiet", sign="≈"),
        Word(text="backfilled", tone="good", sign="+"),
        Word(text="unaccounted", tone="bad", sign="?"),
        Word(text="not known yet", tone="faint", sign="∅"),
        Word(text="ahead", tone="faint", sign="·"),
        Word(text="paused", tone="warn", sign="‖"),
        Word(text="stopped", tone="bad", sign="■"),
        Word(text="circuit open", tone="warn", sign="–"),
        Word(text="being tried", tone="busy", sign="▸"),
        Word(text="recovering", tone="busy", sign="▸"),
        Word(text="on", tone="good", sign="✓"),
        Word(text="off", tone="quiet", sign="×"),
        Word(text="warning", tone="warn", sign="–"),
        Word(text="error", tone="bad", sign="!"),
        Word(text="critical", tone="bad", sign="■"),
        Word(text="interrupted", tone="warn", sign="~"),
        Word(text="added", tone="good", sign="+"),
        Word(text="changed", tone="busy", sign="~"),
        Word(text="removed", tone="bad", sign="−"),
    )
}
_RUNS = {"running": "running", "success": "succeeded", "failed": "failed"}
_CALLS = {
    "success": "succeeded",
    "noop": "unchanged",
    "failed": "failed",
    "refused": "blocked",
    "busy": "busy",
    None: "running",
}
_NODES = {"success": "ran", "skipped": "unchanged", "failed": "failed", "partial": "partial"}
_REQUESTS = {
    "open": "waiting",
    "running": "running",
    "awaiting-approval": "approval needed",
    "cancelled": "cancelled",
}
_UNITS = {
    "pending": "pending",
    "in_progress": "in progress",
    "succeeded": "succeeded",
    "failed": "failed",
    "quarantined": "quarantined",
}


def word(text: str) -> Word:
    return _WORDS.get(text) or Word(text=text, tone="quiet", sign="·")


def of_run(status: str, error_code: str | None = None) -> Word:
    """What a gate refused did not fail: it is blocked."""
    if status == "failed" and is_refusal(error_code):
        return word("blocked")
    return word(_RUNS.get(status, status))


def is_refusal(error_code: str | None) -> bool:
    return error_code in _refusals()


@cache
def _refusals() -> frozenset[str]:
    return frozenset(error.code for error in all_errors() if issubclass(error, Refused))


def of_call(outcome: str | None) -> Word:
    return word(_CALLS.get(outcome, outcome or "running"))


def of_node(outcome: str | None) -> Word:
    return word(_NODES.get(outcome or "", outcome or "running"))


def of_request(state: str, outcome: str | None) -> Word:
    return of_call(outcome) if state == "done" and outcome else word(_REQUESTS.get(state, state))


def of_unit(status: str) -> Word:
    return word(_UNITS.get(status, status))


def of_held(kind: str, state: str) -> Word:
    if state != "held":
        return word(state)
    return word("dead letter" if kind == "dead-letter" else "quarantined")
