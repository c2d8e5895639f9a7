"""States as pages show them: one word each, with a sign and a tone, so that colour is never the only mark."""

from __future__ import annotations

from functools import cache
from typing import Literal

from kfm.model.errors import Refused, all_errors
from kfm.model.records import Record, Run

Tone = Literal["good", "quiet", "busy", "warn", "bad", "faint"]
_INVOCATIONS = {"success": "published", "noop": "unchanged", None: "running"}
_NODES = {"success": "ran", "skipped": "unchanged", None: "running"}
_REQUESTS = {"open": "waiting", "awaiting-approval": "waiting for approval"}
_UNITS = {"pending": "waiting", "in_progress": "running"}


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
        Word(text="approved", tone="good", sign="✓"),
        Word(text="unchanged", tone="quiet", sign="="),
        Word(text="skipped", tone="quiet", sign="»"),
        Word(text="blocked", tone="warn", sign="–"),
        Word(text="rejected", tone="warn", sign="×"),
        Word(text="refused", tone="warn", sign="–"),
        Word(text="frozen", tone="warn", sign="–"),
        Word(text="halted", tone="warn", sign="–"),
        Word(text="failed", tone="bad", sign="!"),
        Word(text="partial", tone="warn", sign="~"),
        Word(text="running", tone="busy", sign="▸"),
        Word(text="waiting", tone="busy", sign="…"),
        Word(text="waiting for approval", tone="warn", sign="?"),
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
        Word(text="not seen yet", tone="faint", sign="∅"),
        Word(text="upcoming", tone="faint", sign="·"),
        Word(text="paused", tone="warn", sign="‖"),
        Word(text="stopped", tone="bad", sign="■"),
        Word(text="circuit open", tone="warn", sign="–"),
        Word(text="circuit half-open", tone="busy", sign="▸"),
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


def word(text: str) -> Word:
    return _WORDS.get(text) or Word(text=text, tone="quiet", sign="·")


def of_run(run: Run) -> Word:
    """A run that a gate refused has not failed, although it is stored as failed."""
    if run.status == "success":
        return word("published" if run.version_id is not None else "unchanged")
    return word("refused" if is_refusal(run.error_code) else run.status)


def is_refusal(error_code: str | None) -> bool:
    return error_code in _refusals()


@cache
def _refusals() -> frozenset[str]:
    return frozenset(error.code for error in all_errors() if issubclass(error, Refused))


def of_invocation(outcome: str | None) -> Word:
    return word(_INVOCATIONS.get(outcome) or outcome or "")


def of_node(outcome: str | None) -> Word:
    return word(_NODES.get(outcome) or outcome or "")


def of_request(state: str, outcome: str | None) -> Word:
    return of_invocation(outcome) if state == "done" and outcome else word(_REQUESTS.get(state, state))


def of_unit(status: str) -> Word:
    return word(_UNITS.get(status, status))


def of_quarantined(kind: str, state: str) -> Word:
    if state != "held":
        return word(state)
    return word("dead letter" if kind == "dead-letter" else "quarantined")
