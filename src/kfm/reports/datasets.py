"""Datasets and their versions: what is published, who changed it, what is withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.dataset_changes import (
    DatasetChange,
    Purge,
    Withdrawal,
    active,
    against_rollback,
    lift_command,
    must_go,
    span_words,
    withdraw_command,
)
from kfm.model.quantities import instant

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.settings import Settings

VERSIONS_MAX = 50


def dataset_documents(settings: Settings, ledger: LedgerReader) -> list[dict[str, Any]]:
    """Every dataset that is declared or was ever published, by its id."""
    heads = {head.dataset_id: head for head in ledger.heads()}
    withdrawn: dict[str, list[Withdrawal]] = {}
    for one in active(ledger.change_reader().withdrawals()):
        withdrawn.setdefault(one.dataset_id, []).append(one)
    declared = {dataset.id: dataset for dataset in settings.datasets}
    found = []
    for dataset_id in sorted(declared.keys() | heads.keys()):
        head, known = heads.get(dataset_id), withdrawn.get(dataset_id, [])
        found.append(
            {
                "dataset_id": dataset_id,
                "declared": dataset_id in declared,
                "state": _state(head is not None, known),
                "version": head.sequence if head else None,
                "version_id": head.version_id if head else None,
                "promoted_at": instant(head.promoted_at_ms) if head else None,
            }
        )
    return found


def _state(published: bool, withdrawn: list[Withdrawal]) -> str:
    if any(one.retires for one in withdrawn):
        return "retired"
    if any(one.is_whole for one in withdrawn):
        return "withdrawn"
    if withdrawn:
        return "partly-withdrawn"
    return "published" if published else "never"


def dataset_document(settings: Settings, ledger: LedgerReader, dataset_id: str, limit: int) -> dict[str, Any]:
    """One dataset with its versions, newest first, and what is withdrawn of it."""
    reader = ledger.change_reader()
    known, changes = (
        reader.withdrawals(dataset_id),
        {one.change_id: one for one in reader.changes(dataset_id)},
    )
    versions = []
    promotions = ledger.promotions(dataset_id, limit)
    for place, promotion in enumerate(promotions):
        manifest = ledger.manifest(promotion.version_id)
        change = changes.get(promotion.run_id)
        against = against_rollback(promotion.sequence, manifest, known) if manifest is not None else None
        assets = [asset for item in manifest.items for asset in item.assets] if manifest else []
        versions.append(
            {
                "version": promotion.sequence,
                "version_id": promotion.version_id,
                "promoted_at": instant(promotion.promoted_at_ms),
                "by": change.kind if change else "run",
                "run_id": None if change else promotion.run_id,
                "change_id": promotion.run_id if change else None,
                "actor": change.actor if change else None,
                "rationale": change.rationale if change else None,
                "to_version": change.to_sequence if change else None,
                "items": len(manifest.items) if manifest else 0,
                "files": len(assets),
                "bytes": sum(asset.size for asset in assets),
                "can_roll_back": place > 0 and against is None,
                "held_back": against[1] if against else None,
            }
        )
    summary = next(
        (one for one in dataset_documents(settings, ledger) if one["dataset_id"] == dataset_id), None
    )
    return {
        **(summary or {}),
        "versions": versions,
        "withdrawn": [withdrawal_document(one) for one in (*known, *reader.target_withdrawals(dataset_id))],
        "purges": [purge_document(one) for one in reader.purges() if one.dataset_id == dataset_id],
    }


def withdrawal_document(one: Withdrawal) -> dict[str, Any]:
    return {
        "change_id": one.change_id,
        "what": span_words(one),
        "source_id": one.source_id or None,
        "target": one.target or None,
        "window_start": instant(one.start_ms),
        "window_end": instant(one.end_ms),
        "retires": one.retires,
        "purge": one.purge,
        "reason": one.reason,
        "since_version": one.since_sequence,
        "withdrawn_at": instant(one.withdrawn_at_ms),
        "lifted_by": one.lifted_by,
        "command": lift_command(one) if one.is_active else None,
    }


def purge_document(one: Purge) -> dict[str, Any]:
    return {
        "change_id": one.change_id,
        "place": one.place,
        "state": one.state,
        "removed": one.removed,
        "detail": one.detail,
    }


def change_document(one: DatasetChange) -> dict[str, Any]:
    return {
        "change_id": one.change_id,
        "dataset_id": one.dataset_id,
        "kind": one.kind,
        "base_version": one.base_sequence,
        "version": one.sequence,
        "to_version": one.to_sequence,
        "digest": one.digest,
        "actor": one.actor,
        "rationale": one.rationale,
        "ticket": one.ticket,
        "changed_at": instant(one.changed_at_ms),
    }


def to_withdraw(settings: Settings, ledger: LedgerReader) -> list[dict[str, Any]]:
    """Datasets that readers can still see though they may not: each with why, and the command."""
    found = []
    for dataset in settings.datasets:
        rights = dataset.rights
        if rights is None:
            continue
        consent = rights.sovereignty.consent if rights.sovereignty is not None else None
        if rights.care.level != "blocked" and consent != "withdrawn":
            continue  # the usual case reads nothing
        head = ledger.head(dataset.id)
        why = must_go(head[0] if head else None, bool(head and head[1].items), rights.care.level, consent)
        if why is not None:
            command = withdraw_command(dataset.id)
            found.append({"dataset_id": dataset.id, "why": why, "command": command})
    return found
