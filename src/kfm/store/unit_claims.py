"""Claims of units: a batch of one lane under one lease, unless the gates have to be asked again first."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.core.wal import Claim, Claimed, Finish, Taken
from kfm.store import governance, unit_pages
from kfm.store.session import Row, Session
from kfm.store.unit_counts import Tally
from kfm.store.unit_intake import Hands, insert_new


def claim(
    session: Session, wish: Claim, now_ms: int, tally: Tally, fresh: Sequence[Taken] = ()
) -> tuple[list[Claimed], list[Taken], int]:
    """What waits comes first; new units, which are taken in here, have the room that is left.

    Those that are not new come back; and how many had waited.
    """
    lane = wish.lane
    created = unit_pages.begin(session) if fresh else 0  # before the other, as it is in their histories
    number = unit_pages.begin(session)
    limit = 1 if lane.alone else wish.limit
    # Nobody waits there before the first is due, so nobody is looked for: that saves a journey to a server.
    found = _waiting(session, wish, limit, now_ms, number) if lane.due_ms <= now_ms else []
    claimed = [Claimed(*row) for row in found]
    waited = len(claimed)
    hands = Hands(wish, limit - waited, created, number)
    known, ours = insert_new(session, fresh, now_ms, tally, hands)
    claimed += ours
    if claimed:
        members = [(one.wal_id, one.version, one.attempts) for one in claimed]
        unit_pages.write(
            session, number, "claimed", "in_progress", members, at_ms=now_ms, worker_id=wish.worker_id
        )
        tally.moved(lane.dataset, "pending", "in_progress", len(claimed))
    return claimed, known, waited


def _waiting(session: Session, wish: Claim, limit: int, now_ms: int, number: int) -> list[Row]:
    lane = wish.lane
    return session.all(
        "units.claim",
        dataset=lane.dataset,
        provider=lane.provider,
        alone=lane.alone,
        worker_id=wish.worker_id,
        ingest_run_id=wish.ingest_run_id,
        now_ms=now_ms,
        lease_until_ms=now_ms + wish.lease_ms,
        row_limit=limit,
        trail=f" {number}",
    )


def is_outdated(session: Session, finish: Finish | None, claim: Claim | None) -> bool:
    """Have the gates to be asked again, since a switch was set meanwhile?"""
    asked = {one.policy_epoch for one in (finish, claim) if one is not None} - {None}
    return bool(asked) and asked != {governance.held_epoch(session)}
