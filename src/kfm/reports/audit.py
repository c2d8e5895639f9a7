"""Entries of the audit log as documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kfm.model.quantities import instant
from kfm.model.records import GovernanceEntry, Record

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.runs import ChainLink

PAGE_ROWS = 1000
ROWS_SEEN_MAX = 20_000
ASTRAY_ROWS = 500  # entries may stand so far from where their times belong


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


class EntryFilter(Record, frozen=True):
    """Which entries are asked for."""

    kind: str | None = None
    subject: str | None = None
    actor: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None  # excluded

    def takes(self, entry: GovernanceEntry) -> bool:
        return (
            self.kind in (None, entry.kind)
            and self.subject in (None, entry.subject)
            and self.actor in (None, entry.actor)
            and (self.since_ms is None or entry.recorded_at_ms >= self.since_ms)
            and (self.until_ms is None or entry.recorded_at_ms < self.until_ms)
        )


def page_of_entries(
    ledger: LedgerReader,
    asked: EntryFilter,
    *,
    before: int | None,
    limit: int,
    hides: Callable[[GovernanceEntry], bool],
) -> tuple[list[ChainLink], int | None]:
    """Entries before a row, newest first, and the row to go on before; None: there are no more.

    Only so many rows are looked at: a page may be short, and others follow it. `hides`: those whose actor is
    withheld, so that none is found by it.
    """
    end, _ = ledger.chain_head()
    end = end + 1 if before is None else min(end + 1, before)
    if asked.until_ms is not None:
        end = min(end, _number_at(ledger, asked.until_ms, end) + ASTRAY_ROWS)
    bottom = 0 if asked.since_ms is None else _number_at(ledger, asked.since_ms, end) - ASTRAY_ROWS
    found: list[ChainLink] = []
    looked = 0
    while looked < ROWS_SEEN_MAX:
        page = ledger.entries_before(end, kind=asked.kind, subject=asked.subject, limit=PAGE_ROWS)
        for one in page:
            if one.number < bottom:
                return found, None
            if asked.takes(one.entry) and not (asked.actor and hides(one.entry)):
                found.append(one)
                if len(found) == limit:
                    return found, one.number if one.number > 1 else None
        if len(page) < PAGE_ROWS:
            return found, None
        looked, end = looked + len(page), page[-1].number
    return found, end


def _number_at(ledger: LedgerReader, at_ms: int, beyond: int) -> int:
    """The first entry that was recorded at a time or later. Clocks of a fleet differ: it is near it."""
    low, high = 1, beyond
    while low < high:
        middle = (low + high) // 2
        row = ledger.entries_before(middle + 1, limit=1)
        if row and row[0].entry.recorded_at_ms < at_ms:
            low = middle + 1
        else:
            high = middle
    return low


# --- what an entry says ------------------------------------------------------------------

# What its actor did, by its kind: the first of which every fact is there. Facts may be withheld.
_SENTENCES: dict[str, tuple[str, ...]] = {
    "promotion": ("published version {sequence} of {dataset_id}", "published a version"),
    "promoted-together": ("published several windows at once",),
    "gate-refused": ("was refused: {reason}", "was refused an update"),
    "review": ("halted {dataset_id} for review: {reason}", "halted a dataset for review"),
    "force": ("forced a new revision of {dataset_id}", "forced a new revision"),
    "correction": ("ran a correction of {dataset_id}", "ran a correction"),
    "approved-attempt": ("made an attempt that was approved",),
    "quarantine": ("quarantined it: {code}, {reason}", "quarantined it"),
    "dead-letter": ("gave up after {attempts} attempts: {code}, {reason}", "gave up"),
    "release-requested": ("asked for its release from quarantine",),
    "release": ("made a release",),
    "approval-requested": ("asked for an approval: {about}", "asked for an approval"),
    "approval": ("approved: {about}", "approved a request"),
    "approval-rejected": ("rejected: {about}", "rejected a request"),
    "approval-superseded": ("superseded a request: {about}", "superseded a request"),
    "approval-revoked": ("revoked an approval",),
    "replay-requested": ("asked for an approval of a replay",),
    "replay": ("began a replay",),
    "replay-resumed": ("resumed a replay",),
    "replay-ended": ("ended a replay",),
    "role-refused": ("was refused: it needs the role {role}", "was refused for want of a role"),
    "switch": ("set the switch of {subject} to {position}", "set a switch"),
    "schedule-paused": ("paused the schedule",),
    "schedule-resumed": ("resumed the schedule",),
    "backfill": ("asked for a backfill",),
    "update-requested": ("asked for an update of {dataset_id}", "asked for an update"),
    "request-cancelled": ("cancelled a request",),
    "missing-asked-for": ("asked for {windows} missing windows", "asked for missing windows"),
    "window-dismissed": ("dismissed {windows}", "dismissed windows"),
    "window-expected-again": ("expects again {windows}", "expects windows again"),
    "breaker-reset": ("closed the circuit after {failures} failures in a row", "closed the circuit"),
    "breaker-probe": ("had the circuit probed",),
    "breaker-hold": ("held the circuit open until {until}", "held the circuit open"),
    "incident-acknowledged": ("acknowledged an incident",),
    "incident-assigned": ("gave an incident to {person}", "assigned an incident"),
    "incident-silenced": ("silenced notifications until {until}", "silenced notifications"),
    "incident-silence-ended": ("ended a silence",),
    "incident-closed": ("closed an incident",),
    "projected-again": ("had the targets made to show what is promoted",),
    "seal": ("sealed {count} rows of {subject}", "sealed rows"),
    "gc": ("collected what is not needed any more",),
    "purge": ("purged what was withdrawn",),
    "dead-message-release": ("released a dead message",),
    "units-imported": ("imported {created} units", "imported units"),
}
_LISTED_MAX = 3


def entry_sentence(entry: GovernanceEntry) -> str:
    """What its actor did, made of the facts of the entry."""
    facts = {name: _told(value) for name, value in entry.details.items() if value not in (None, [], "")}
    facts["subject"] = entry.subject
    for text in _SENTENCES.get(entry.kind, ()):
        try:
            return text.format_map(facts)
        except KeyError:
            continue
    return entry.kind.replace("-", " ")


def _told(value: Any) -> str:
    if isinstance(value, list):
        more = f" and {len(value) - _LISTED_MAX} more" if len(value) > _LISTED_MAX else ""
        return ", ".join(map(str, value[:_LISTED_MAX])) + more
    return str(value)
