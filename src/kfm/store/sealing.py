"""One sealer at a time: the head of the audit chain is held while rows are read and their root is entered."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.core.evidence import Letter
from kfm.core.records import GovernanceEntry
from kfm.core.sealing import EVENTS, UNITS, Row, Seal, SealedPage, Span, details, from_details, sealed
from kfm.store import evidence_rows, governance, rows
from kfm.store.session import Session

KIND = "seal"


def seal(session: Session, actor: str, limit: int, stream: str = EVENTS) -> Seal | None:
    """Enter the root of the rows that no seal covers yet; None if there are none."""
    governance.hold(session)
    newest = session.one("governance.list", kind=KIND, subject=stream, row_limit=1)
    before = from_details(stream, rows.entry_from(newest).details) if newest else None
    found = [row for span in (before.holes if before else ()) for row in _rows(session, stream, span, limit)]
    found += _rows(session, stream, ((before.high if before else 0) + 1, 2**62), limit)
    if not found:
        return None
    made = sealed(stream, before, found[:limit])
    entry = GovernanceEntry(
        kind=KIND, subject=stream, actor=actor, recorded_at_ms=session.now_ms(), details=details(made)
    )
    governance.append(session, [entry])
    return made


def _rows(session: Session, stream: str, span: Span, limit: int) -> list[Row]:
    found: Sequence[Row] = (pages if stream == UNITS else between)(session, span, limit)
    return list(found)


def between(session: Session, span: Span, limit: int) -> list[Letter]:
    first, last = span
    found = session.all("outbox.between", first_number=first, last_number=last, row_limit=limit)
    return [evidence_rows.letter_from(row) for row in found]


def pages(session: Session, span: Span, limit: int) -> list[SealedPage]:
    """Of the history of units."""
    first, last = span
    found = session.all("unit_pages.between", first_number=first, last_number=last, row_limit=limit)
    return [SealedPage(*row) for row in found]
