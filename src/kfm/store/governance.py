"""Governance: the policy epoch, the switches, the ledger of what people and gates decided."""

from __future__ import annotations

from collections.abc import Iterable

from kfm.core.records import GovernanceEntry, Switch
from kfm.store import rows
from kfm.store.session import Session


def held_epoch(session: Session) -> int:
    """The policy epoch, which no one moves until this transaction ends."""
    row = session.one("policy.epoch_for_share")
    assert row is not None
    return int(row[0])


def set_switch(session: Session, switch: Switch) -> int:
    row = session.one("policy.advance")
    assert row is not None
    session.all("switches.set", **rows.switch_parameters(switch))
    return int(row[0])


def append(session: Session, entries: Iterable[GovernanceEntry]) -> None:
    for entry in entries:
        session.all("governance.append", **rows.entry_parameters(entry))
