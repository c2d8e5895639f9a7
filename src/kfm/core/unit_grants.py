"""What becomes of a unit that failed, and of one whose lease lapsed. Pure.

Attempts are counted per grant: the first intake of a content version is one, and so is each approved
replay. A lapse in a batch charges nobody: which of the batch was the poison shows only when each comes alone.
"""

from __future__ import annotations

from typing import Literal

from kfm.core.classify import Classification
from kfm.core.records import Record
from kfm.core.retry import decide_retry, policy_for
from kfm.core.retry_rules import retry_rules

TRIGGER = "upstream-event"
LAPSED = Classification(retryable=True, error_class="lease")
ISOLATE_MS = 0  # a unit that may be poison is claimed again at once, by itself


class Outlook(Record, frozen=True):
    fate: Literal["retry", "spent", "quarantine"]
    reason: str
    not_before_ms: int | None = None


def fate_of(
    kind: Classification,
    *,
    grants: int,
    grant_attempts: int,
    granted_at_ms: int,
    now_ms: int,
    unit_random: float,
    asked_ms: int | None = None,
    charged: bool = True,
) -> Outlook:
    """After a failure. `grant_attempts` includes the attempt that just ended, which may not be charged."""
    attempts = grant_attempts if charged else grant_attempts - 1
    decision = decide_retry(kind, policy_for(TRIGGER), attempts, granted_at_ms, now_ms, unit_random, asked_ms)
    if decision.retry:
        return Outlook(fate="retry", reason=decision.reason, not_before_ms=decision.not_before_ms)
    if not kind.retryable:
        return Outlook(fate="quarantine", reason=decision.reason)
    if grants >= retry_rules().grants_max:
        return Outlook(fate="quarantine", reason="grants-spent")
    return Outlook(fate="spent", reason=decision.reason)


def lapse_fate(
    *, alone: bool, grants: int, grant_attempts: int, granted_at_ms: int, now_ms: int, unit_random: float
) -> Outlook:
    """After a lease lapsed."""
    if not alone:
        return Outlook(fate="retry", reason="isolate", not_before_ms=now_ms + ISOLATE_MS)
    return fate_of(
        LAPSED,
        grants=grants,
        grant_attempts=grant_attempts,
        granted_at_ms=granted_at_ms,
        now_ms=now_ms,
        unit_random=unit_random,
    )
