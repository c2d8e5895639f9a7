"""Duties: work on the ledger that every process offers to do, and one at a time does."""

from __future__ import annotations

from typing import Literal

from kfm.db.session import Session

Duty = Literal["lapsed leases", "figures", "seals of outbox", "seals of units"]


def take(session: Session, duty: Duty) -> bool:
    """Is it ours until this transaction ends? False: another process has it now, and does the work."""
    row = session.one("duties.take", duty=duty)
    assert row is not None
    return bool(row[0])


def wait_for(session: Session, duty: Duty) -> None:
    """It is ours until this transaction ends, once the process that has it now is done."""
    session.one("duties.wait_for", duty=duty)
