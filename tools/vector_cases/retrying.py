"""Backoff and decisions."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.retry import (
    Classification,
    budget_state,
    call_delay_ms,
    call_policy,
    decide_call_retry,
    decide_retry,
    policy_for,
    run_delay_ms,
    unit_fate,
)
from tools.vector_cases.shape import Case, Family

HAND = "by hand"

# --- backoff -------------------------------------------------------------------------


def _backoff(given: dict[str, Any]) -> Any:
    index, chance = given["retry_index"], given["unit_random"]
    if given["tier"] == "call":
        return {"delay_ms": call_delay_ms(call_policy(), index, chance)}
    return {"delay_ms": run_delay_ms(policy_for(given["trigger"]), index, chance)}


def _wait(trigger: str, index: int, chance: float, delay_ms: int) -> Case:
    given = {"tier": "run", "trigger": trigger, "retry_index": index, "unit_random": chance}
    return Case(f"{trigger}, retry {index}, chance {chance}", given, {"delay_ms": delay_ms}, HAND)


def _call(index: int, chance: float, delay_ms: int) -> Case:
    given = {"tier": "call", "retry_index": index, "unit_random": chance}
    return Case(f"call, retry {index}, chance {chance}", given, {"delay_ms": delay_ms}, HAND)


BACKOFF = Family(
    "backoff",
    "floor(min(cap, base * 2^n) * (0.5 + chance)) for runs and units, floor(chance * min(cap, base * 2^n)) for calls; "
    "n = 0 at the first retry, chance in [0, 1).",
    _backoff,
    [
        _wait("cron", 0, 0.0, 15_000),
        _wait("cron", 0, 0.5, 30_000),
        _wait("cron", 0, 0.999, 44_970),
        _wait("cron", 1, 0.5, 60_000),
        _wait("cron", 2, 0.5, 120_000),
        _wait("cron", 3, 0.5, 240_000),
        _wait("cron", 4, 0.5, 480_000),
        _wait("cron", 5, 0.5, 900_000),
        _wait("cron", 5, 0.999, 1_349_100),
        _wait("cron", 1000, 0.0, 450_000),
        _wait("manual", 0, 0.5, 30_000),
        _wait("manual", 5, 0.5, 900_000),
        _wait("webhook", 0, 0.5, 30_000),
        _wait("webhook", 0, 0.0, 15_000),
        _wait("webhook", 1, 0.5, 120_000),
        _wait("webhook", 1, 0.25, 90_000),
        _wait("webhook", 2, 0.5, 300_000),
        _wait("webhook", 3, 0.5, 300_000),
        _wait("webhook", 9, 0.75, 375_000),
        _wait("upstream-event", 0, 0.5, 15_000),
        _wait("upstream-event", 1, 0.5, 30_000),
        _wait("upstream-event", 5, 0.5, 480_000),
        _wait("upstream-event", 6, 0.5, 600_000),
        _wait("upstream-event", 6, 0.0, 300_000),
        _wait("upstream-event", 40, 0.999, 899_400),
        _wait("upstream-event", 0, 0.1, 9_000),
        _wait("upstream-event", 0, 0.123456, 9_351),
        _call(0, 0.0, 0),
        _call(0, 0.5, 250),
        _call(0, 0.999, 499),
        _call(1, 0.5, 500),
        _call(2, 0.5, 1_000),
        _call(5, 0.5, 8_000),
        _call(6, 0.5, 15_000),
        _call(6, 0.999, 29_970),
        _call(60, 0.5, 15_000),
    ],
)

# --- decisions -----------------------------------------------------------------------

_RETRYABLE = {"retryable": True, "error_class": "HTTP_503"}
_FATAL = {"retryable": False, "error_class": "schema"}
_HOUR = 3_600_000


def _decision(given: dict[str, Any]) -> Any:
    kind = msgspec.convert(given["failure"], Classification) if "failure" in given else None
    if given["ask"] == "budget":
        policy = policy_for(given["trigger"])
        return budget_state(given["attempts"], given["first_attempt_ms"], given["now_ms"], policy)
    assert kind is not None
    if given["ask"] == "unit":
        return unit_fate(kind, given["grant_attempts"], given["grants"], policy_for("upstream-event"))
    after_ms = given.get("retry_after_ms")
    if given["ask"] == "call":
        decided = decide_call_retry(
            kind,
            call_policy(),
            given["attempts"],
            given["deadline_ms"],
            given["now_ms"],
            given["unit_random"],
            after_ms,
        )
    else:
        decided = decide_retry(
            kind,
            policy_for(given["trigger"]),
            given["attempts"],
            given["first_attempt_ms"],
            given["now_ms"],
            given["unit_random"],
            after_ms,
        )
    return {key: value for key, value in msgspec.to_builtins(decided).items() if key != "error_class"}


def _said(
    retry: bool, reason: str, delay_ms: int | None = None, not_before_ms: int | None = None
) -> dict[str, Any]:
    return {"retry": retry, "reason": reason, "delay_ms": delay_ms, "not_before_ms": not_before_ms}


def _run(
    name: str,
    trigger: str,
    attempts: int,
    now_ms: int,
    pin: Any,
    after_ms: int | None = None,
    kind: Any = None,
) -> Case:
    given: dict[str, Any] = {
        "ask": "run",
        "failure": kind or _RETRYABLE,
        "trigger": trigger,
        "attempts": attempts,
    }
    given |= {"first_attempt_ms": 0, "now_ms": now_ms, "unit_random": 0.5}
    if after_ms is not None:
        given["retry_after_ms"] = after_ms
    return Case(name, given, pin, HAND)


def _one_call(
    name: str,
    attempts: int,
    pin: Any,
    after_ms: int | None = None,
    deadline_ms: int | None = None,
    kind: Any = None,
) -> Case:
    given: dict[str, Any] = {"ask": "call", "failure": kind or _RETRYABLE, "attempts": attempts, "now_ms": 0}
    given |= {"deadline_ms": deadline_ms, "unit_random": 0.5}
    if after_ms is not None:
        given["retry_after_ms"] = after_ms
    return Case(name, given, pin, HAND)


def _budget(name: str, trigger: str, attempts: int, now_ms: int, pin: str) -> Case:
    given = {
        "ask": "budget",
        "trigger": trigger,
        "attempts": attempts,
        "first_attempt_ms": 0,
        "now_ms": now_ms,
    }
    return Case(name, given, pin, HAND)


def _fate(name: str, grant_attempts: int, grants: int, pin: str, kind: Any = None) -> Case:
    given = {"ask": "unit", "failure": kind or _RETRYABLE, "grant_attempts": grant_attempts, "grants": grants}
    return Case(name, given, pin, HAND)


RETRY_DECISIONS = Family(
    "retry_decisions",
    "After a failure: try again, and when; or give up, and why. `ask` names the tier, or the budget of a person's re-run.",
    _decision,
    [
        _run("cron, first failure", "cron", 1, 1000, _said(True, "retry", 30_000, 31_000)),
        _run("cron, fifth failure", "cron", 5, 1000, _said(True, "retry", 480_000, 481_000)),
        _run("cron, sixth failure", "cron", 6, 1000, _said(False, "attempts-spent")),
        _run("cron, seventh attempt", "cron", 7, 1000, _said(False, "attempts-spent")),
        _run("cron, not retryable", "cron", 1, 1000, _said(False, "non-retryable"), kind=_FATAL),
        _run("not retryable wins over attempts", "cron", 9, 1000, _said(False, "non-retryable"), kind=_FATAL),
        _run(
            "cron, budget nearly spent",
            "cron",
            1,
            6 * _HOUR - 30_001,
            _said(True, "retry", 30_000, 6 * _HOUR - 1),
        ),
        _run(
            "cron, ends with the budget",
            "cron",
            1,
            6 * _HOUR - 30_000,
            _said(False, "budget-spent", None, 6 * _HOUR),
        ),
        _run("cron, long past", "cron", 2, 9 * _HOUR, _said(False, "budget-spent", None, 9 * _HOUR + 60_000)),
        _run("webhook, first", "webhook", 1, 0, _said(True, "retry", 30_000, 30_000)),
        _run("webhook, second", "webhook", 2, 0, _said(True, "retry", 120_000, 120_000)),
        _run("webhook, third", "webhook", 3, 0, _said(False, "attempts-spent")),
        _run("webhook, budget", "webhook", 1, 1_800_000, _said(False, "budget-spent", None, 1_830_000)),
        _run("event, first", "upstream-event", 1, 0, _said(True, "retry", 15_000, 15_000)),
        _run("event, seventh", "upstream-event", 7, 0, _said(True, "retry", 600_000, 600_000)),
        _run("event, eighth", "upstream-event", 8, 0, _said(False, "attempts-spent")),
        _run(
            "event, a day later",
            "upstream-event",
            2,
            24 * _HOUR,
            _said(False, "budget-spent", None, 24 * _HOUR + 30_000),
        ),
        _run("asked to wait longer", "cron", 1, 0, _said(True, "retry", 100_000, 100_000), after_ms=100_000),
        _run("asked to wait less", "cron", 1, 0, _said(True, "retry", 30_000, 30_000), after_ms=1000),
        _run("asked to wait not at all", "cron", 1, 0, _said(True, "retry", 30_000, 30_000), after_ms=0),
        _run(
            "asked beyond the budget",
            "cron",
            1,
            0,
            _said(False, "retry-after-exceeds-budget", None, 7 * _HOUR),
            after_ms=7 * _HOUR,
        ),
        _run(
            "asked to the budget's end",
            "cron",
            1,
            0,
            _said(False, "retry-after-exceeds-budget", None, 6 * _HOUR),
            after_ms=6 * _HOUR,
        ),
        _one_call("call, first", 1, _said(True, "retry", 250, 250)),
        _one_call("call, fourth", 4, _said(True, "retry", 2_000, 2_000)),
        _one_call("call, fifth", 5, _said(False, "attempts-spent")),
        _one_call("call, not retryable", 1, _said(False, "non-retryable"), kind=_FATAL),
        _one_call("call, asked for 30 s", 1, _said(True, "retry", 30_000, 30_000), after_ms=30_000),
        _one_call(
            "call, asked for more", 1, _said(False, "retry-after-for-run-tier", None, 30_001), after_ms=30_001
        ),
        _one_call("call, deadline", 1, _said(False, "deadline-spent"), deadline_ms=250),
        _one_call("call, just in time", 1, _said(True, "retry", 250, 250), deadline_ms=251),
        _budget("within budget", "manual", 1, 1000, "free"),
        _budget("attempts spent", "manual", 6, 1000, "needs-rationale"),
        _budget("time spent", "manual", 1, 6 * _HOUR, "needs-rationale"),
        _budget("time not quite spent", "manual", 5, 6 * _HOUR - 1, "free"),
        _budget("webhook, three attempts", "webhook", 3, 0, "needs-rationale"),
        _fate("unit, first failure", 1, 1, "retry"),
        _fate("unit, seventh failure", 7, 1, "retry"),
        _fate("unit, grant used up", 8, 1, "dead-letter"),
        _fate("unit, fourth grant used up", 8, 4, "dead-letter"),
        _fate("unit, last grant used up", 8, 5, "quarantine"),
        _fate("unit, last grant, attempts left", 3, 5, "retry"),
        _fate("unit, not retryable", 1, 1, "quarantine", _FATAL),
    ],
)

FAMILIES = [BACKOFF, RETRY_DECISIONS]
