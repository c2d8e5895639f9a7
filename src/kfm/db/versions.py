"""Versions and their pointers, written by the transaction that makes one the head."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from kfm.db import rows
from kfm.db.session import Session
from kfm.model.records import GovernanceEntry, Manifest


def placed(entry: GovernanceEntry, sequence: int, policy_epoch: int, now_ms: int) -> GovernanceEntry:
    """What the version was given in this transaction, in the chain, too: else its row could tell another."""
    if entry.kind != "promotion":
        return entry
    details = {**entry.details, "sequence": sequence, "policy_epoch": policy_epoch}
    return replace(entry, recorded_at_ms=now_ms, details=details)


class MadeVersion(NamedTuple):
    """A version with its number, and what made it: a run, or a change by a person."""

    dataset_id: str
    sequence: int
    version_id: str
    run_id: str
    fence: int
    policy_epoch: int


def insert_version(session: Session, made: MadeVersion, manifest: Manifest, now_ms: int) -> bool:
    """The version and its pointer; False if its number is taken."""
    session.all(
        "versions.insert",
        version_id=made.version_id,
        dataset_id=made.dataset_id,
        manifest=rows.text_of(manifest),
    )
    return session.one("promotions.insert", promoted_at_ms=now_ms, **made._asdict()) is not None
