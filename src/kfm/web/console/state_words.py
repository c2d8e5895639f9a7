"""The sign and the tone of each word for a state, so that colour is never the only mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kfm.model.records import Record, Run
from kfm.reports import state_words
from kfm.reports.runs import word_of_run

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

Tone = Literal["good", "quiet", "busy", "warn", "bad", "faint"]


class Word(Record, frozen=True):
    text: str
    tone: Tone
    sign: str


_WORDS: dict[str, Word] = {
    word.text: word
    for word in (
        Word(text="succeeded", tone="good", sign="✓"),
        Word(text="fresh", tone="good", sign="✓"),
        Word(text="late", tone="warn", sign="○"),
        Word(text="incomplete", tone="warn", sign="~"),
        Word(text="failing", tone="bad", sign="!"),
        Word(text="never", tone="faint", sign="∅"),
        Word(text="clear", tone="good", sign="✓"),
        Word(text="ran", tone="good", sign="✓"),
        Word(text="published", tone="good", sign="✓"),
        Word(text="passed", tone="good", sign="✓"),
        Word(text="approved", tone="good", sign="✓"),
        Word(text="unchanged", tone="quiet", sign="="),
        Word(text="skipped", tone="quiet", sign="»"),
        Word(text="blocked", tone="warn", sign="–"),
        Word(text="rejected", tone="warn", sign="×"),
        Word(text="superseded", tone="quiet", sign="×"),
        Word(text="revoked", tone="warn", sign="×"),
        Word(text="refused", tone="warn", sign="–"),
        Word(text="frozen", tone="warn", sign="–"),
        Word(text="halted", tone="warn", sign="–"),
        Word(text="failed", tone="bad", sign="!"),
        Word(text="partial", tone="warn", sign="~"),
        Word(text="running", tone="busy", sign="▸"),
        Word(text="planned", tone="faint", sign="·"),
        Word(text="done", tone="good", sign="✓"),
        Word(text="came back", tone="good", sign="✓"),
        Word(text="changed meanwhile", tone="warn", sign="~"),
        Word(text="waiting", tone="busy", sign="…"),
        Word(text="waiting for approval", tone="warn", sign="?"),
        Word(text=state_words.RETRY, tone="warn", sign="↻"),
        Word(text=state_words.PROVIDER, tone="warn", sign="…"),
        Word(text=state_words.SWITCH, tone="warn", sign="‖"),
        Word(text=state_words.FREEZE, tone="warn", sign="‖"),
        Word(text=state_words.DATA, tone="busy", sign="…"),
        Word(text="missing", tone="warn", sign="○"),
        Word(text="overdue", tone="warn", sign="◷"),
        Word(text="empty", tone="quiet", sign="0"),
        Word(text="withdrawn", tone="faint", sign="†"),
        Word(text="retired", tone="faint", sign="†"),
        Word(text="dismissed", tone="faint", sign="×"),
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
        Word(text="sound", tone="good", sign="✓"),
        Word(text="broken", tone="bad", sign="!"),
        Word(text="closed", tone="good", sign="✓"),
        Word(text="on", tone="good", sign="✓"),
        Word(text="off", tone="quiet", sign="×"),
        Word(text="warning", tone="warn", sign="–"),
        Word(text="error", tone="bad", sign="!"),
        Word(text="critical", tone="bad", sign="■"),
        Word(text="interrupted", tone="warn", sign="~"),
        Word(text="shown", tone="good", sign="✓"),
        Word(text="behind", tone="warn", sign="○"),
        Word(text="stale", tone="warn", sign="!"),
        Word(text="added", tone="good", sign="+"),
        Word(text="changed", tone="busy", sign="~"),
        Word(text="removed", tone="bad", sign="−"),
    )
}


def known(text: str) -> Word | None:
    return _WORDS.get(text)


def word(text: str) -> Word:
    return _WORDS.get(text) or Word(text=text, tone="quiet", sign="·")


def of_run(reader: LedgerReader, run: Run) -> Word:
    return word(word_of_run(reader, run))


def of_invocation(outcome: str | None) -> Word:
    return word(state_words.of_invocation(outcome))


def of_node(outcome: str | None) -> Word:
    return word(state_words.of_node(outcome))


def of_pipeline_run(state: str) -> Word:
    return word(state_words.of_pipeline_run(state))


def of_request(state: str, outcome: str | None, blocked_by: str | None) -> Word:
    return word(state_words.of_request(state, outcome, blocked_by))


def of_unit(status: str) -> Word:
    return word(state_words.of_unit(status))


def of_quarantined(kind: str, state: str) -> Word:
    return word(state_words.of_quarantined(kind, state))


def of_breaker(state: str) -> Word:
    return word("closed" if state == "closed" else f"circuit {state}")


def of_approval(status: str) -> Word:
    return word(state_words.of_approval(status))


def of_scheduled_time(fate: str, *, before_first_seen: bool) -> Word:
    return word(state_words.of_scheduled_time(fate, before_first_seen=before_first_seen))
