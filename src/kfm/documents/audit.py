"""Entries of the governance ledger as documents."""

from __future__ import annotations

from typing import Any

from kfm.core.wording import instant


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
