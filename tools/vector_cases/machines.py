"""Transitions of every state machine, and walks through the breaker."""

from __future__ import annotations

from typing import Any

from kfm.model import breaker as breakers
from kfm.model.contracts import machine
from tools.vector_cases.shape import Case, Family, error

HAND = "by hand"

# --- transitions: every pair of every machine, against a list that was written down apart from the tables --

_ALLOWED = {
    "run": {"-running", "running-success", "running-failed", "failed-running", "running-running"},
    "node": {
        *(
            "-success",
            "-failed",
            "-partial",
            "-skipped",
            "success-success",
            "success-failed",
            "success-partial",
        ),
        *("failed-success", "failed-failed", "failed-partial", "failed-skipped"),
        *("partial-success", "partial-failed", "partial-partial", "partial-skipped"),
        *("skipped-success", "skipped-failed", "skipped-partial", "skipped-skipped"),
    },
    "unit": {
        *("-pending", "pending-in_progress", "in_progress-succeeded", "in_progress-failed", "failed-pending"),
        *("pending-quarantined", "failed-quarantined", "succeeded-pending", "quarantined-pending"),
    },
    "breaker": {
        "-closed",
        "closed-open",
        "open-half_open",
        "open-closed",
        "closed-half_open",
        "half_open-half_open",
        "half_open-closed",
        "half_open-open",
    },
    "invocation": {"-success", "-noop", "-failed", "-refused", "-busy"},
}
_STATES = {
    "run": ("running", "success", "failed"),
    "node": ("success", "failed", "partial", "skipped"),
    "unit": ("pending", "in_progress", "succeeded", "failed", "quarantined"),
    "breaker": ("closed", "open", "half-open"),
    "invocation": ("success", "noop", "failed", "refused", "busy"),
}


def _transition(given: dict[str, Any]) -> Any:
    return {"allowed": machine(given["machine"]).allows(given["from"], given["to"], given.get("event"))}


def _pairs() -> list[Case]:
    cases = []
    for name, states in _STATES.items():
        for source in (None, *states):
            for target in states:
                edge = f"{source or ''}-{target}".replace("half-open", "half_open")
                given = {"machine": name, "from": source, "to": target}
                pin = {"allowed": edge in _ALLOWED[name]}
                cases.append(
                    Case(f"{name}: {source or 'nothing'} to {target}", given, pin, "by hand, from the rules")
                )
    return cases


def _by(name: str, source: str | None, target: str, event: str, allowed: bool) -> Case:
    given = {"machine": name, "from": source, "to": target, "event": event}
    return Case(f"{name}: {source} to {target} by {event}", given, {"allowed": allowed}, HAND)


TRANSITIONS = Family(
    "transitions",
    "Every pair of states of every machine: allowed or not. `from` null is a record that does not exist yet.",
    _transition,
    [
        *_pairs(),
        _by("unit", "failed", "pending", "retry_scheduled", True),
        _by("unit", "failed", "pending", "replayed", True),
        _by("unit", "failed", "pending", "migrated", False),
        _by("unit", "succeeded", "pending", "replayed", False),
        _by("unit", "succeeded", "pending", "migrated", True),
        _by("unit", "quarantined", "pending", "replayed", False),
        _by("unit", "quarantined", "pending", "migrated", True),
        _by("run", "running", "running", "taken_over", True),
        _by("run", "running", "running", "retried", False),
        _by("run", "failed", "running", "taken_over", False),
        _by("breaker", "half-open", "half-open", "probe_started", False),
        _by("breaker", "closed", "half-open", "held_open", True),
        _by("breaker", "closed", "half-open", "probe_asked", False),
    ],
)

# --- breakers ------------------------------------------------------------------------


def _breaker(given: dict[str, Any]) -> Any:
    """Walk the steps; after each the permission at that time; at the end the record."""
    current = breakers.Breaker(provider="p")
    permissions = []
    for step in given["steps"]:
        at_ms, fence = step["at_ms"], step.get("fence")
        if step["event"] == "failure":
            current = breakers.on_failure(current, at_ms, fence)
        elif step["event"] == "success":
            current = breakers.on_success(current, fence)
        elif step["event"] == "probe":
            current = breakers.probe_started(current, at_ms)
        permissions.append(breakers.may_call(current, at_ms))
    return {
        "state": current.state,
        "failures": current.failures,
        "fence": current.fence,
        "permissions": permissions,
    }


def _steps(
    name: str, steps: str, state: str = "", failures: int = 0, fence: int = 0, permissions: str = ""
) -> Case:
    """`f1` a failure at 1 ms, `s2` a success, `p3` a probe begins, `n4` nothing; `f5#1` with fence 1."""
    words = {"f": "failure", "s": "success", "p": "probe", "n": "nothing"}
    walked: list[dict[str, Any]] = []
    for text in steps.split():
        at, _, own = text[1:].partition("#")
        step: dict[str, Any] = {"event": words[text[0]], "at_ms": int(at)}
        walked.append({**step, "fence": int(own)} if own else step)
    names = {"c": "call", "r": "refuse", "p": "probe"}
    pin = {
        "state": state,
        "failures": failures,
        "fence": fence,
        "permissions": [names[one] for one in permissions],
    }
    return Case(name, {"steps": walked}, pin if state else error("KFM602"), HAND)


_OPEN = "f1 f2 f3"
_PROBING = "f1 f2 f3 p300003"

BREAKER = Family(
    "breaker",
    "Steps of a provider's breaker: three failures in a row open it for 300 s, one probe with a fence and a lease of 60 s.",
    _breaker,
    [
        _steps("unused", "n0", "closed", 0, 0, "c"),
        _steps("success", "s1", "closed", 0, 0, "c"),
        _steps("one failure", "f1", "closed", 1, 0, "c"),
        _steps("two failures", "f1 f2", "closed", 2, 0, "cc"),
        _steps("three failures", _OPEN, "open", 3, 0, "ccr"),
        _steps("a success between", "f1 f2 s3 f4 f5", "closed", 2, 0, "ccccc"),
        _steps("three after a success", "f1 f2 s3 f4 f5 f6", "open", 3, 0, "cccccr"),
        _steps("cooling down", f"{_OPEN} n300002", "open", 3, 0, "ccrr"),
        _steps("cooled down", f"{_OPEN} n300003", "open", 3, 0, "ccrp"),
        _steps("long after", f"{_OPEN} n99999999", "open", 3, 0, "ccrp"),
        _steps("late failure does not prolong", f"{_OPEN} f200000 n300003", "open", 3, 0, "ccrrp"),
        _steps("late success does not close", f"{_OPEN} s200000", "open", 3, 0, "ccrr"),
        _steps("probing", _PROBING, "half-open", 3, 1, "ccrr"),
        _steps("nobody else while probing", f"{_PROBING} n360002", "half-open", 3, 1, "ccrrr"),
        _steps("probe succeeds", f"{_PROBING} s300010#1", "closed", 0, 1, "ccrrc"),
        _steps("probe fails", f"{_PROBING} f300010#1", "open", 4, 1, "ccrrr"),
        _steps("cool-down begins again", f"{_PROBING} f300010#1 n600009", "open", 4, 1, "ccrrrr"),
        _steps("cool-down over again", f"{_PROBING} f300010#1 n600010", "open", 4, 1, "ccrrrp"),
        _steps("success of an older call", f"{_PROBING} s300010", "half-open", 3, 1, "ccrrr"),
        _steps("failure of an older call", f"{_PROBING} f300010", "half-open", 3, 1, "ccrrr"),
        _steps("wrong fence", f"{_PROBING} s300010#2", "half-open", 3, 1, "ccrrr"),
        _steps("prober vanished", f"{_PROBING} n360003", "half-open", 3, 1, "ccrrp"),
        _steps("probe taken over", f"{_PROBING} p360003", "half-open", 3, 2, "ccrrr"),
        _steps(
            "the vanished prober's success loses",
            f"{_PROBING} p360003 s360004#1",
            "half-open",
            3,
            2,
            "ccrrrr",
        ),
        _steps(
            "the vanished prober's failure loses",
            f"{_PROBING} p360003 f360004#1",
            "half-open",
            3,
            2,
            "ccrrrr",
        ),
        _steps("the successor's success counts", f"{_PROBING} p360003 s360004#2", "closed", 0, 2, "ccrrrc"),
        _steps(
            "second probe after a failure",
            f"{_PROBING} f300010#1 p600010 s600011#2",
            "closed",
            0,
            2,
            "ccrrrrc",
        ),
        _steps("failures count anew", f"{_PROBING} s300010#1 f300011 f300012", "closed", 2, 1, "ccrrccc"),
        _steps("opens anew", f"{_PROBING} s300010#1 f300011 f300012 f300013", "open", 3, 1, "ccrrcccr"),
        _steps(
            "opened by a clock that was far ahead",
            "f1000000001 f1000000002 f1000000003 n4",
            "open",
            3,
            0,
            "ccrp",
        ),
        _steps("no probe while closed", "p1"),
        _steps("no probe while cooling down", f"{_OPEN} p300002"),
        _steps("no second probe", f"{_PROBING} p300004"),
    ],
)

FAMILIES = [TRANSITIONS, BREAKER]
