"""Approvals that the policies ask for: what one is about, and whether it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.input_hash import sha256_text
from kfm.model.quarantine import REQUEST_TAG, Approval
from kfm.model.records import GateResult, Run
from kfm.model.settings import DatasetSettings
from kfm.model.targets import ReachedTarget

VALID_MS = 7 * 86_400_000  # an approval that was not used by then was for another situation
GATE = "approval"


def attempt_digest(dataset: DatasetSettings, work_base: str, targets: tuple[ReachedTarget, ...]) -> str:
    """What an attempt is asked for: other rights, another window, other code or another target make it
    another request."""
    document = {
        "kfm": REQUEST_TAG,
        "kind": "attempt",
        "dataset_id": dataset.id,
        "rights": msgspec.to_builtins(dataset.rights),
        "work_base": work_base,
    }
    if targets:  # without any it is the document of earlier versions
        document["targets"] = msgspec.to_builtins(targets)
    return sha256_text(canonical_bytes(document))


def usable(approvals: Iterable[Approval], digest: str, now_ms: int) -> Approval | None:
    """The approval that the next attempt may use up: the one that lapses first."""
    found = [
        one
        for one in approvals
        if one.kind == "attempt"
        and one.state == "approved"
        and one.digest == digest
        and one.used_at_ms is None
        and (one.expires_at_ms or 0) > now_ms
    ]
    return min(found, key=lambda one: (one.expires_at_ms, one.request_id), default=None)


def open_attempt(approval: Approval, now_ms: int) -> bool:
    """Does it wait for a second person, or for the attempt that uses it?"""
    if approval.kind != "attempt" or approval.status == "rejected" or approval.used_at_ms is not None:
        return False
    return approval.state == "requested" or (approval.expires_at_ms or 0) > now_ms


def used_by(approvals: Iterable[Approval], run: Run) -> Approval | None:
    """The approval under which the present attempt of a run was begun."""
    found = (one for one in approvals if one.used_by == run.run_id and one.used_attempt == run.attempts)
    return next(found, None)


def seen(approval: Approval) -> GateResult:
    """The approval as a gate result, without names of people: those are in the audit log."""
    return GateResult(
        gate=GATE,
        allowed=True,
        reason=f"Request {approval.request_id} was approved by a second person, for this attempt only.",
    )
