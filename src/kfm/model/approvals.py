"""Approvals that the policies ask for: what one is about, and whether it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.gates import denied
from kfm.model.input_hash import sha256_text
from kfm.model.quarantine import REQUEST_TAG, Approval
from kfm.model.records import GateResult
from kfm.model.roles import is_same_person
from kfm.model.settings import DatasetSettings, PersonSettings, SourceSettings
from kfm.model.targets import ReachedTarget

if TYPE_CHECKING:
    from kfm.model.requests import UpdateRequest

VALID_MS = 7 * 86_400_000  # an approval that was not used by then was for another situation
STANDING_MS_MAX = 366 * 86_400_000  # a longer one would outlive what it was given for
GATE = "approval"
REQUIRED = "The source has `approval: required`, and no approval of this is recorded."


def attempt_digest(dataset: DatasetSettings, work_base: str, targets: tuple[ReachedTarget, ...]) -> str:
    """What an attempt is asked for: other rights, another window, other code or another target make it
    another request.

    Of a preview these are the terms: its own digest binds what is published, this one under which rights.
    """
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


def standing_digest(
    dataset: DatasetSettings, source_id: str, output_version: str, targets: tuple[ReachedTarget, ...]
) -> str:
    """What a standing approval is given for: other rights, other code or another target end it."""
    document = {
        "kfm": REQUEST_TAG,
        "kind": "standing",
        "dataset_id": dataset.id,
        "rights": msgspec.to_builtins(dataset.rights),
        "source_id": source_id,
        "output_version": output_version,
        "targets": msgspec.to_builtins(targets),
    }
    return sha256_text(canonical_bytes(document))


# --- does one hold? --------------------------------------------------------------------


def holds(approval: Approval, digest: str, now_ms: int) -> bool:
    """May the next attempt begin with it? `digest`: of the terms as they are now.

    An approval of one attempt is used once; one of a preview lets every attempt of its request begin, if the
    first began in time; a standing one holds until its date.
    """
    if approval.status != "approved" or terms_of(approval) != digest:
        return False
    in_time = (approval.expires_at_ms or 0) > now_ms
    if approval.kind == "update":
        return in_time or approval.used_at_ms is not None
    return in_time and (approval.kind == "standing" or approval.used_at_ms is None)


def terms_of(approval: Approval) -> str | None:
    """The digest of the terms that it was given under."""
    return approval.terms if approval.kind == "update" else approval.digest


def usable(approvals: Iterable[Approval], digest: str, now_ms: int) -> Approval | None:
    """The approval that the next attempt may use up: the one that lapses first."""
    found = [one for one in approvals if one.kind == "attempt" and holds(one, digest, now_ms)]
    return min(found, key=lambda one: (one.expires_at_ms, one.request_id), default=None)


def standing(
    approvals: Iterable[Approval],
    digest: str,
    now_ms: int,
    *,
    source: SourceSettings,
    people: Sequence[PersonSettings],
    asks: Sequence[str],
) -> Approval | None:
    """The standing approval that an attempt of a source may begin under: the one that holds longest.

    Its giver is still declared with the role approve, is among those that the source names, if it names any,
    and is not who asks, under any name.
    """
    found = [
        one
        for one in approvals
        if one.kind == "standing"
        and holds(one, digest, now_ms)
        and may_give(source, people, one.approved_by or "")
        and not is_same_person(one.approved_by or "", names_of(people, one.approved_by or ""), asks)
    ]
    return max(found, key=lambda one: (one.expires_at_ms or 0, one.request_id), default=None)


def may_give(source: SourceSettings, people: Sequence[PersonSettings], subject: str) -> bool:
    """May this person give a standing approval for this source?"""
    declared = any(one.subject == subject and "approve" in one.roles for one in people)
    named = source.approvals.standing.by if source.approvals and source.approvals.standing else ()
    return declared and (not named or subject in named)


def names_of(people: Sequence[PersonSettings], subject: str) -> tuple[str, ...]:
    """Everything a declared person may be recorded as."""
    return next(((one.subject, *one.accounts) for one in people if one.subject == subject), (subject,))


def is_required(source: SourceSettings, request: UpdateRequest | None) -> bool:
    """Does the source, or the way in which it was asked for, need a second person in any case?"""
    return source.approval == "required" or (request is not None and request.needs_approval)


def open_attempt(approval: Approval, now_ms: int) -> bool:
    """Does it wait for a second person, or for the attempt that uses it?"""
    if approval.kind != "attempt" or approval.used_at_ms is not None:
        return False
    if approval.status == "requested":
        return True
    return approval.status == "approved" and (approval.expires_at_ms or 0) > now_ms


def is_for_one_attempt(approval: Approval | None) -> bool:
    """Is it used up by one attempt, so that the next one needs another?"""
    return approval is not None and approval.kind == "attempt"


# --- as a gate -------------------------------------------------------------------------


def assumed(dataset_id: str) -> Approval:
    """The approval that a preview is made for: it shows what would be published if it were given."""
    return Approval(
        request_id="",
        kind="update",
        subject="",
        digest="",
        requested_by="",
        requested_at_ms=0,
        rationale="",
        dataset_id=dataset_id,
    )


def seen(approval: Approval) -> GateResult:
    """The approval as a gate result, without names of people: those are in the audit log."""
    if not approval.request_id:
        reason = "A second person has to approve this preview."
    elif approval.kind == "standing":
        reason = f"Approval {approval.request_id} of this source stands."
    elif approval.kind == "update":
        reason = f"Request {approval.request_id} was approved by a second person, for this preview only."
    else:
        reason = f"Request {approval.request_id} was approved by a second person, for this attempt only."
    return GateResult(gate=GATE, allowed=True, reason=reason)


def missing(source_id: str, window: str) -> GateResult:
    """The refusal of a source that needs an approval, where none was given."""
    command = f"kfm approvals request --source {source_id} --window {window} --rationale TEXT"
    remedy = f"A person other than the requester has to approve it; ask with `{command}`."
    return denied(GATE, "approval-required", REQUIRED, remedy=remedy, command=command)
