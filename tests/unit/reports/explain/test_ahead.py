"""What an explanation has of a failed run's attempts, budget and next attempt."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.quarantine import RetryState
from kfm.reports.explain.runs import ahead
from tests.acceptance.cli.fakes import NOW_MS, RUN_ID, FakeLedger, make_run

HOUR_MS = 3_600_000
pytestmark = pytest.mark.req("RS-12", "TRG-1")


def told(run: dict[str, Any], **state: Any) -> str:
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "attempt": 2,
        "grants": 1,
        "grant_attempts": 2,
        "granted_at_ms": NOW_MS - HOUR_MS,
        "not_before_ms": NOW_MS + HOUR_MS,
        "fate": "retry",
        "error_class": "timeout",
        "reason": "retry",
        "updated_at_ms": NOW_MS,
    }
    known = [RetryState(**{**values, **state})] if state else []
    made = make_run(**{"status": "failed", "attempts": 2, "start_time_ms": NOW_MS - HOUR_MS, **run})
    return " ".join(one.text for one in ahead(FakeLedger(retry_states=known), made, NOW_MS))


def test_attempts_and_budget_used_and_left() -> None:
    """Both are told with what is used and what is left, and when the time is over."""
    text = told({}, reason="retry")
    assert "Of grant 1 (at most 5 are given) 2 of 6 attempts are used and 4 left" in text
    assert "Its budget of 6 h 0 min began at 2026-01-01 23:00:00 UTC" in text
    assert "1 h 0 min used, 5 h 0 min left." in text
    assert "nothing left" in told({}, granted_at_ms=NOW_MS - 9 * HOUR_MS)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"reason": "retry"}, "is not made before 2026-01-02 01:00:00 UTC, by the backoff of its trigger"),
        ({"reason": "retry-after"}, "because its provider is not to be called before"),
        ({"reason": "circuit-open"}, "because its provider's circuit is open until then"),
        ({"reason": "retry", "not_before_ms": NOW_MS - 1}, "is due since"),
        ({"fate": "spent", "reason": "not-idempotent"}, "say `idempotent: true`"),
        ({"fate": "spent", "reason": "needs-approval"}, ": it was approved for one attempt only; it is quar"),
        ({"fate": "spent", "reason": "acted"}, "kfm.call(…, idempotent=True)"),
        ({"fate": "spent", "reason": "retry-after-exceeds-budget"}, "more time than its budget has"),
        ({"fate": "quarantine", "reason": "non-retryable"}, "does not cure; it is quarantined."),
    ],
)
def test_when_it_is_tried_again_and_why(state: dict[str, Any], sentence: str) -> None:
    """The next attempt has a time and a reason; where there is none, so has that."""
    assert sentence in told({}, **state)


def test_it_is_not_decided_yet() -> None:
    """A run whose process died waits for the next decision; running and done ones have nothing to decide."""
    assert "It is not decided yet" in told({})
    assert "It is not decided yet" in told({"attempts": 3}, reason="retry")
    assert "attempt is" not in told({"status": "running"})
    assert told({"status": "success"}) == ""
