"""Folds: what was counted of the ledger up to a place, with that place, in one row.

A fold is whole in itself: the counts and how far they go are written together, and nothing is ever added to
one that another process wrote. Of two that are made from the same fold one lands; the other is let go.
"""

from __future__ import annotations

import hashlib

from kfm.db.session import Session
from kfm.model.records import Record


class Fold(Record, frozen=True):
    """`version` is what the next one takes the place of; 0: there is none yet."""

    version: int
    body: str | None  # None: none, of another form, or not as it was written


def read(session: Session, name: str, form: str) -> Fold:
    """The fold of that name, if it is of this form. What is not as it was written counts as none."""
    row = session.one("folds.get", name=name)
    if row is None:
        return Fold(version=0, body=None)
    found_form, version, body, digest = row
    is_whole = found_form == form and digest == digest_of(body)
    return Fold(version=int(version), body=body if is_whole else None)


def keep(session: Session, name: str, form: str, seen: Fold, body: str) -> bool:
    """False: another process has kept one meanwhile."""
    row = session.one(
        "folds.put",
        name=name,
        form=form,
        body=body,
        digest=digest_of(body),
        folded_at_ms=session.now_ms(),
        seen_version=seen.version,
    )
    return row is not None


def digest_of(body: str) -> str:
    return "sha256:" + hashlib.sha256(body.encode()).hexdigest()
