"""The audit log, newest first: who decided what, and why."""

from __future__ import annotations

import re

import msgspec

from kfm.model.errors import UsageError
from kfm.model.records import GovernanceEntry, Record
from kfm.web.console.visit import ROWS, Paging, TypedFilter, Visit, paged, short, typed

FILTERS = ("kind", "subject", "before", "page")
DETAILS_CHARS_MAX = 600
_RUN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class AuditRow(Record, frozen=True):
    number: int | None
    at_ms: int
    kind: str
    kind_href: str
    subject: str
    subject_href: str | None
    actor: str
    rationale: str
    ticket: str
    details: str


class AuditView(Record, frozen=True):
    filters: tuple[TypedFilter, ...]
    rows: tuple[AuditRow, ...]
    paging: Paging
    clear: str
    entries: int
    head: str


def view(visit: Visit) -> AuditView:
    kind, subject = visit.query.get("kind"), visit.query.get("subject")
    last, head = visit.reader.chain_head()
    if kind or subject:
        rows, paging = _filtered(visit, kind, visit.visibility.meant(subject))
    else:
        rows, paging = _chained(visit, last)
    return AuditView(
        filters=(
            typed("kind", "Kind", kind),
            typed("subject", "Subject", subject),
        ),
        rows=tuple(rows),
        paging=paging,
        clear=visit.href("audit"),
        entries=last,
        head=head,
    )


def _chained(visit: Visit, last: int) -> tuple[list[AuditRow], Paging]:
    """By their places in the chain."""
    text = visit.query.get("before", str(last + 1))
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise UsageError("`before` is the number of an entry.")
    before = min(int(text), last + 1)
    after = max(before - 1 - ROWS, 0)
    found = [link for link in visit.reader.chain(after=after, limit=ROWS) if link.number < before]
    rows = [_row(visit, link.entry, link.number) for link in reversed(found)]
    newer = min(before + ROWS, last + 1)
    return rows, Paging(
        newer=visit.with_query(before=newer if newer <= last else None) if before <= last else None,
        older=visit.with_query(before=after + 1) if after > 0 else None,
        summary=f"entries {rows[0].number} to {rows[-1].number} of {last}" if rows else "no entries",
    )


def _filtered(visit: Visit, kind: str | None, subject: str | None) -> tuple[list[AuditRow], Paging]:
    skipped = (visit.page() - 1) * ROWS
    found = visit.reader.governance(kind=kind, subject=subject, limit=skipped + ROWS + 1)[skipped:]
    return [_row(visit, each, None) for each in found[:ROWS]], paged(visit, len(found), "entries")


def _row(visit: Visit, recorded: GovernanceEntry, number: int | None) -> AuditRow:
    entry = visit.visibility.record(recorded)
    details = msgspec.json.encode(
        {name: each for name, each in entry.details.items() if each is not None}
    ).decode()
    is_run = _RUN.fullmatch(entry.subject) is not None
    return AuditRow(
        number=number,
        at_ms=entry.recorded_at_ms,
        kind=entry.kind,
        kind_href=visit.href("audit", kind=entry.kind),
        subject=f"run {short(entry.subject)}" if is_run else entry.subject,
        subject_href=visit.run(entry.subject) if is_run else None,
        actor=entry.actor,
        rationale=entry.rationale or "",
        ticket=entry.ticket or "",
        details="" if details == "{}" else details[:DETAILS_CHARS_MAX],
    )
