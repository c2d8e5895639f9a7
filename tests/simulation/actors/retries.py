"""Failures of every kind, and what the two tiers of retrying make of them.

The one who fails knows whether it may pass: by the table that people read, not by the code.
"""

from __future__ import annotations

import errno
import sqlite3
from datetime import UTC, datetime
from typing import Any

from kfm.model.errors import UpstreamUnavailable, WorkFailed
from kfm.model.retry import (
    CALL_WAIT_MAX_MS,
    RETRY_AFTER_MAX_S,
    Failure,
    RetryPolicy,
    budget_state,
    call_policy,
    classify,
    classify_exception,
    decide_call_retry,
    decide_retry,
    parse_retry_after,
    policy_for,
)
from kfm.model.times import parse_http_date
from tests.simulation.actors.scene import Scene
from tests.simulation.judging import require

TRIGGERS = ("cron", "manual", "webhook", "upstream-event")


class Answer:
    def __init__(self, status: int) -> None:
        self.status_code = status


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = Answer(status)


class CloudError(Exception):
    """As the cloud's own library raises it."""

    def __init__(self, code: Any) -> None:
        super().__init__("cloud")
        self.response = {"Error": {"Code": code}} if code else {}


class SqlError(Exception):
    def __init__(self, state: str) -> None:
        super().__init__("sql")
        self.sqlstate = state


# What is raised, and whether the same call may go well a moment later.
TROUBLES: tuple[tuple[BaseException | Failure, bool], ...] = (
    (HttpError(503), True),
    (HttpError(429), True),
    (HttpError(404), False),
    (HttpError(401), False),
    (CloudError("SlowDown"), True),
    (CloudError("AccessDenied"), False),
    (CloudError(None), False),
    (SqlError("40001"), True),
    (SqlError("57P03"), True),
    (CloudError("Neo.TransientError.General"), True),
    (CloudError("Neo.ClientError.Security"), False),
    (sqlite3.OperationalError("database is locked"), True),
    (sqlite3.OperationalError("no such table"), False),
    (SqlError("23505"), False),
    (ConnectionResetError(errno.ECONNRESET, "reset"), True),
    (TimeoutError("late"), True),
    (OSError(errno.ECONNREFUSED, "refused"), True),
    (PermissionError(errno.EACCES, "no"), False),
    (UpstreamUnavailable("away"), True),
    (ValueError("odd"), False),
    (Failure(http_status=502), True),
    (Failure(http_status=400), False),
    (Failure(code="SlowDown", http_status=400), True),
    (Failure(errno="ECONNRESET"), True),
    (Failure(exceptions=("Odd",), message="what"), False),
)


def retry(scene: Scene) -> None:
    for _ in range(3):
        _run_tier(scene, policy_for(scene.rng.choice(TRIGGERS)))
        _call_tier(scene)
    _causes()


def _trouble(scene: Scene) -> tuple[Any, bool]:
    trouble, passing = scene.rng.choice(TROUBLES)
    kind = classify(trouble) if isinstance(trouble, Failure) else classify_exception(trouble)
    require(kind.retryable == passing, "what may pass is known by its kind", trouble=repr(trouble), kind=kind)
    return (trouble if isinstance(trouble, Failure) else kind), passing


def _asked(scene: Scene) -> int | None:
    """What upstream asks for, in one of its many spellings; None if it asks for nothing that makes sense."""
    rng = scene.rng
    throw = rng.random()
    if throw < 0.5:
        return None
    seconds = rng.choice((0, 1, 20, 45, 3_600, 100_000))
    at_s = scene.now_ms // 1000 + seconds
    moment = datetime.fromtimestamp(at_s, UTC)
    spelling, exact_ms = rng.choice(
        (
            (str(seconds), seconds * 1000),
            (f"{moment:%a, %d %b %Y %H:%M:%S} GMT", None),
            (f"{moment:%A, %d-%b-%y %H:%M:%S} GMT", None),
            (f"{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S %Y}", None),
            ("soon", -1),
            ("9" * 12, -2),
            ("Mon, 31 Feb 2027 00:00:00 GMT", -1),
        )
    )
    found = parse_retry_after(f" {spelling}\t", scene.now_ms)
    if exact_ms == -1:
        require(found is None, "nonsense asks for nothing", spelling=spelling)
        return None
    if exact_ms == -2:
        require(found == RETRY_AFTER_MAX_S * 1000, "too long is long, not nothing", spelling=spelling)
        return None
    if exact_ms is None:
        exact_ms = max(0, at_s * 1000 - scene.now_ms)
        same = parse_http_date(spelling) == at_s * 1000
        require(same, "a date means the same in every spelling", spelling=spelling)
    require(found == exact_ms, "upstream's Retry-After is understood", spelling=spelling, found=found)
    require(parse_http_date(f"{spelling} CET") is None, "what is no date of the web is none")
    return found


def _run_tier(scene: Scene, policy: RetryPolicy) -> None:
    first_ms = scene.now_ms
    for attempt in range(1, policy.attempts_max + 2):
        scene.pause("retry.run")
        failure, passing = _trouble(scene)
        asked_ms = _asked(scene)
        now_ms = scene.now_ms
        decision = decide_retry(failure, policy, attempt, first_ms, now_ms, scene.rng.random(), asked_ms)
        free = attempt < policy.attempts_max and now_ms - first_ms < policy.budget_ms
        state = budget_state(attempt, first_ms, now_ms, policy)
        require((state == "free") == free, "the budget is what the matrix says", attempt=attempt)
        require(not decision.retry or passing, "what can't pass is not tried again", decision=decision)
        require(not decision.retry or free, "no retry goes past the budget", decision=decision)
        if not decision.retry:
            reasons = {"non-retryable"} if not passing else {"attempts-spent"} if not free else set()
            late = decision.reason in ("budget-spent", "retry-after-exceeds-budget")
            ends_ms = first_ms + policy.budget_ms
            require(
                decision.reason in reasons or (late and (decision.not_before_ms or 0) >= ends_ms),
                "giving up has its reason",
                decision=decision,
            )
            if passing:
                return
            continue
        _within(policy, attempt - 1, decision.delay_ms or 0, asked_ms)
        require(now_ms + (decision.delay_ms or 0) < first_ms + policy.budget_ms, "a retry fits the budget")
        scene.sleep(decision.delay_ms or 0)


def _within(policy: RetryPolicy, index: int, delay_ms: int, asked_ms: int | None) -> None:
    nominal = min(policy.cap_ms, policy.base_ms * 2**index)
    if policy.ladder_ms:
        nominal = policy.ladder_ms[min(index, len(policy.ladder_ms) - 1)]
    low, high = nominal // 2 - 1, nominal * 3 // 2
    require(
        max(low, asked_ms or 0) <= delay_ms <= max(high, asked_ms or 0),
        "a delay is within its bounds",
        delay_ms=delay_ms,
        nominal=nominal,
        asked_ms=asked_ms,
    )


def _call_tier(scene: Scene) -> None:
    policy = call_policy()
    deadline_ms = scene.now_ms + 60_000 if scene.rng.random() < 0.5 else None
    for attempt in range(1, policy.attempts_max + 1):
        scene.pause("retry.call")
        failure, passing = _trouble(scene)
        asked_ms = _asked(scene)
        now_ms = scene.now_ms
        decision = decide_call_retry(
            failure, policy, attempt, deadline_ms, now_ms, scene.rng.random(), asked_ms
        )
        if not decision.retry:
            long = (asked_ms or 0) > CALL_WAIT_MAX_MS
            require(
                not passing or long or attempt == policy.attempts_max or deadline_ms is not None,
                "a call is given up for a reason",
                decision=decision,
            )
            return
        delay_ms = decision.delay_ms or 0
        require(passing, "what can't pass is not called again")
        require(attempt < policy.attempts_max, "calls are bounded")
        cap_ms = min(policy.cap_ms, policy.base_ms * 2 ** (attempt - 1))
        require(
            (asked_ms or 0) <= delay_ms <= max(cap_ms, asked_ms or 0), "a wait is bounded", delay_ms=delay_ms
        )
        require(deadline_ms is None or now_ms + delay_ms < deadline_ms, "a wait ends before the deadline")
        scene.sleep(delay_ms)


def _causes() -> None:
    """An error that says nothing is judged by what it was raised from."""
    for cause, passing in ((HttpError(503), True), (HttpError(403), False)):
        try:
            try:
                raise cause
            except HttpError as error:
                raise WorkFailed("it broke") from error
        except WorkFailed as error:
            require(classify_exception(error).retryable == passing, "the cause decides", cause=repr(cause))
