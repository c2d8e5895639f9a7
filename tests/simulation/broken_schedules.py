"""Patches of schedules and requests: what happens to instants if one guard is missing."""

from __future__ import annotations

from tests.simulation.conditions import CRASHES, QUIET, STALLS, Patch
from tests.simulation.scheduler import Chances

_CORE = "kfm.model.scheduled_times"
_STORE = "kfm.db.schedules"
# Longer than a claim lasts.
LATE = Chances(crash=0.0, stall=0.02, jump=0.0, fail_before=0.0, fail_after=0.0, stall_ms=90_000)

SCHEDULES = (
    Patch(
        "a state is moved without comparing",
        _STORE,
        (),
        sql=(("schedules.move", "AND version = :seen_version", "AND :seen_version > 0"),),
        chances=STALLS,
    ),
    Patch(
        "an instant's request is not written with it",
        _STORE,
        (("fresh = accept(session, accounting.requests)", "fresh = set()"),),
        chances=QUIET,
        rule="an instant has its request",
    ),
    Patch(
        "what becomes no request leaves no row",
        _STORE,
        (("for one in accounting.instants]", "for one in accounting.instants if one.request_id]"),),
        chances=QUIET,
        rule="every instant is accounted for",
    ),
    Patch(
        "a pause is not heard",
        _CORE,
        (
            (
                'return state.paused_at_ms is not None and schedule.while_paused == "hold"',
                "return False",
            ),
        ),
        chances=QUIET,
        rule="what is held is not decided",
    ),
    Patch(
        "overlap is not looked at",
        _CORE,
        (('places = 1 if overlap == "skip" else 2', "places = 99"),),
        chances=QUIET,
        rule="overlap is limited",
    ),
    Patch(
        "a step passes over instants that wait for their jitter",
        _CORE,
        (
            (
                "cursor_ms=max(state.cursor_ms, self.rows[-1].last_ms if self.rows else 0)",
                "cursor_ms=max(state.cursor_ms, self._now_ms)",
            ),
        ),
        chances=QUIET,
        rule="every instant is accounted for",
    ),
    Patch(
        "requests of the dead stay theirs",
        "kfm.db.requests",
        (),
        sql=(("requests.release", "AND state = 'running'", "AND state = 'lost'"),),
        chances=CRASHES,
        rule="every request ends",
    ),
    Patch(
        "a process that lost a request ends it all the same",
        "kfm.db.requests",
        (),
        sql=(
            (
                "requests.settle",
                "AND state = 'running' AND claimed_by = :worker_id",
                "AND :worker_id <> ''",
            ),
        ),
        chances=LATE,
        rule="an end is the end",
    ),
)
