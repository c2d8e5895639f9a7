"""A ledger of schedules in memory, and what the tests of the accounting share."""

from __future__ import annotations

from msgspec.structs import replace

from kfm.model.requests import UpdateRequest
from kfm.model.scheduled_times import account
from kfm.model.schedules import Accounting, Instant, Schedule, ScheduleState, instants
from kfm.model.settings import SourceSettings

SOURCE = SourceSettings(id="s", dataset="d", kind="files")
NOW_MS = 1_773_000_000_000  # on the hour
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
LATE_MS = 60_000


class Book:
    """A ledger in memory with the one promise that the accounting needs: compare and swap."""

    def __init__(self) -> None:
        self.state: ScheduleState | None = None
        self.rows: list[Instant] = []
        self.requests: dict[str, UpdateRequest] = {}

    def unsettled(self) -> list[UpdateRequest]:
        return [one for one in self.requests.values() if not one.is_settled]

    def account(self, step: Accounting) -> bool:
        seen = None if step.seen is None else step.seen.version
        if seen != (None if self.state is None else self.state.version):
            return False
        self.state = step.state
        self.rows.extend(step.instants)
        for one in step.requests:
            assert one.request_id not in self.requests, "fired twice"
            self.requests[one.request_id] = one
        for request_id, reason in step.cancels:
            one = self.requests[request_id]
            ended = {"state": "cancelled"} if one.state != "running" else {}
            self.requests[request_id] = replace(one, cancel=reason, **ended)
        return True

    def look(self, schedule: Schedule, now_ms: int, late_ms: int = LATE_MS) -> Accounting | None:
        step = account(schedule, SOURCE, self.state, self.unsettled(), now_ms, late_ms=late_ms, actor="serve")
        if step is not None:
            assert self.account(step)
        return step

    def settle(self, request_id: str) -> None:
        self.requests[request_id] = replace(self.requests[request_id], state="done", outcome="success")

    def pause(self, at_ms: int | None) -> None:
        assert self.state is not None
        self.state = replace(self.state, paused_at_ms=at_ms, version=self.state.version + 1)

    def fates(self, schedule: Schedule, start_ms: int, end_ms: int) -> dict[int, list[Instant]]:
        return {
            at_ms: [row for row in self.rows if row.instant_ms <= at_ms <= row.last_ms]
            for at_ms in instants(schedule, start_ms, end_ms)
        }

    def became(self, schedule: Schedule, start_ms: int, end_ms: int) -> list[str]:
        return [row.became for (row,) in self.fates(schedule, start_ms, end_ms).values()]


def every(length_ms: int, **more: object) -> Schedule:
    return Schedule(id="i", source="s", every_ms=length_ms, **more)  # type: ignore[arg-type]


def seen(schedule: Schedule, at_ms: int = NOW_MS) -> Book:
    """A book in which a schedule was first seen at a moment."""
    book = Book()
    assert book.look(schedule, at_ms) is not None
    return book
