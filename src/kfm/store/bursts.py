"""Members of bursts, gathered while their window is open; bursts, until a run has taken them over."""

from __future__ import annotations

from collections.abc import Callable

from kfm.core.bursts import Burst, BurstState, Member, gathered
from kfm.core.records import Window
from kfm.store.session import Database, Session

MEMBERS_MAX = 100_000  # of one burst; what is beyond makes the next
PeriodOf = Callable[[str, int], Window]  # of a source and an instant


class Bursts:
    """Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close_due(self, window_ms: int, period: PeriodOf) -> int:
        """Close the windows that have been open long enough; how many bursts that made."""
        session = self._database.session
        now_ms = session.now_ms()
        due = [
            source_id
            for source_id, oldest_ms in session.all("burst_members.waiting")
            if oldest_ms <= now_ms - window_ms
        ]
        return sum(self._close(source_id, period) for source_id in due)

    def _close(self, source_id: str, period: PeriodOf) -> int:
        def change(session: Session) -> int:
            rows = session.all("burst_members.take", source_id=source_id, row_limit=MEMBERS_MAX)
            bursts = gathered(
                source_id,
                [Member(*row) for row in rows],
                lambda at_ms: period(source_id, at_ms),
                session.now_ms(),
            )
            for burst in bursts:
                session.all(
                    "bursts.insert",
                    burst_id=burst.burst_id,
                    source_id=source_id,
                    dataset=burst.dataset,
                    members=burst.members,
                    start_ms=burst.start_ms,
                    end_ms=burst.end_ms,
                    closed_at_ms=burst.closed_at_ms,
                )
            return len(bursts)

        return self._database.write(change)

    def claim(self, limit: int, claim_ms: int) -> list[Burst]:
        """Open ones; not handed out again before the claim ends."""
        if not self._database.session.all("bursts.due", now_ms=self._database.session.now_ms()):
            return []

        def change(session: Session) -> list[Burst]:
            now_ms = session.now_ms()
            rows = session.all("bursts.claim", now_ms=now_ms, until_ms=now_ms + claim_ms, row_limit=limit)
            return [Burst(*row) for row in rows]

        return self._database.write(change)

    def settle(
        self, burst: Burst, state: BurstState, run_id: str | None = None, not_before_ms: int = 0
    ) -> None:
        self._database.write(
            lambda session: session.all(
                "bursts.settle",
                burst_id=burst.burst_id,
                state=state,
                run_id=run_id,
                not_before_ms=not_before_ms,
            )
        )

    def recent(self, limit: int = 50) -> list[Burst]:
        return [Burst(*row) for row in self._database.session.all("bursts.list", row_limit=limit)]
