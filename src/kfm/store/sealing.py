"""One sealer at a time: the head of the audit chain is held while rows are read and their root is entered."""

from __future__ import annotations

from kfm.core.evidence import Letter
from kfm.core.records import GovernanceEntry
from kfm.core.sealing import Seal, Span, details, from_details, sealed
from kfm.store import evidence_rows, governance, rows
from kfm.store.session import Session

KIND = "seal"
STREAM = "outbox"


def seal(session: Session, actor: str, limit: int) -> Seal | None:
    """Enter the root of the rows that no seal covers yet; None if there are none."""
    governance.hold(session)
    newest = session.one("governance.list", kind=KIND, subject=STREAM, row_limit=1)
    before = from_details(STREAM, rows.entry_from(newest).details) if newest else None
    found = [letter for span in (before.holes if before else ()) for letter in between(session, span, limit)]
    found += between(session, ((before.high if before else 0) + 1, 2**62), limit)
    if not found:
        return None
    made = sealed(STREAM, before, found[:limit])
    entry = GovernanceEntry(
        kind=KIND, subject=STREAM, actor=actor, recorded_at_ms=session.now_ms(), details=details(made)
    )
    governance.append(session, [entry])
    return made


def between(session: Session, span: Span, limit: int) -> list[Letter]:
    first, last = span
    found = session.all("outbox.between", first_number=first, last_number=last, row_limit=limit)
    return [evidence_rows.letter_from(row) for row in found]
