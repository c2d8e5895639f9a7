"""Claims of units: a batch of one lane under one lease, unless the gates have to be asked again first."""

from __future__ import annotations

from kfm.core.wal import Claim, Claimed, Finish
from kfm.store import governance, unit_pages
from kfm.store.session import Session
from kfm.store.unit_counts import Tally


def claim(session: Session, wish: Claim, now_ms: int, tally: Tally) -> list[Claimed]:
    lane, number = wish.lane, unit_pages.begin(session)
    found = session.all(
        "units.claim",
        dataset=lane.dataset,
        provider=lane.provider,
        alone=lane.alone,
        worker_id=wish.worker_id,
        ingest_run_id=wish.ingest_run_id,
        now_ms=now_ms,
        lease_until_ms=now_ms + wish.lease_ms,
        row_limit=1 if lane.alone else wish.limit,
        trail=f" {number}",
    )
    claimed = [Claimed(*row) for row in found]
    if claimed:
        members = [(one.wal_id, one.version, one.attempts) for one in claimed]
        unit_pages.write(
            session, number, "claimed", "in_progress", members, at_ms=now_ms, worker_id=wish.worker_id
        )
        tally.moved(lane.dataset, "pending", "in_progress", len(claimed))
    return claimed


def is_outdated(session: Session, finish: Finish | None, claim: Claim | None) -> bool:
    """Have the gates to be asked again, since a switch was set meanwhile?"""
    asked = {one.policy_epoch for one in (finish, claim) if one is not None} - {None}
    return bool(asked) and asked != {governance.held_epoch(session)}
