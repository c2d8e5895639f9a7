"""Replays of units as documents: plans, their units, and receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.quantities import instant
from kfm.model.replays import (
    MISMATCH,
    Chosen,
    ListedReplay,
    Receipt,
    Replay,
    ReplayPlan,
    Selection,
    differing,
)

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.quarantine import Approval

STAGES = ("planned", "awaiting-approval", "approved", "rejected", "running", "stopped", "done")


def stage_of(replay: Replay | ListedReplay, approvals: Sequence[Approval]) -> str:
    """How far it is; `approvals`: those about it, the newest first."""
    if replay.state == "running":
        return "stopped" if replay.served == 0 else "running"
    if replay.state == "done":
        return "done"
    words = {"requested": "awaiting-approval", "approved": "approved", "rejected": "rejected"}
    return next((words[one.status] for one in approvals if one.status in words), "planned")


def stage_in(ledger: LedgerReader, replay: Replay | ListedReplay) -> str:
    asks = replay.state == "requested" and replay.summary.needs_approval
    return stage_of(replay, ledger.approvals(subject=replay.replay_id) if asks else ())


def unit_document(unit: Chosen) -> dict[str, Any]:
    return dict(msgspec.to_builtins(unit))


def selection_document(selection: Selection) -> dict[str, Any]:
    """What was chosen, with times as texts."""
    chosen = {name: getattr(selection, name) for name in selection.__struct_fields__}
    return {
        name.removesuffix("_ms"): instant(value) if name.endswith("_ms") else value
        for name, value in chosen.items()
        if value not in (None, ())
    }


def plan_document(plan: ReplayPlan) -> dict[str, Any]:
    return {
        "replay_id": plan.replay_id,
        "digest": plan.digest,
        "mode": plan.mode,
        "reason": plan.reason,
        "made_at": instant(plan.made_at_ms),
        "needs_approval": plan.needs_approval,
        "selection": selection_document(plan.selection),
        "counts": {
            "units": len(plan.units),
            "by_dataset": plan.by_dataset,
            "by_error_code": plan.by_error_code,
            "by_status": plan.by_status,
        },
        "left_out": plan.left_out,
        "units": [unit_document(unit) for unit in plan.units],
    }


def replay_document(
    replay: Replay | ListedReplay, tally: Mapping[str, int], stage: str | None = None
) -> dict[str, Any]:
    """`stage`: how far it is, where an approval decides that, too."""
    summary = replay.summary
    return {
        "replay_id": replay.replay_id,
        "digest": replay.digest,
        "name": replay.name,
        "state": replay.state,
        "stage": stage or stage_of(replay, ()),
        "mode": replay.mode,
        "reason": replay.reason,
        "rationale": replay.rationale,
        "requested_by": replay.requested_by,
        "made_at": instant(summary.made_at_ms),
        "begun_at": instant(replay.created_at_ms),
        "changed_at": instant(replay.updated_at_ms),
        "units": summary.units,
        "by_dataset": summary.by_dataset,
        "rate": None if replay.rate_milli is None else replay.rate_milli / 1000,
        "replayed": tally.get("replayed", 0),
        "drifted": tally.get("drifted", 0),
        "waiting": tally.get("", 0),
    }


def receipt_document(receipt: Receipt, differences: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "wal_id": receipt.wal_id,
        "version": receipt.version,
        "receipt": receipt.receipt,
        "at": instant(receipt.at_ms),
        "dataset": receipt.dataset,
        "object_uri": receipt.object_uri,
        "now": {
            "status": receipt.status,
            "error_code": receipt.error_code,
            "attempts": receipt.attempts,
        },
        "differences": [
            {"field": name, "is": pair[0], "would_be": pair[1]} for name, pair in (differences or {}).items()
        ],
    }


def differences_of(units: Any, receipt: Receipt) -> dict[str, Any]:
    """What the replay would have made of it, where that differs from what is published."""
    return differing(units.history_of(receipt.wal_id)) if receipt.error_code == MISMATCH else {}


def shown_replay(ledger: LedgerReader, replay: Replay, *, after: str = "", limit: int = 50) -> dict[str, Any]:
    """A replay, with a page of its receipts."""
    from kfm.reports.quarantine import approval_document

    reader, units = ledger.replay_reader(), ledger.unit_reader()
    found = reader.receipts(replay.replay_id, after, limit + 1)
    requests = ledger.approvals(subject=replay.replay_id)
    return {
        "replay": replay_document(replay, reader.tally(replay.replay_id), stage_of(replay, requests)),
        "since": reader.since(replay.replay_id),
        "requests": [approval_document(one) for one in requests],
        "receipts": [receipt_document(one, differences_of(units, one)) for one in found[:limit]],
        "more": len(found) > limit,
    }
