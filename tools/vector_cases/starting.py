"""May work start? And what becomes of a run whose attempt has ended: the decision that every starter shares."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from kfm.model.admission import Asked, StartFacts, may_start
from kfm.model.quarantine import RetryState
from kfm.model.records import Run
from kfm.model.retry import Classification
from kfm.model.retry_budgets import granted, judge
from tools.vector_cases.shape import Case, Family

HAND = "by hand"
NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DRAWN = 300

# What a run has beside what decides.
_BLANK: dict[str, Any] = {
    "run_id": "r",
    "source_id": "s",
    "dataset_id": "d",
    "pipeline_id": "s",
    "idempotency_key": "k",
    "work_key": "w",
    "work_base": "b",
    "revision": 0,
    "trigger_type": "manual",
    "window_spec": "P1D",
    "window_start_ms": 0,
    "window_end_ms": DAY_MS,
    "partition": None,
    "pipeline_version": "v",
    "status": "failed",
    "attempts": 1,
    "fence": 1,
    "start_time_ms": NOW_MS - HOUR_MS,
}


def _run(given: dict[str, Any] | None) -> Run | None:
    return None if given is None else msgspec.convert({**_BLANK, **given}, Run)


# --- may it start? -------------------------------------------------------------------


def _may_start(given: dict[str, Any]) -> Any:
    facts = msgspec.convert({**given["facts"], "corrected": None}, StartFacts)
    facts = msgspec.structs.replace(facts, corrected=_run(given["facts"].get("corrected")))
    asked = msgspec.convert(given["asked"], Asked)
    decision = may_start(asked, _run(given["run"]), facts, given["now_ms"])
    return {
        **{name: getattr(decision, name) for name in ("kind", "code", "reason", "revision", "how", "grant")},
        "until_ms": decision.until_ms,
        "blocked_by": decision.blocked_by,
        "run_id": decision.run.run_id if decision.run else None,
    }


_OPEN: dict[str, Any] = {"allowed": True, "results": []}


def _gate(gate: str, **more: Any) -> dict[str, Any]:
    blocker = {"gate": gate, "allowed": False, "reason": f"The {gate} is against it.", **more}
    return {"allowed": False, "results": [blocker], "first_blocker": blocker}


def _asked(by: str = "machine", **more: Any) -> dict[str, Any]:
    trigger = {"type": "manual", "source_id": "s", "dataset_id": "d", "actor": "ada"}
    trigger |= {
        name: more.pop(name) for name in ("rationale", "ticket", "force", "correction") if name in more
    }
    return _told({"trigger": _told(trigger), "by_person": by == "person", **more})


def _failed(**more: Any) -> dict[str, Any]:
    return {
        name: _BLANK[name]
        for name in (
            "run_id",
            "dataset_id",
            "revision",
            "trigger_type",
            "status",
            "attempts",
            "start_time_ms",
        )
    } | {"error_code": "KFM404", "fingerprint": None, "correction": None, **more}


def _state(fate: str = "retry", reason: str = "retry", **more: Any) -> dict[str, Any]:
    return {
        "run_id": "r",
        "attempt": 1,
        "grants": 1,
        "grant_attempts": 1,
        "granted_at_ms": NOW_MS - HOUR_MS,
        "not_before_ms": None,
        "fate": fate,
        "error_class": "HTTP_503",
        "reason": reason,
        "updated_at_ms": NOW_MS - HOUR_MS,
        "fingerprint": "sha256:1",
        "day_grants": 0,
        **more,
    }


def _told(known: dict[str, Any]) -> dict[str, Any]:
    """Without what is as it is unless it is said."""
    usual: dict[str, Any] = {"idempotent": True, "counts": True}
    return {
        name: one
        for name, one in known.items()
        if one != usual.get(name, False) and one not in (None, "", [])
    }


def _said(kind: str, code: str, reason: str, **more: Any) -> dict[str, Any]:
    said = {"kind": kind, "code": code, "reason": reason, "revision": 0, "how": "start", "grant": ""}
    return said | {"until_ms": 0, "blocked_by": "", "run_id": "r", **more}


def _case(
    name: str,
    pin: dict[str, Any],
    asked: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **facts: Any,
) -> Case:
    given = {"asked": asked or _asked(), "run": run, "facts": {"gates": _OPEN, **facts}, "now_ms": NOW_MS}
    return Case(name, given, pin, HAND)


_FIRST = _said("admitted", "first-time", "This work has not been done yet.", run_id=None)
_WHY = "Attempt 1 failed with KFM404."
_AGAIN = _said("admitted", "attempt-failed", _WHY, how="restart")
_LATER_MS = NOW_MS + 60_000
_BACKOFF = "by the backoff of its trigger, with jitter"
_WAITS = _said(
    "waits",
    "attempt-failed",
    f"It waits until 2026-09-21 14:14:20 UTC, {_BACKOFF}.",
    until_ms=_LATER_MS,
    blocked_by="retry",
)
_PROMISED = _state(not_before_ms=_LATER_MS)
_SPENT = _state("spent", "attempts-spent", grant_attempts=6)
_USED = f"{_WHY} 6 attempts since 2026-09-21T13:13:20Z used up its budget."
_ACTED = f"{_WHY} It may have acted outside (send): a person has to see what it did."
_HELD = f"{_WHY} It is not retried automatically: its attempts are used up. Upstream is unchanged since."
_DONE = _failed(status="success", fingerprint="sha256:1", error_code=None, revision=2)
_OPENS = {"revision": 3}

_BY_HAND = [
    _case("never done", _FIRST),
    _case(
        "running",
        _said("busy", "running", "The same work is running."),
        run=_failed(status="running"),
        is_live=True,
    ),
    _case(
        "its process is gone",
        _said("admitted", "attempt-interrupted", "Attempt 1 was interrupted.", how="restart"),
        run=_failed(status="running"),
    ),
    _case("done, not compared", _said("compare", "compared", "Done as revision 2.", revision=2), run=_DONE),
    _case(
        "done, unchanged",
        _said("duplicate", "unchanged", "Upstream is unchanged since revision 2.", revision=2),
        run=_DONE,
        fingerprint="sha256:1",
    ),
    _case(
        "done, changed",
        _said("admitted", "upstream-changed", "Upstream has changed: revision 3 opens.", **_OPENS),
        run=_DONE,
        fingerprint="sha256:2",
    ),
    _case(
        "done, not published any more",
        _said("admitted", "not-published", "Nothing is published: revision 3 opens.", **_OPENS),
        run=_DONE,
        fingerprint="sha256:1",
        reopens={"code": "not-published", "text": "Nothing is published."},
    ),
    _case(
        "forced",
        _said("admitted", "forced", "Forced: revision 3 opens.", **_OPENS),
        _asked(force=1),
        run=_DONE,
    ),
    _case(
        "another dataset",
        _said("admitted", "dataset-changed", "The source feeds d now, not e: revision 3 opens.", **_OPENS),
        run={**_DONE, "dataset_id": "e"},
    ),
    _case(
        "a correction",
        _said("admitted", "correction", "Correction c-1: revision 3 opens.", **_OPENS),
        _asked(correction="c-1"),
        run=_DONE,
    ),
    _case(
        "a correction that was applied",
        _said("duplicate", "correction-applied", "Correction c-1 was applied as revision 2.", revision=2),
        _asked(correction="c-1"),
        run=_DONE,
        corrected=_DONE,
    ),
    _case("failed, promised later, a machine", _WAITS, run=_failed(), state=_PROMISED),
    _case("failed, promised later, a person", _AGAIN, _asked("person"), _failed(), state=_PROMISED),
    _case("failed, promised and due", _AGAIN, run=_failed(), state=_state(not_before_ms=NOW_MS)),
    _case(
        "failed, promised and long due", _AGAIN, run=_failed(), state=_state(not_before_ms=NOW_MS - DAY_MS)
    ),
    _case("failed, nothing decided", _AGAIN, run=_failed()),
    _case(
        "failed, decided about an earlier attempt", _AGAIN, run=_failed(), state=_state("spent", attempt=0)
    ),
    _case("stopped by a person", _AGAIN, run=_failed(), state=_state("spent", "stopped")),
    _case("given up, not compared", _said("compare", "compared", _WHY), run=_failed(), state=_SPENT),
    _case(
        "given up, inputs as before",
        _said("refused", "quarantined", _HELD, blocked_by="quarantine"),
        run=_failed(),
        state=_SPENT,
        fingerprint="sha256:1",
    ),
    _case(
        "given up, inputs changed",
        _said(
            "admitted", "inputs-changed", f"{_WHY} Upstream has changed since.", how="restart", grant="inputs"
        ),
        run=_failed(),
        state=_SPENT,
        fingerprint="sha256:2",
    ),
    _case(
        "given up, inputs changed too often today",
        _said(
            "refused",
            "budget-spent",
            f"{_WHY} Upstream has changed, and the work had all grants of the day (12).",
            blocked_by="budget",
        ),
        run=_failed(),
        state={**_SPENT, "day_grants": 12},
        fingerprint="sha256:2",
    ),
    _case(
        "given up, a person, past the budget",
        _said("refused", "budget-spent", _USED, blocked_by="budget"),
        _asked("person"),
        _failed(),
        state=_SPENT,
        fingerprint="sha256:1",
    ),
    _case(
        "given up, a person, past the budget, not compared",
        _said("compare", "compared", _WHY),
        _asked("person"),
        _failed(),
        state=_SPENT,
    ),
    _case(
        "given up, a person, inputs changed",
        _said(
            "admitted", "inputs-changed", f"{_WHY} Upstream has changed since.", how="restart", grant="inputs"
        ),
        _asked("person"),
        _failed(),
        state=_SPENT,
        fingerprint="sha256:2",
    ),
    _case(
        "given up, a person who answers",
        _said(
            "admitted",
            "budget-spent",
            f"{_WHY} Retried past its budget by ada (T-1).",
            how="restart",
            grant="governed",
        ),
        _asked("person", rationale="mended", ticket="T-1"),
        _failed(),
        state=_SPENT,
    ),
    _case(
        "given up, granted for the last time",
        _said(
            "refused",
            "budget-spent",
            f"{_USED} It was granted 5 times; only a new revision (--force) goes on.",
            blocked_by="budget",
        ),
        _asked("person", rationale="mended", ticket="T-1"),
        _failed(),
        state={**_SPENT, "grants": 5},
        fingerprint="sha256:1",
    ),
    _case(
        "quarantined, a person, within the budget",
        _AGAIN,
        _asked("person"),
        _failed(),
        state=_state("quarantine", "non-retryable"),
    ),
    _case(
        "its time is over, a person",
        _said(
            "admitted",
            "attempt-failed",
            f"{_WHY} Its time is over, its attempts are not.",
            how="restart",
            grant="late",
        ),
        _asked("person"),
        _failed(),
        state=_state("spent", "budget-spent", granted_at_ms=NOW_MS - 7 * HOUR_MS),
    ),
    _case(
        "acted outside, a machine",
        _said("refused", "acted", _ACTED, blocked_by="acts"),
        run=_failed(),
        acts=["send"],
    ),
    _case(
        "acted outside, a person without a reason",
        _said("refused", "acted", _ACTED, blocked_by="acts"),
        _asked("person"),
        _failed(),
        acts=["send"],
    ),
    _case(
        "acted outside, a person who answers",
        _AGAIN,
        _asked("person", rationale="seen"),
        _failed(),
        acts=["send"],
    ),
    _case(
        "acted outside, its own promised attempt",
        _said("refused", "acted", _ACTED, blocked_by="acts"),
        _asked("person", rationale="seen", promised=True, can_wait=True),
        _failed(),
        acts=["send"],
    ),
    _case(
        "acted outside, released by two persons",
        _AGAIN,
        run=_failed(),
        acts=["send"],
        state=_state(reason="granted", not_before_ms=NOW_MS),
    ),
    _case(
        "bound to another plan",
        _said(
            "admitted",
            "bound",
            "Revision 0 publishes what was approved for it, or nothing: revision 1 opens.",
            revision=1,
        ),
        run=_failed(),
        bound="sha256:plan",
    ),
    _case("bound to this plan", _AGAIN, _asked(plan="sha256:plan"), _failed(), bound="sha256:plan"),
    _case(
        "a switch, nothing stored",
        _said("refused", "blocked", "The switch is against it.", blocked_by="gate:switch", run_id=None),
        gates=_gate("switch"),
    ),
    _case(
        "a circuit",
        _said(
            "waits",
            "first-time",
            "It waits until 2026-09-21 14:14:20 UTC, because its provider's circuit is open until then.",
            until_ms=_LATER_MS,
            blocked_by="circuit:example.org",
            run_id=None,
        ),
        _asked(can_wait=True, name="q"),
        circuit={"provider": "example.org", "until_ms": _LATER_MS},
    ),
    _case(
        "the next run of its schedule is near",
        {
            **_WAITS,
            "reason": "It waits until 2026-09-21 14:14:20 UTC, together with the next run of its schedule, "
            "which its retries never overlap.",
            "blocked_by": "next-run",
        },
        _asked(promised=True, can_wait=True),
        _failed(),
        state=_state(not_before_ms=NOW_MS),
        next_run_ms=_LATER_MS,
    ),
]


def _drawn(seed: int) -> Case:
    """Any facts at all: whatever a starter reads, both languages decide alike."""
    random = Random(seed)
    asked = _asked(
        random.choice(("machine", "person")),
        rationale=random.choice((None, "", "mended")),
        ticket=random.choice((None, "T-1")),
        force=random.choice((0,) * 19 + (2,)),
        correction=random.choice((None,) * 9 + ("c-1",)),
        name=random.choice(("", "q1", "q2")),
        can_wait=random.random() < 0.5,
        promised=random.random() < 0.3,
        plan=random.choice((None, None, "sha256:plan")),
    )
    facts: dict[str, Any] = {
        "gates": _drawn_gates(random),
        "is_live": random.random() < 0.1,
        "acts": random.choice(([],) * 9 + (["send"], ["pipeline p.py:f", "send"])),
        "idempotent": random.random() < 0.9,
        "bound": random.choice((None,) * 9 + ("sha256:plan",)),
        "fingerprint": random.choice((None, "sha256:1", "sha256:2")),
        "next_run_ms": random.choice((None, None, NOW_MS - 1, NOW_MS + HOUR_MS)),
    }
    attempts = random.choice((1, 1, 2, 5, 6, 9))
    if random.random() < 0.8:
        facts["state"] = _drawn_state(random, attempts)
    if random.random() < 0.15:
        facts["reopens"] = {"code": "description-changed", "text": "It is described otherwise..."}
    if random.random() < 0.15:
        facts["circuit"] = {"provider": "p", "until_ms": NOW_MS + random.randrange(DAY_MS)}
    if "correction" in asked["trigger"] and random.random() < 0.5:
        facts["corrected"] = _failed(
            status=random.choice(("success", "failed")), run_id="c", correction="c-1"
        )
    run = _failed(
        status=random.choice(("failed", "failed", "failed", "running", "success")),
        attempts=attempts,
        revision=random.choice((0, 1, 4)),
        trigger_type=random.choice(("manual", "cron", "webhook", "upstream-event")),
        dataset_id=random.choice(("d",) * 9 + ("e",)),
        correction=random.choice((None, None, "c-1")),
        fingerprint=random.choice((None, "sha256:1")),
        start_time_ms=NOW_MS - random.choice((1, HOUR_MS, DAY_MS)),
    )
    known = _told(run) if random.random() < 0.95 else None
    given = {"asked": asked, "run": known, "facts": _told(facts), "now_ms": NOW_MS}
    return Case(f"drawn {seed}", given)


def _drawn_gates(random: Random) -> dict[str, Any]:
    if random.random() < 0.9:
        return {**_OPEN, "approval": ["a", "sha256:a"]} if random.random() < 0.15 else _OPEN
    gate = random.choice(("switch", "freeze", "care"))
    return _gate(
        gate, **({"until_ms": NOW_MS + HOUR_MS} if gate == "freeze" and random.random() < 0.8 else {})
    )


def _drawn_state(random: Random, attempts: int) -> dict[str, Any]:
    fate = random.choice(("retry", "spent", "quarantine"))
    reasons = {
        "retry": ("retry", "retry-after", "circuit-open", "granted", "next-run"),
        "spent": (
            "attempts-spent",
            "attempts-spent",
            "budget-spent",
            "stopped",
            "drifted",
            "of another version",
        ),
        "quarantine": ("non-retryable", "attempts-spent"),
    }
    return _state(
        fate,
        random.choice(reasons[fate]),
        attempt=random.choice((attempts, attempts, attempts, attempts - 1)),
        grants=random.choice((1, 2, 5)),
        grant_attempts=random.choice((0, 1, 2, 6)),
        granted_at_ms=NOW_MS - random.choice((0, HOUR_MS, 7 * HOUR_MS, 2 * DAY_MS)),
        not_before_ms=random.choice((None, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + HOUR_MS)),
        fingerprint=random.choice((None, "sha256:1", "sha256:2")),
        day_grants=random.choice((0, 1, 12)),
    )


MAY_START = Family(
    "may_start",
    "May work start? `asked` asks for the work whose newest run is `run`; `facts` were read before. "
    "What is left out of a record has no part in the decision.",
    _may_start,
    [*_BY_HAND, *(_drawn(seed) for seed in range(DRAWN))],
)

# --- what becomes of a run -----------------------------------------------------------


def _judged(given: dict[str, Any]) -> Any:
    run, prior = _run(given["run"]), given.get("prior")
    assert run is not None
    state = msgspec.convert(prior, RetryState) if prior else None
    if given["ask"] == "granted":
        made = granted(run, state, given["now_ms"], fingerprint=given.get("fingerprint"))
    else:
        named = ("asked_ms", "idempotent", "acted", "counts", "stopped", "lasts_ms", "fingerprint")
        made = judge(
            run,
            msgspec.convert(given["failure"], Classification),
            state,
            now_ms=given["now_ms"],
            unit_random=given["unit_random"],
            **{name: given[name] for name in named if name in given},
        )
    return msgspec.to_builtins(made)


def _drawn_end(seed: int) -> Case:
    random = Random(seed)
    attempts = random.choice((1, 2, 5, 6, 9))
    run = _failed(
        attempts=attempts,
        trigger_type=random.choice(("manual", "cron", "webhook", "upstream-event")),
        start_time_ms=NOW_MS - random.choice((1, HOUR_MS, 7 * HOUR_MS)),
    )
    prior = _drawn_state(random, attempts) if random.random() < 0.7 else None
    given: dict[str, Any] = {"run": _told(run), "prior": prior, "now_ms": NOW_MS}
    given["fingerprint"] = random.choice((None, "sha256:1", "sha256:2"))
    if random.random() < 0.2:
        return Case(f"granted {seed}", _told({"ask": "granted", **given}))
    classes = ({"retryable": True, "error_class": "HTTP_503"}, {"retryable": False, "error_class": "schema"})
    given |= {
        "failure": random.choice((*classes, {"retryable": True, "error_class": "circuit-open"})),
        "unit_random": random.choice((0.0, 0.25, 0.5)),
        "asked_ms": random.choice((None, None, 1, 100_000, 7 * HOUR_MS)),
        "idempotent": random.random() < 0.8,
        "acted": random.random() < 0.2,
        "counts": random.random() < 0.8,
        "stopped": random.random() < 0.1,
        "lasts_ms": random.choice((0, 60_000)),
    }
    return Case(f"judged {seed}", {**_told({"ask": "judge", **given}), "unit_random": given["unit_random"]})


JUDGEMENTS = Family(
    "judgements",
    "What becomes of a run whose attempt has ended without success, and the state that a new grant gives it.",
    _judged,
    [_drawn_end(seed) for seed in range(DRAWN // 2)],
)

FAMILIES = [MAY_START, JUDGEMENTS]
