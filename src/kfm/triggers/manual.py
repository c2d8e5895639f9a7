"""A person, or a script that a person wrote, asks for an update."""

from __future__ import annotations

from kfm.core.records import Trigger, TriggerType
from kfm.core.settings import Source


def manual_trigger(
    source: Source,
    *,
    kind: TriggerType = "manual",
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
    correction: str | None = None,
    message_id: str | None = None,
    request_uuid: str | None = None,
    envelope: dict[str, str] | None = None,
) -> Trigger:
    return Trigger(
        type=kind,
        source_id=source.id,
        dataset_id=source.dataset,
        correction=correction,
        message_id=message_id,
        request_uuid=request_uuid,
        envelope=envelope or {},
        actor=actor,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
    )
