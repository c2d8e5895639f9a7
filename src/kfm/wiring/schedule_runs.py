"""Schedules without a service that stays: what has come is accounted for and run, and that is all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kfm.wiring.schedules import make_scheduler

if TYPE_CHECKING:
    from kfm.core.requests import UpdateRequest
    from kfm.core.schedules import Schedule
    from kfm.wiring.app import App

POLL_MS = 50
PATIENCE_MS = 5_000
PAGE = 500
Say = Callable[[str], None]


def run_due(
    app: App, schedules: Sequence[Schedule], say: Say, told: Callable[[UpdateRequest], None]
) -> list[UpdateRequest]:
    """Account for the instants that have come, run the requests that are due, and return when each of these
    has its end or was put off. As it ends, each is told."""
    make_scheduler(app, schedules, say).step()
    due = _due(app)
    return _worked_off(app, due, say, told) if due else []


def _due(app: App) -> list[UpdateRequest]:
    """Also those whose runner has died."""
    reader, now_ms = app.ledger.request_reader(), app.ledger.now_ms()
    found = [one for one in reader.requests(state="open", limit=PAGE) if one.not_before_ms <= now_ms]
    for one in reader.requests(state="running", limit=PAGE):
        if one.claim_until_ms <= now_ms or app.liveness.is_dead(one.claimed_by or ""):
            found.append(one)
    return sorted(found, key=lambda one: (one.not_before_ms, one.accepted_at_ms))


def _worked_off(
    app: App, due: list[UpdateRequest], say: Say, told: Callable[[UpdateRequest], None]
) -> list[UpdateRequest]:
    from kfm.wiring.service import Service, ServiceWish

    service = Service(app.loaded, (), ServiceWish(schedules=False, worker=False), say)
    reader, ended = app.ledger.request_reader(), []
    waiting = {one.request_id: one for one in due}
    service.start()
    try:
        while waiting:
            app.clock.sleep_ms(POLL_MS)
            for before in list(waiting.values()):
                now = reader.request(before.request_id) or before
                if (
                    now.is_settled
                    or now.state == "awaiting-approval"
                    or _is_put_off(now, app.ledger.now_ms())
                ):
                    del waiting[now.request_id]
                    ended.append(now)
                    told(now)
    finally:
        service.stop()
        service.join()
    return ended


def _is_put_off(request: UpdateRequest, now_ms: int) -> bool:
    """Its dataset is paused, or busy for long, or its provider left alone: the next call comes back to it."""
    return request.state == "open" and request.not_before_ms > now_ms + PATIENCE_MS
