"""Rows to records and back. Column order in the queries is field order in the records."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.core.canonical import canonical_bytes
from kfm.core.records import (
    GateResult,
    GovernanceEntry,
    Holder,
    Invocation,
    Lock,
    Manifest,
    Promotion,
    Run,
    Switch,
)
from kfm.store.session import Row

_RUN_FIELDS = Run.__struct_fields__
_PROMOTION_FIELDS = Promotion.__struct_fields__
_SWITCH_FIELDS = Switch.__struct_fields__
_GATES = msgspec.json.Decoder(tuple[GateResult, ...])
_MANIFEST = msgspec.json.Decoder(Manifest)


def run_from(row: Row) -> Run:
    return Run(**dict(zip(_RUN_FIELDS, row, strict=True)))


def run_parameters(run: Run) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(run)
    parameters["partition_key"] = parameters.pop("partition")
    return parameters


def invocation_from(row: Row) -> Invocation:
    (invocation_id, run_id, source_id, dataset_id, trigger_type, key, outcome, actor, requested_at_ms,
     claimed_actor, rationale, ticket, reason, gates) = row  # fmt: skip
    return Invocation(
        invocation_id=invocation_id,
        run_id=run_id,
        source_id=source_id,
        dataset_id=dataset_id,
        trigger_type=trigger_type,
        idempotency_key=key,
        outcome=outcome,
        actor=actor,
        requested_at_ms=requested_at_ms,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
        reason=reason,
        gates=_GATES.decode(gates),
    )


def invocation_parameters(invocation: Invocation) -> dict[str, Any]:
    return msgspec.structs.asdict(invocation) | {"gates": gates_text(invocation.gates)}


def gates_text(gates: tuple[GateResult, ...]) -> str:
    return text_of(gates)


def lock_from(row: Row) -> Lock:
    scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms = row
    holder = Holder(worker_id=worker_id, run_id=run_id) if worker_id is not None else None
    return Lock(
        scope=scope, fence=fence, holder=holder, acquired_at_ms=acquired_at_ms, lease_until_ms=lease_until_ms
    )


def promotion_from(row: Row) -> Promotion:
    return Promotion(**dict(zip(_PROMOTION_FIELDS, row, strict=True)))


def manifest_from(text: str) -> Manifest:
    return _MANIFEST.decode(text)


def switch_from(row: Row) -> Switch:
    return Switch(**dict(zip(_SWITCH_FIELDS, row, strict=True)))


def entry_from(row: Row) -> GovernanceEntry:
    kind, subject, actor, recorded_at_ms, rationale, ticket, details = row
    return GovernanceEntry(
        kind=kind,
        subject=subject,
        actor=actor,
        recorded_at_ms=recorded_at_ms,
        rationale=rationale,
        ticket=ticket,
        details=msgspec.json.decode(details),
    )


def entry_parameters(entry: GovernanceEntry) -> dict[str, Any]:
    return msgspec.structs.asdict(entry) | {"details": text_of(entry.details)}


def text_of(value: Any) -> str:
    """Canonical JSON text of a record or a plain document."""
    return canonical_bytes(msgspec.to_builtins(value)).decode()
