"""Entries of the audit log as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.quantities import instant

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.runs import ChainLink

PAGE_ROWS = 1000
ROWS_SEEN_MAX = 20_000


def entry_document(link: Any) -> dict[str, Any]:
    """An entry with its place in the chain."""
    return {
        "number": link.number,
        "hash": link.hash,
        "kind": link.entry.kind,
        "subject": link.entry.subject,
        "actor": link.entry.actor,
        "recorded_at": instant(link.entry.recorded_at_ms),
        "rationale": link.entry.rationale,
        "ticket": link.entry.ticket,
        "details": link.entry.details,
    }


def page_of_entries(
    ledger: LedgerReader, *, kind: str | None, subject: str | None, before: int | None, limit: int
) -> tuple[list[ChainLink], int | None]:
    """Entries before a row, newest first, and the row to go on before; None: there are no more.

    Only so many rows are looked at: a page may be short, and others follow it.
    """
    end, _ = ledger.chain_head()
    end = end if before is None else min(end, before - 1)
    bottom = max(0, end - ROWS_SEEN_MAX)
    found: list[ChainLink] = []
    while end > bottom:
        after = max(bottom, end - PAGE_ROWS)
        page = [
            one
            for one in ledger.chain(after=after, limit=PAGE_ROWS)
            if one.number <= end
            if kind in (None, one.entry.kind) and subject in (None, one.entry.subject)
        ]
        found += reversed(page)
        if len(found) >= limit:
            last = found[limit - 1].number
            return found[:limit], last if last > 1 else None
        end = after
    return found, bottom + 1 if bottom > 0 else None
